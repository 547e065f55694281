#include "apps/attention_bench/settings.h"

#include <algorithm>
#include <charconv>

#include "apps/common/program.h"
#include "core/storage.h"
#include "nn/attention/attention.h"

namespace cairn::attention_bench {

void Settings::fields(SettingFields& f) {
  f("what", shared.what, {{"attention", What::attention}, {"layer", What::layer}, {"cluster", What::cluster}},
    "attention alone, a transformer layer around it, or clustering alone, from hash codes to labels");
  f("pass", shared.backward, {{"forward", false}, {"both", true}}, "forward, or both: forward and backward");
  f("tokens", tokens, {1, int64_t(1) << 40},
    "positions at once: the batch is this by the length; by default 16384, on a GPU 131072");
  f("batch", batch, Text::any, "sequences at once, in the place of --tokens; max: as many as fit");
  f("heads", shared.heads, {1, 1024}, "attention heads");
  f("head-size", shared.head_size, {1, 4096}, "size of a head");
  f("feed-forward", shared.feed_forward, {1, 1 << 20}, "hidden features of the layer's feed forward");
  f("repeat", repetitions.maximum, {1, 1'000'000}, "repetitions at the most; the median counts");
  f("seconds", repetitions.seconds, {0, 1e6},
    "of a measurement: after these, and three repetitions, no more are begun");
  compute.fields(f);
}

void Settings::finish() {
  shared.place = compute.apply();
  shared.seed = uint64_t(compute.seed);
  if (tokens < 1) tokens = shared.place.device == Device::cuda ? 131072 : 16384;
  if (batch.empty() || batch == "max") return;
  shared.batch = 0;  // where it is too large to be read
  const char* const end = batch.data() + batch.size();
  check<UsageError>(
      std::from_chars(batch.data(), end, shared.batch).ptr == end && shared.batch >= 1 && shared.batch <= (1 << 30),
      "--batch: expected a whole number from 1 on, or max, got '", batch, "'");
}

Problem Settings::problem(const std::string& attention, int64_t length, bool quiet) const {
  note_if_full(*make_attention(attention), length, length, quiet);
  Problem problem = shared;
  problem.attention = attention, problem.length = length;
  problem.backward = shared.backward && shared.what != What::cluster;
  if (batch.empty()) problem.batch = std::max<int64_t>(1, tokens / length);
  if (batch != "max") return problem;
  // Memory grows by the same with each sequence; two points tell by how much. A tenth is left to others.
  const std::string largest = concat("the largest batch of ", attention, ", length ", length);
  note(largest + ": measuring the memory of one and two", quiet);
  problem.batch = 1;
  const int64_t one = peak_bytes(problem);
  problem.batch = 2;
  const int64_t two = peak_bytes(problem);
  const auto free = int64_t(double(available_memory(problem.place.device)) * 0.9);
  problem.batch = std::max<int64_t>(1, 1 + (free - one) / std::max<int64_t>(1, two - one));
  note(concat(largest, " is ", problem.batch), quiet);
  return problem;
}

}  // namespace cairn::attention_bench

#include "apps/attention_bench/settings.h"

#include <algorithm>
#include <charconv>

#include "apps/common/program.h"
#include "core/storage.h"
#include "nn/attention/attention.h"

namespace cairn::attention_bench {

void Settings::fields(SettingFields& f) {
  f("what", shared.what,
    {{"attention", What::attention},
     {"layer", What::layer},
     {"cluster", What::cluster},
     {"product", What::product},
     {"gradient", What::gradient}},
    "attention; layer: a transformer layer with it; cluster: k-means of given hash codes; product: all tokens times a "
    "weight [feed-forward, heads * head-size]; gradient: that for the weight's gradient");
  f("pass", shared.backward, {{"forward", false}, {"both", true}}, "forward alone, or both forward and backward");
  f("tokens", tokens, {0, int64_t(1) << 40}, "tokens per batch (batch = tokens / length); 0: 16384, on a GPU 131072");
  f("batch", batch, Text::any, "sequences per batch, instead of --tokens; max: as many as fit into memory");
  f("heads", shared.heads, {1, 1024}, "attention heads");
  f("head-size", shared.head_size, {1, 4096}, "size of a head");
  f("feed-forward", shared.feed_forward, {1, 1 << 20}, "hidden features of the layer's feed-forward network");
  f("repeat", repetitions.maximum, {1, 1'000'000}, "maximum number of repetitions; the median is shown");
  f("seconds", repetitions.seconds, {0, 1e6},
    "start no further repetition once this time has passed and at least 3 are done");
  compute.fields(f);
}

void Settings::finish() {
  shared.compute = compute.apply();
  shared.seed = uint64_t(compute.seed);
  if (tokens < 1) tokens = shared.compute.device == Device::cuda ? 131072 : 16384;
  if (batch.empty() || batch == "max") return;
  shared.batch = 0;  // stays 0 if the number is too large
  const char* const end = batch.data() + batch.size();
  check<UsageError>(
      std::from_chars(batch.data(), end, shared.batch).ptr == end && shared.batch >= 1 && shared.batch <= (1 << 30),
      "--batch: expected a whole number from 1 to 1073741824, or max, got '", batch, "'");
}

Problem Settings::problem(const std::string& attention, int64_t length, bool quiet) const {
  note(full_attention_note(*make_attention(attention), length, length), quiet);
  Problem problem = shared;
  problem.attention = shared.is_product() ? "none" : attention, problem.length = length;
  problem.backward = shared.backward && shared.what != What::cluster && !shared.is_product();
  if (batch.empty()) problem.batch = std::max<int64_t>(1, tokens / length);
  if (batch != "max") return problem;
  // Memory grows linearly with the batch, so two measurements give the slope. A tenth of the memory stays free.
  const std::string where = concat(attention, ", length ", length);
  note(where + ": measuring the memory of batches 1 and 2", quiet);
  problem.batch = 1;
  const int64_t one = peak_bytes(problem);
  problem.batch = 2;
  const int64_t two = peak_bytes(problem);
  const auto free = int64_t(double(available_memory(problem.compute.device)) * 0.9);
  problem.batch = std::max<int64_t>(1, 1 + (free - one) / std::max<int64_t>(1, two - one));
  note(concat(where, ": the largest batch is ", problem.batch), quiet);
  return problem;
}

}  // namespace cairn::attention_bench

#include "apps/attention_bench/settings.h"

#include <algorithm>
#include <charconv>

#include "core/storage.h"
#include "nn/attention/attention.h"

namespace cairn::attention_bench {
namespace {

// What one repetition needs: its peak.
int64_t bytes_of(Problem problem, int64_t batch, const Settings& settings) {
  problem.batch = batch;
  Workload workload(problem, settings.compute, uint64_t(settings.common.seed));
  workload.run_once();
  return workload.peak_bytes();
}

}  // namespace

void Settings::define(CLI::App& command, Options& options, const char* what_preset) {
  what = what_preset;
  options.choice("what", what, {"attention", "layer", "cluster"},
                 "attention alone, a transformer layer around it, or clustering alone, from hash codes to labels");
  options.choice("pass", pass, {"forward", "both"}, "forward, or both: forward and backward");
  options.integer("tokens", tokens, 1, int64_t(1) << 40,
                  "positions at once: the batch is this by the length; by default 16384, on a GPU 131072");
  options.text("batch", batch, "sequences at once, in the place of --tokens; max: as many as fit");
  options.integer("heads", heads, 1, 1024, "attention heads");
  options.integer("head-size", head_size, 1, 4096, "size of a head");
  options.integer("feed-forward", feed_forward, 1, 1 << 20, "hidden features of the layer's feed forward");
  options.integer("repeat", repetitions.maximum, 1, 1'000'000, "repetitions at the most; the median counts");
  options.real("seconds", repetitions.seconds, 0, 1e6,
               "of a measurement: after these, and three repetitions, no more are begun");
  common.define(options);
  output.define(command);
}

void Settings::finish() {
  compute = common.apply();
  if (tokens < 1) tokens = compute.device == Device::cuda ? 131072 : 16384;
  if (batch.empty() || batch == "max") return;
  int64_t value = 0;
  const char* const end = batch.data() + batch.size();
  check<UsageError>(std::from_chars(batch.data(), end, value).ptr == end && value >= 1 && value <= (1 << 30),
                    "--batch: expected a whole number from 1 on, or max, got '", batch, "'");
}

std::vector<std::string> Settings::variants(const std::string& attention) {
  std::vector<std::string> specs;
  about_option("--attention", [&] {
    specs = split_specs(attention);
    for (const std::string& spec : specs) make_attention(spec);
  });
  check<UsageError>(!specs.empty(), "--attention: expected a variant");
  return specs;
}

Problem Settings::problem(const std::string& attention, int64_t length) const {
  Problem problem;
  problem.attention = attention, problem.length = length;
  problem.what = what == "attention" ? What::attention : what == "layer" ? What::layer : What::cluster;
  problem.backward = pass == "both" && problem.what != What::cluster;
  problem.heads = heads, problem.head_size = head_size, problem.feed_forward = feed_forward;
  if (batch.empty())
    problem.batch = std::max<int64_t>(1, tokens / length);
  else if (batch != "max")
    problem.batch = std::stoll(batch);
  else {
    // Memory grows by the same with each sequence; two points tell by how much. A tenth is left to others.
    const int64_t one = bytes_of(problem, 1, *this), two = bytes_of(problem, 2, *this);
    const auto free = int64_t(double(available_memory(compute.device)) * 0.9);
    problem.batch = std::max<int64_t>(1, 1 + (free - one) / std::max<int64_t>(1, two - one));
  }
  return problem;
}

}  // namespace cairn::attention_bench

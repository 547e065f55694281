#pragma once
// Settings that both commands share.
#include "apps/attention_bench/bench.h"
#include "apps/common/options.h"

namespace cairn::attention_bench {

struct Settings {
  CommonSettings common;
  OutputOptions output;
  std::string what, pass = "both", batch;
  int64_t tokens = 0, heads = 6, head_size = 64, feed_forward = 1536;
  Repetitions repetitions;
  Compute compute;

  // `what_preset`: attention, layer.
  void define(CLI::App& command, Options& options, const char* what_preset);
  // After assign(). Errors (UsageError): --batch is no number and not max.
  void finish();

  // Variants of a list, comma-separated. Error (UsageError): one that is none; an empty list.
  static std::vector<std::string> variants(const std::string& attention);
  // The batch for a length: --batch, or as many sequences as --tokens make, at least 1. max: as many as fit into the
  // memory of the device, by what one and two sequences take.
  Problem problem(const std::string& attention, int64_t length) const;
};

}  // namespace cairn::attention_bench

#pragma once
// The settings of a run, from the command line or from a run's config.json.
#include "apps/common/options.h"
#include "apps/common/program.h"
#include "apps/copy_task/train.h"

namespace cairn::copy_task {

struct Settings {
  CommonSettings common;
  TrainOptions train;
  bool quick = false;

  // Declares all settings.
  void define(Options& options);
  // After Options::assign(): what follows from the settings. Errors (UsageError): an attention variant that is unknown.
  void finish();

  std::string norm = "post", activation = "gelu", also;
};

// "full,i-clustered-15:topk=16,bits=32" is two specifications: a comma before option=value belongs to the one before.
std::vector<std::string> split_specs(const std::string& list);

// A run as its newest good checkpoint holds it.
struct Trained {
  Settings settings;
  FoundCheckpoint checkpoint;
  std::unique_ptr<Model> model;
  int64_t step = 0;

  // Evaluates with another variant. Error (UsageError): not for these weights.
  void swap_attention(const std::string& spec);
};

// Reads a run back; `length` builds the model for sequences of another length (0: the run's). Says on standard error
// which damaged checkpoints were passed over. Errors (DataError): no run, or none of its checkpoints can be used.
std::unique_ptr<Trained> read_run(const std::filesystem::path& run, bool quiet, int64_t length = 0);

}  // namespace cairn::copy_task

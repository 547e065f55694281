#pragma once
// The settings of a run, from the command line or from a run's config.json.
#include <filesystem>

#include "apps/common/options.h"
#include "apps/common/program.h"
#include "apps/copy_task/train.h"

namespace cairn::copy_task {

struct Settings {
  CommonSettings common;
  TrainOptions train;
  bool quick = false;

  // Declares all settings, or all but --attention and --length and what --quick presets.
  void define(Options& options);
  void define_training(Options& options);
  // After Options::assign(): what follows from the settings. Errors (UsageError): attention variants that are none.
  void finish();

  std::string norm = "post", activation = "gelu", also;
  std::string init_from;  // the folder of the run whose weights training starts from; empty: random weights
  int64_t topk = 0;       // 0: the variants' own
};

// What --quick presets, with so many steps at the most.
std::vector<std::pair<std::string, std::string>> quick_presets(int64_t iterations);

// A run as its newest good checkpoint holds it.
struct Trained {
  Settings settings;
  FoundCheckpoint checkpoint;
  std::unique_ptr<Model> model;
  int64_t step = 0;

  // Builds the model for sequences of this length, with the run's variant.
  void set_length(int64_t length);
  // Evaluates with another variant. Error (UsageError): not for these weights.
  void swap_attention(const std::string& spec);
};

// The newest good checkpoint of the run in the folder that `option` names. Error (DataError): there is none.
FoundCheckpoint checkpoint_of_run(const char* option, const std::filesystem::path& run);
// Reads the run in the folder that --run names. Errors (DataError): as checkpoint_of_run; settings that are none.
std::unique_ptr<Trained> read_run(const std::filesystem::path& run);
// The newest good checkpoint, if there is any. Which is used in the place of a damaged one is said on standard error,
// and, where training goes on from it, what becomes of the damaged one. Error (DataError): all are damaged.
std::optional<FoundCheckpoint> find_checkpoint_of(const std::filesystem::path& run, bool to_train);

}  // namespace cairn::copy_task

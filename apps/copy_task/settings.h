#pragma once
// The settings of a run, from the command line or from a run's config.json.
#include "apps/common/options.h"
#include "apps/common/program.h"
#include "apps/copy_task/train_options.h"

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

  std::string norm = "post", activation = "gelu";
  std::string init_from;  // the folder of the run whose weights training starts from; empty: random weights
  int64_t topk = 0;       // 0: the variants' own
};

// What --quick presets, with so many steps at the most.
std::vector<std::pair<std::string, std::string>> quick_presets(int64_t iterations);

}  // namespace cairn::copy_task

#pragma once
// What can be set of a run.
#include <cstdint>
#include <string>

#include "apps/common/command.h"
#include "apps/common/training_options.h"
#include "nn/transformer.h"

namespace cairn::copy_task {

struct Settings {
  int64_t length = 31, batch = 32;
  TransformerOptions model;
  int64_t topk = 0;  // of variants that say none; 0: their own
  TrainingOptions training;
  double stop_at = 0;     // end when masked accuracy in an evaluation reaches this; 0: never
  std::string init_from;  // the folder of the run whose weights training starts from; empty: random weights
  bool quick = false;
  ComputeSettings compute;

  // Declares all. A figure has a grid in the place of --attention, --length and --init-from, and fewer quick steps.
  void fields(SettingFields& f);
  void fields_of_figure(SettingFields& f);
  // What --quick sets, with so many steps at the most.
  static nlohmann::ordered_json quick_values(int64_t iterations);
  // The options of the model, with the top keys that a variant has by default.
  TransformerOptions transformer() const;
  // Refuses, before anything is written, what could not be trained. Errors: UsageError for settings that make no sense,
  // DeviceError for a model that memory cannot hold.
  void validate(Device device) const;
};

}  // namespace cairn::copy_task

#pragma once
// The settings of a run.
#include <cstdint>
#include <string>

#include "apps/common/settings.h"
#include "apps/common/training_options.h"
#include "nn/transformer.h"

namespace cairn::speech {

struct Settings {
  std::string data;                // the file of prepared data
  int64_t stride = 3, splice = 0;  // frames of a position, and neighbors to each side
  int64_t join = 1;                // sentences of a sequence
  int64_t batch_frames = 8000;     // of a batch, at most, with padding
  bool spec_augment = false;
  int64_t shift_positions = 0;  // the largest number of the first position in training
  enum class Start { offset, far, plain } init = Start::offset;
  std::string init_from;  // the folder of the run whose weights training starts from; empty: by `init`
  TransformerOptions model{.layers = 9, .attention = "full", .norm = Norm::pre, .final_norm = true};
  TrainingOptions training{.iterations = 20000,
                           .learning_rate = 1e-4,
                           .schedule = TrainingOptions::Rate::plateau,
                           .plateau = {.factor = 0.5, .patience = 4},
                           .clip = 10,
                           .weight_decay = 0.01,
                           .keep_best = true,
                           .patience = 10};
  bool quick = false;
  ComputeSettings compute;

  void fields(SettingFields& f);
};

}  // namespace cairn::speech

#pragma once
// The settings of a run.
#include <cstdint>
#include <string>

#include "apps/common/settings.h"
#include "apps/common/training_options.h"
#include "nn/transformer.h"

namespace cairn::copy_task {

inline constexpr int64_t final_sequences = 1024;  // on which a trained model is evaluated, unless --sequences says

struct Settings {
  int64_t length = 31, batch = 32;
  bool causal = false;                  // the second copy is masked, and no position sees a later one
  bool from_other = false;              // the second copy is answered, and sees the first by cross attention alone
  int64_t sequences = final_sequences;  // on which the trained model is evaluated
  TransformerOptions model;
  int64_t topk = 0;  // top keys of variants that set none; 0: the variant's default
  TrainingOptions training;
  double stop_at = 0;     // end when masked accuracy in an evaluation reaches this; 0: never
  std::string init_from;  // the folder of the run whose weights training starts from; empty: random weights
  bool quick = false;
  ComputeSettings compute;

  // Declares all settings. A figure has a grid instead of --attention, --length and --init-from.
  void fields(SettingFields& f);
  void fields_of_figure(SettingFields& f);
  // The defaults under --quick, with this maximum number of steps.
  static Json quick_values(int64_t iterations);
  // The options of the model, with --topk as the variants' default.
  TransformerOptions transformer() const;
};

}  // namespace cairn::copy_task

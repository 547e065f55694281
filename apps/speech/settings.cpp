#include "apps/speech/settings.h"

#include <nlohmann/json.hpp>

#include "apps/common/variants.h"

namespace cairn::speech {

// As the paper trains (appendix C.3), except for the plateau schedule's numbers, pre-norm and offset heads.
void Settings::fields(SettingFields& f) {
  f("data", data, Text::file, "the prepared data, made by speech prepare", Keep::may_change);
  f("attention", model.attention, one_variant, "attention variant (listed below)");
  f("stride", stride, {1, 100}, "frames (10 ms each) that form one position");
  f("splice", splice, {0, 100}, "neighboring frames to each side that a position sees too");
  f("join", join, {1, 100}, "sentences that are joined into one sequence, at random in training");
  f("batch-frames", batch_frames, {1, 1 << 30}, "frames of a batch, with padding; a longer sequence is a batch alone");
  f("spec-augment", spec_augment, "hide random bands of frequencies and spans of time in training (SpecAugment)");
  f("shift-positions", shift_positions, {0, 1 << 20},
    "in training, the number of the first position is random, at most this");
  f("init", init, {{"offset", Start::offset}, {"far", Start::far}, {"plain", Start::plain}},
    "offset: each attention head starts by looking at a neighbor of its position; far: at a position at a random "
    "distance of at most 320; plain: all weights are random");
  f("init-from", init_from, Text::folder,
    "fine-tune: start from the best weights of the run in this folder; sizes and phones must agree");
  model_fields(f, model);
  training.fields(f);
  f("quick", quick, "a small model that learns in a few minutes; changes these defaults");
  f.quick({{"layers", 4},
           {"heads", 4},
           {"head_size", 36},
           {"feed_forward", 576},
           {"dropout", 0.1},
           {"shift_positions", 640},
           {"batch_frames", 4000},
           {"optimizer", "adam"},
           {"lr", 2e-3},
           {"schedule", "linear"},
           {"warm_up", 200},
           {"iterations", 1600},
           {"evaluate_every", 100},
           {"patience", 0}});
  compute.fields(f);
}

}  // namespace cairn::speech

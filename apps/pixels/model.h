#pragma once
// A transformer that says what is in a gray image. Each position is a patch of pixels: embedded, plus an embedding of
// its place; then an encoder, the mean over positions, and a linear layer.
#include <array>
#include <string>

#include "apps/common/training.h"
#include "nn/transformer.h"

namespace cairn::pixels {

inline constexpr int64_t side = 28;  // pixels
inline constexpr std::array class_names{"T-shirt", "trousers", "pullover", "dress", "coat",
                                        "sandal",  "shirt",    "sneaker",  "bag",   "boot"};

// Images in MNIST's format.
struct Images {
  Tensor input, target;  // float32 [images, positions, patch * patch] from -1 (black) to 1; the classes, int32 [images]
  std::string hash;      // of all files' bytes

  // `part` is train or t10k (the test). Errors: UsageError: patches do not divide the image; DataError: a file is
  // missing, has more or less than its header says, or does not fit the other one.
  Images(const std::string& folder, const std::string& part, int64_t patch);
  int64_t size() const { return target.size(0); }
};

// The settings of a run.
struct Settings {
  std::string data = "fashion-mnist";  // the folder
  int64_t patch = 2, batch = 32;
  TransformerOptions model{.layers = 2,
                           .heads = 2,
                           .head_size = 16,
                           .feed_forward = 128,
                           .attention = "i-clustered-25",
                           .norm = Norm::pre,
                           .final_norm = true};
  TrainingOptions training{.iterations = 20000,
                           .learning_rate = 3e-3,
                           .schedule = TrainingOptions::Rate::linear,
                           .warm_up = 50,
                           .clip = 1,
                           .beta2 = 0.99};
  bool quick = false;
  ComputeSettings compute;

  void fields(SettingFields& f);
};

struct Model : Module {
  Linear input;
  Embedding place;
  Encoder encoder;
  Linear output;

  Model(const Settings& settings, Generator& generator);
  void fields(Fields& f) override {
    f("input", input);
    f("place", place);
    f("encoder", encoder);
    f("output", output);
  }
  // Images::input of some images -> float32 logits [images, 10].
  Variable operator()(const Tensor& patches, const Context& given) const;
};

// The share of right answers to the first `count` images, and the loss. Throws Interrupted if the user asks to stop and
// `may_stop`.
Json measure(const Model& model, const Images& images, int64_t count, bool may_stop);

// How many pairs of positions of an image share a cluster, over all heads: of all pairs, of near ones, and of those of
// the same shade. Near: at most two pixels (or one position) apart in each direction, of other shades. Same shade: not
// near, less than 16 of 256 levels apart, not black. labels int32 [images, heads, positions]; shades float32 [images,
// positions], from -1 to 1.
std::array<double, 3> cluster_shares(const Tensor& labels, const Tensor& shades);

// Writes report.html and clusters.svg. The model is on the CPU from then on. The result is null if the user has
// interrupted. The same run gives the same page. Error (DataError): metrics.jsonl is another program's.
void write_report(RunFolder& run, const TrainState& state, const Json& result, const Settings& settings,
                  const Images& test, Model& model);

}  // namespace cairn::pixels

#pragma once
// A transformer that says what is in a gray image. Each position is a patch of pixels: embedded, plus the embeddings of
// its row and its column; then an encoder, the mean over positions, and a linear layer.
#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/common/training.h"
#include "nn/transformer.h"

namespace cairn::pixels {

inline constexpr int64_t side = 28;  // pixels
inline constexpr std::array class_names{"T-shirt", "trousers", "pullover", "dress", "coat",
                                        "sandal",  "shirt",    "sneaker",  "bag",   "boot"};

// Images and their classes, as MNIST's files have them.
struct Images {
  std::string pixels, classes;  // [images][28][28], [images]

  // `part` is train or t10k (the test). Error (DataError): a file is missing, is none of such images or classes, or has
  // not as many as its header says.
  Images(const std::string& folder, const std::string& part);
  int64_t size() const { return int64_t(classes.size()); }
};

struct Batch {
  Tensor input, target;  // float32 [images, positions, patch * patch], int32 [images]

  Batch(const Images& images, const std::vector<int64_t>& chosen, int64_t patch, Device device);
};

// The settings of a run.
struct Settings {
  std::string data = "fashion-mnist";  // the folder
  int64_t patch = 2, batch = 64;
  TransformerOptions model{.layers = 3,
                           .heads = 4,
                           .head_size = 16,
                           .feed_forward = 256,
                           .attention = "i-clustered-25",
                           .norm = Norm::pre,
                           .final_norm = true};
  TrainingOptions training;
  bool quick = false;
  ComputeSettings compute;

  Settings();
  void fields(SettingFields& f);
};

struct Model : Module {
  int64_t patch, across;  // pixels a patch is wide, patches an image is wide
  Linear input;
  Embedding row, column;
  Encoder encoder;
  Linear output;

  // Error (UsageError): the patches do not divide the image; as Encoder().
  Model(const Settings& settings, Generator& generator);
  void fields(Fields& f) override {
    f("input", input);
    f("row", row);
    f("column", column);
    f("encoder", encoder);
    f("output", output);
  }
  // Patches as in Batch -> float32 logits [images, 10].
  Variable operator()(const Tensor& patches, const Context& given) const;
};

// The model's answers to every so many-th image.
struct Answers {
  double accuracy = 0, loss = 0;
  std::vector<int32_t> chosen;  // classes
};
// Throws Interrupted if the user asks to stop and `may_stop`.
Answers answers_to(const Model& model, const Images& images, int64_t every, bool may_stop);

// What the variant of each layer chose: labels of clusters, int32 [images, heads, positions]; undefined if it has none.
std::vector<Tensor> cluster_labels(Model& model, const Batch& batch);

// Pairs of positions of an image, by what they have in common, and how many of them share a cluster.
enum PairKind { any, near, same_shade, both_black, pair_kinds };
struct Pairs {
  std::array<double, pair_kinds> all{}, together{};

  // Near: at most two pixels (or one patch) apart in each direction, of other shades. Same shade: not near, their means
  // less than 16 of 256 levels apart, not black. Both black: not near. `shades` are from -1 to 1.
  void add(const int32_t* labels, const float* shades, int64_t across);
  double share(PairKind kind) const { return together[kind] / all[kind]; }
};
// For each layer, over its heads. Empty if the variant has no clusters.
std::vector<Pairs> cluster_pairs(Model& model, const Batch& batch);

// Trains the run, or goes on with it, and returns its result. Errors: as Images(), Model() and Training.
nlohmann::ordered_json train(const Run& run, const Settings& settings, const DeviceAndDType& compute);

// Writes report.html: the training, and the clusters of the model, which is on the CPU from then on. The result is null
// if the user has interrupted. The same run gives the same page. Error (DataError): metrics.jsonl is another program's.
void write_report(RunFolder& run, const TrainState& state, const nlohmann::ordered_json& result,
                  const Settings& settings, const Images& test, Model& model);

}  // namespace cairn::pixels

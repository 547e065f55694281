#include "apps/pixels/model.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "apps/common/variants.h"
#include "core/ops.h"

namespace cairn::pixels {

// What stands behind the header of an IDX file: big-endian numbers, of which the first says how many axes of bytes
// there are, and the others are their sizes.
static std::string read_idx(const std::string& folder, const std::string& name, const std::vector<uint32_t>& item) {
  const std::filesystem::path file = std::filesystem::path(folder) / name;
  check<DataError>(is_there(file), "--data: there is no ", file,
                   "; on Debian: apt-get install dataset-fashion-mnist && cp -r /usr/share/datasets/fashion-mnist . && "
                   "gunzip fashion-mnist/*");
  const std::string bytes = read_file(file);
  const size_t header = 8 + 4 * item.size();
  const auto number = [&](size_t i) {
    uint32_t value = 0;
    for (size_t byte = 4 * i; byte < 4 * i + 4; ++byte) value = value << 8 | uint8_t(bytes[byte]);
    return value;
  };
  size_t size = 1;
  bool is_right = bytes.size() >= header && number(0) == 0x801 + item.size();
  for (size_t i = 0; i < item.size(); size *= item[i++]) is_right = is_right && number(i + 2) == item[i];
  check<DataError>(is_right, file, ": expected an unpacked IDX file of ", item.empty() ? "classes" : "28 x 28 bytes");
  const size_t there = bytes.size() - header;
  check<DataError>(number(1) > 0 && there == number(1) * size, file, ": its header says ", number(1), " times ", size,
                   " bytes, but it has ", there, "; unpack it again");
  return bytes.substr(header);
}

Images::Images(const std::string& folder, const std::string& part)
    : pixels(read_idx(folder, part + "-images-idx3-ubyte", {side, side})),
      classes(read_idx(folder, part + "-labels-idx1-ubyte", {})) {
  check<DataError>(pixels.size() == classes.size() * side * side, "--data ", folder, ": ", part, " has ",
                   pixels.size() / (side * side), " images, but ", classes.size(), " classes");
  for (const char of : classes)
    check<DataError>(size_t(uint8_t(of)) < class_names.size(), "--data ", folder, ": ", part, " has the class ",
                     int(uint8_t(of)), ", expected 0 to 9");
}

Batch::Batch(const Images& images, const std::vector<int64_t>& chosen, int64_t patch, Device device) {
  std::vector<float> inputs;
  std::vector<int32_t> targets;
  for (const int64_t image : chosen) {
    for (int64_t top = 0; top < side; top += patch)
      for (int64_t left = 0; left < side; left += patch)
        for (int64_t y = top; y < top + patch; ++y)
          for (int64_t x = left; x < left + patch; ++x)
            inputs.push_back(float(uint8_t(images.pixels[size_t((image * side + y) * side + x)])) / 127.5F - 1);
    targets.push_back(images.classes[size_t(image)]);
  }
  const auto n = int64_t(chosen.size());
  input = Tensor::from(inputs, {n, side * side / (patch * patch), patch * patch}).to(device);
  target = Tensor::from(targets, {n}).to(device);
}

Settings::Settings() {
  training.iterations = 20000;
  training.learning_rate = 2e-3;
  training.schedule = TrainingOptions::Rate::linear;
  training.warm_up = 50;
  training.clip = 1;
  training.beta2 = 0.99;
}

void Settings::fields(SettingFields& f) {
  f("data", data, Text::folder, "the folder with the four files of Fashion-MNIST, or of MNIST, unpacked");
  f("attention", model.attention, one_variant, "attention variant (listed below)");
  f("patch", patch, {1, side}, "each position is a patch of so many pixels in each direction: 1, 2, 4, 7, 14 or 28");
  f("batch", batch, {1, 1 << 20}, "images per step");
  model_fields(f, model);
  training.fields(f);
  f("quick", quick, "a training of five minutes; changes these defaults");
  compute.fields(f);
  f.quick({{"iterations", 1500}, {"evaluate_every", 100}});
}

Model::Model(const Settings& settings, Generator& generator)
    : patch(settings.patch),
      across(side / patch),
      input(patch * patch, settings.model.features(), generator),
      row(across, settings.model.features(), generator),
      column(across, settings.model.features(), generator),
      encoder(settings.model, generator),
      output(settings.model.features(), class_names.size(), generator) {
  check<UsageError>(across * patch == side, "--patch ", patch, ": expected 1, 2, 4, 7, 14 or 28, which divide 28");
}

Variable Model::operator()(const Tensor& patches, const Context& given) const {
  const Device device = row.weight.device();
  const Tensor lines = arange(across, device);
  const Variable place = reshape(row(lines.reshape({across, 1})) + column(lines), {across * across, -1});
  const Variable x = encoder(cast(input(Variable(patches)) + place * 0.3, activations), {}, given);
  return output(mean(cast(x, DType::float32), {1}));
}

Answers answers_to(const Model& model, const Images& images, int64_t every, bool may_stop) {
  constexpr int64_t at_once = 100;
  const NoGrad no_grad;
  Answers found;
  int64_t right = 0;
  for (int64_t first = 0; first < images.size(); first += at_once * every) {
    if (may_stop && interrupted()) throw Interrupted();
    std::vector<int64_t> chosen;
    for (int64_t i = first; i < std::min(images.size(), first + at_once * every); i += every) chosen.push_back(i);
    const Generator generator{uint64_t(first)};
    const Batch batch(images, chosen, model.patch, model.row.weight.device());
    const Variable logits = model(batch.input, {.generator = &generator});
    found.loss += cross_entropy(logits, batch.target).value().item() * double(chosen.size());
    for (const int32_t answer : argmax(logits.value()).to_vector<int32_t>()) {
      right += answer == images.classes[size_t(chosen[found.chosen.size() % at_once])];
      found.chosen.push_back(answer);
    }
  }
  found.loss /= double(found.chosen.size());
  found.accuracy = double(right) / double(found.chosen.size());
  return found;
}

void Pairs::add(const int32_t* labels, const float* shades, int64_t across) {
  const int64_t reach = std::max<int64_t>(1, 2 * across / side);
  for (int64_t i = 0; i < across * across; ++i)
    for (int64_t j = i + 1; j < across * across; ++j) {
      const auto count = [&](PairKind kind) {
        ++all[kind];
        together[kind] += labels[i] == labels[j];
      };
      const bool is_near = std::max(j / across - i / across, std::abs(j % across - i % across)) <= reach;
      const bool is_same = std::abs(shades[i] - shades[j]) < 16 / 127.5F;
      count(any);
      if (is_near != is_same) count(is_near ? near : shades[i] + shades[j] == -2 ? both_black : same_shade);
    }
}

std::vector<Tensor> cluster_labels(Model& model, const Batch& batch) {
  const NoGrad no_grad;
  const Generator generator(1);
  const auto layers = model.encoder.attentions();
  std::vector<Observation> seen(layers.size());
  std::vector<Tensor> labels;
  for (size_t i = 0; i < layers.size(); ++i) layers[i]->observation = &seen[i];
  model(batch.input, {.generator = &generator});
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i]->observation = nullptr;
    labels.push_back(seen[i].choices.labels);
  }
  return labels;
}

std::vector<Pairs> cluster_pairs(Model& model, const Batch& batch) {
  const auto labels = cluster_labels(model, batch);
  if (!labels[0].defined()) return {};
  const std::vector<float> shades = mean(Variable(batch.input), {2}).value().to_vector<float>();
  const int64_t heads = labels[0].size(1), n = labels[0].size(2);
  std::vector<Pairs> pairs(labels.size());
  for (size_t layer = 0; layer < labels.size(); ++layer)
    for (int64_t i = 0; i < labels[layer].size(0) * heads; ++i)
      pairs[layer].add(labels[layer].data<int32_t>() + i * n, shades.data() + i / heads * n, model.across);
  return pairs;
}

}  // namespace cairn::pixels

#include "apps/pixels/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "apps/common/variants.h"
#include "core/ops.h"
#include "nn/io/hash.h"
#include "nn/io/json.h"

namespace cairn::pixels {

// The items of an IDX file: big-endian numbers (its axes, their sizes), and then bytes.
static std::string read_idx(const std::string& folder, const std::string& name, const std::string& sizes, size_t item) {
  const std::filesystem::path file = std::filesystem::path(folder) / name;
  check<DataError>(is_there(file), "--data: there is no ", file, "; on Debian: apt-get install dataset-fashion-mnist ",
                   "&& cp -r /usr/share/datasets/fashion-mnist . && gunzip fashion-mnist/*");
  const std::string bytes = read_file(file);
  const size_t header = 8 + sizes.size(), count = (std::max(bytes.size(), header) - header) / item;
  std::string expected = {0, 0, 8, char(1 + sizes.size() / 4)};
  for (int shift = 24; shift >= 0; shift -= 8) expected += char(count >> shift);
  check<DataError>(count > 0 && bytes.starts_with(expected + sizes) && bytes.size() == header + count * item, file,
                   ": ", bytes.size(), " bytes would be ", count, " items, but the header is not that of an IDX file ",
                   "of ", count, " times ", item, " bytes; unpack it again");
  return bytes.substr(header);
}

Images::Images(const std::string& folder, const std::string& part, int64_t patch) {
  check<UsageError>(side % patch == 0, "--patch ", patch, ": expected 1, 2, 4, 7, 14 or 28, which divide 28");
  const std::string pixels = read_idx(folder, part + "-images-idx3-ubyte", {"\0\0\0\x1c\0\0\0\x1c", 8}, side * side);
  const std::string classes = read_idx(folder, part + "-labels-idx1-ubyte", "", 1);
  const auto n = int64_t(classes.size()), across = side / patch, area = patch * patch;
  const bool known = std::all_of(classes.begin(), classes.end(), [](unsigned char of) { return of < 10; });
  check<DataError>(known && pixels.size() == size_t(n * side * side), "--data ", folder, ": ", part, " has ",
                   pixels.size() / (side * side), " images, expected as many classes from 0 to 9");
  input = Tensor({n, across * across, area});
  auto* const shades = input.mutable_data<float>();
  for (int64_t i = 0; i < n * side * side; ++i) {  // by image, patch, and row in it
    const int64_t of = i / area % (across * across), y = of / across * patch + i % area / patch;
    const int64_t x = of % across * patch + i % patch, at = i / (side * side) * side * side + y * side + x;
    shades[i] = float(uint8_t(pixels[size_t(at)])) / 127.5F - 1;
  }
  hash = xxh128(pixels + classes);
  target = Tensor::from(std::vector<int32_t>(classes.begin(), classes.end()), {n});
}

void Settings::fields(SettingFields& f) {
  f("data", data, Text::folder, "the folder with the four files of Fashion-MNIST (or MNIST), unpacked",
    Keep::may_change);
  f("attention", model.attention, one_variant, "attention variant (listed below)");
  f("patch", patch, {1, side}, "a position is a patch of so many pixels in each direction: 1, 2, 4, 7, 14 or 28");
  f("batch", batch, {1, 10000}, "images per step");
  model_fields(f, model);
  training.fields(f);
  f("quick", quick, "a training of five minutes; changes these defaults");
  compute.fields(f);
  f.quick({{"iterations", 8000}});
}

Model::Model(const Settings& settings, Generator& generator)
    : input(settings.patch * settings.patch, settings.model.features(), generator),
      place(side * side / (settings.patch * settings.patch), settings.model.features(), generator),
      encoder(settings.model, generator),
      output(settings.model.features(), class_names.size(), generator) {}

Variable Model::operator()(const Tensor& patches, const Context& given) const {
  const Device device = place.weight.device();
  const Variable x = input(Variable(patches.to(device))) + place(arange(patches.size(1), device)) * 0.3;
  return output(mean(cast(encoder(cast(x, activations), {}, given), DType::float32), {1}));
}

Json measure(const Model& model, const Images& images, int64_t count, bool may_stop) {
  const NoGrad no_grad;
  double right = 0, nats = 0;
  for (int64_t begin = 0, end; begin < count; begin = end) {
    if (may_stop && interrupted()) throw Interrupted();
    end = std::min(count, begin + 100);
    const Generator generator{uint64_t(begin)};
    const Tensor target = images.target.slice(begin, end);
    const Tensor logits = model(images.input.slice(begin, end), {.generator = &generator}).value().to(Device::cpu);
    for (const bool is : compare(Compare::equal, argmax(logits), target).to_vector<bool>()) right += is;
    nats += cross_entropy(Variable(logits), target).value().item() * double(end - begin);
  }
  return {{"accuracy", right / double(count)}, {"loss", finite_or_null(nats / double(count))}};
}

std::array<double, 3> cluster_shares(const Tensor& labels, const Tensor& shades) {
  const int64_t heads = labels.size(1), n = labels.size(2), across = std::lround(std::sqrt(n));
  std::array<double, 3> all{}, together{};
  for (int64_t head = 0; head < labels.size(0) * heads; ++head) {
    const int32_t* const label = labels.data<int32_t>() + head * n;
    const float* const shade = shades.data<float>() + head / heads * n;
    for (int64_t j = 1; j < n; ++j)
      for (int64_t i = 0; i < j; ++i) {
        const int64_t apart = std::max(j / across - i / across, std::abs(j % across - i % across));
        const bool is_near = apart <= std::max<int64_t>(1, 2 * across / side);
        const bool is_same = std::abs(shade[i] - shade[j]) < 16 / 127.5F;
        const bool has[] = {true, is_near && !is_same, is_same && !is_near && std::min(shade[i], shade[j]) > -1};
        for (size_t kind = 0; kind < all.size(); ++kind) {
          all[kind] += has[kind];
          together[kind] += has[kind] && label[i] == label[j];
        }
      }
  }
  for (size_t kind = 0; kind < all.size(); ++kind) together[kind] /= all[kind];
  return together;
}

}  // namespace cairn::pixels

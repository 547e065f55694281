// The report of a training: its curve, and the clusters of the model's positions.
#include <algorithm>
#include <cmath>

#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "apps/pixels/model.h"
#include "nn/io/json.h"

namespace cairn::pixels {

using svg::number;

static void write_clusters(Report& page, RunFolder& run, const Images& test, const Settings& settings, Model& model) {
  const int64_t n = test.input.size(1), heads = settings.model.heads, across = side / settings.patch;
  const int64_t images = std::clamp<int64_t>((1 << 25) / (heads * n * n), 1, std::min<int64_t>(64, test.size()));
  const Tensor patches = test.input.slice(0, images), shades = mean(Variable(patches), {2}).value();
  const Generator generator(1);
  const auto layers = observe(model.encoder.attentions(), [&] { model(patches, {.generator = &generator}); });
  if (!layers[0].choices.labels.defined()) return;
  page.section("Do clusters follow place or shade?");
  page.text(
      "The table shows how many pairs of positions of an image share a cluster, over all heads and many test images. "
      "Any pair: by chance. Near: at most two pixels (or one position) apart in each direction, of different shades. "
      "Same shade: not near, less than 16 of 256 levels apart, not black.");
  Report::Rows rows;
  std::vector<svg::Picture> pictures;
  const auto add = [&](const std::string& caption, int64_t categories, const auto* values) {
    svg::Heatmap map(across, across);
    map.title = caption;
    for (int level = 1; level < svg::ramp; ++level) map.edges.push_back(2.0 * level / svg::ramp - 1);
    map.categories = categories;
    map.values.assign(values, values + n);
    pictures.push_back({svg::draw(map), caption});
  };
  for (const Observation& layer : layers) {
    const auto [any, near, same] = cluster_shares(layer.choices.labels, shades);
    rows.push_back({concat("Layer ", rows.size() + 1), number(any, true), number(near, true), number(same, true),
                    number(near / any), number(same / any), same > near ? "shade" : "place"});
  }
  page.table({"", "any pair", "near", "same shade", "near / any", "same shade / any", "clusters follow"}, rows);
  page.text(
      "Test images, and below them their positions in the colors of their clusters, in the first head of each layer:");
  for (size_t layer = 0; layer <= layers.size(); ++layer)  // 0: the images
    for (int64_t image = 0; image < std::min<int64_t>(images, 13); image += 4)
      if (layer == 0)
        add(class_names[size_t(test.target.data<int32_t>()[image])], 0, shades.data<float>() + image * n);
      else
        add(rows[layer - 1][0], n, layers[layer - 1].choices.labels.data<int32_t>() + image * heads * n);
  page.figures(pictures, 4);
  run.write("clusters.svg",
            svg::sheet("Images, and their positions in the colors of their clusters", "", pictures, 4, 170, 196));
}

void write_report(RunFolder& run, const TrainState& state, const Json& result, const Settings& settings,
                  const Images& test, Model& model) {
  const NoGrad no_grad;
  place(model, {Device::cpu, DType::float32});
  const Json& found = result.is_null() ? state.metrics : result;
  Report page(concat("Images with ", settings.model.attention, " attention"),
              concat("A transformer learned what images of ", side, " x ", side, " pixels show. It sees ",
                     test.input.size(1), " positions of ", settings.patch, " x ", settings.patch, " pixels."));
  page.summary({{"Right", number(found.is_null() ? NAN : double(found.at("accuracy")), true), "of test images"},
                {"Training", clock_time(state.seconds), count(state.step, "step")},
                {"Parameters", number(double(parameter_count(model))), concat("seed ", settings.compute.seed)}});
  if (result.is_null()) page.text(concat("The run was interrupted after ", count(state.step, "step"), "."));
  svg::LineChart curve;
  curve.title = curve.description = "Right answers to the first 1000 test images.";
  curve.y = {.label = "right answers", .high = 1, .percent = true};
  curve.series = {evaluation_curve(run, "accuracy", "test")};
  write_curves(page, run, state.step, "loss (nats per image)", curve);
  write_clusters(page, run, test, settings, model);
  write_page(page, run);
}

}  // namespace cairn::pixels

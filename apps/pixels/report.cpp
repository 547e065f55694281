// The report of a training: its curve, its answers, and the clusters of its positions.
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "apps/pixels/model.h"
#include "nn/io/json.h"

namespace cairn::pixels {

using Json = nlohmann::ordered_json;
using svg::number;

// The test image as it is.
static std::string draw_image(const Images& images, int64_t image, const std::string& title) {
  svg::Heatmap map(side, side);
  map.title = title;
  for (int i = 1; i < svg::ramp; ++i) map.edges.push_back(256.0 / svg::ramp * i);
  for (int64_t i = 0; i < side * side; ++i)
    map.values[size_t(i)] = float(uint8_t(images.pixels[size_t(image * side * side + i)]));
  return svg::draw(map);
}

// Each position in the color of its cluster: hues that are the golden angle apart.
static std::string draw_clusters(const int32_t* labels, int64_t across, const std::string& title) {
  std::vector<std::string> paths;
  for (int64_t i = 0; i < across * across; ++i) {
    if (size_t(labels[i]) >= paths.size()) paths.resize(size_t(labels[i]) + 1);
    paths[size_t(labels[i])] += concat('M', i % across, ' ', i / across, "h1");
  }
  std::string all;
  for (size_t label = 0; label < paths.size(); ++label)
    if (!paths[label].empty())
      all += formatted("<path class=\"cells\" style=\"stroke:hsl(%.0f 65%% %d%%)\" d=\"", 137.5 * double(label),
                       40 + 15 * int(label % 3)) +
             paths[label] + "\"/>";
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"picture\" role=\"img\" viewBox=\"0 -0.5 ", across,
                ' ', across, "\" style=\"max-width:320px\"><title>", svg::escape(title), "</title>", all, "</svg>\n");
}

static void write_answers(Report& page, const Images& test, const Answers& found) {
  const size_t classes = class_names.size();
  std::vector<std::vector<int64_t>> counts(classes, std::vector<int64_t>(classes));
  for (size_t i = 0; i < found.chosen.size(); ++i) ++counts[size_t(test.classes[i])][size_t(found.chosen[i])];
  page.section("What it takes for what");
  page.text("A row has the test images of a class, and a column how often the model gave each answer.");
  std::vector<std::string> head{""};
  Report::Rows rows;
  for (size_t of = 0; of < classes; ++of) {
    head.push_back(class_names[of]);
    rows.push_back({class_names[of]});
    for (const int64_t count : counts[of]) rows.back().push_back(count > 0 ? number(double(count)) : "");
  }
  page.table(head, rows);
}

// What a layer's clusters follow, from how many times as often as any pair such pairs share a cluster.
static std::string answer(double near, double shade) {
  constexpr double clear = 1.5;
  return near < clear && shade < clear ? "neither"
         : near > clear * shade        ? "place"
         : shade > clear * near        ? "shade"
                                       : "both";
}

static void write_clusters(Report& page, RunFolder& run, const Images& test, Model& model) {
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < std::min<int64_t>(test.size(), 64); ++i) chosen.push_back(i);
  const Batch batch(test, chosen, model.patch, Device::cpu);
  const auto pairs = cluster_pairs(model, batch);
  if (pairs.empty()) return;
  page.section("Do clusters follow place or shade?");
  page.text(concat(
      "For pairs of positions of an image, the table shows how many are in the same cluster: over all heads and the "
      "first ",
      chosen.size(),
      " test images. Any pair is chance. Near: at most two pixels (or one position) apart in each "
      "direction, of different shades. Same shade: not near, less than 16 of 256 levels apart, not black. Both black: "
      "not near."));
  Report::Rows rows;
  for (const Pairs& layer : pairs) {
    rows.push_back({concat("Layer ", rows.size() + 1)});
    for (const PairKind kind : {any, near, same_shade, both_black})
      rows.back().push_back(number(layer.share(kind), true));
    rows.back().push_back(answer(layer.share(near) / layer.share(any), layer.share(same_shade) / layer.share(any)));
  }
  page.table({"", "any pair", "near", "same shade", "both black", "clusters follow"}, rows);
  page.text("Below, each position has the color of its cluster, in the first head of each layer.");

  const auto labels = cluster_labels(model, batch);
  const int64_t stride = labels[0].size(1) * labels[0].size(2);
  std::vector<svg::Picture> all;
  std::string shown;
  for (const int64_t image : chosen) {
    const char of = test.classes[size_t(image)];
    if (shown.size() == 4 || shown.find(of) != std::string::npos) continue;
    shown += of;
    const std::string name = class_names[size_t(of)];
    std::vector<svg::Picture> pictures{{draw_image(test, image, name), name}};
    for (size_t layer = 0; layer < labels.size(); ++layer) {
      const std::string caption = concat("layer ", layer + 1);
      pictures.push_back({draw_clusters(labels[layer].data<int32_t>() + image * stride, model.across,
                                        concat(name, ": clusters of ", caption)),
                          caption});
    }
    page.figures(pictures, 4);
    all.insert(all.end(), pictures.begin(), pictures.end());
  }
  run.write("clusters.svg",
            svg::sheet("Images and the clusters of their positions", "", all, int(labels.size()) + 1, 190, 212));
}

void write_report(RunFolder& run, const TrainState& state, const Json& result, const Settings& settings,
                  const Images& test, Model& model) {
  place(model, {Device::cpu, DType::float32});
  const Answers found = answers_to(model, test, 1, false);
  const std::string accuracy = number(found.accuracy, true);
  Report page(concat("Images, ", model.patch, " x ", model.patch, " pixels a position, with ", settings.model.attention,
                     " attention"),
              concat("A transformer learned what images of clothes show. Each image has ", model.across * model.across,
                     " positions."));
  page.summary({{"Right", accuracy, concat("of ", number(double(test.size())), " test images")},
                {"Loss", number(found.loss), "nats per image"},
                {"Training", clock_time(state.seconds), count(state.step, "step")},
                {"Parameters", number(double(parameter_count(model))), concat("seed ", settings.compute.seed)}});
  if (result.is_null()) page.text(concat("The run was interrupted after ", count(state.step, "step"), "."));
  svg::LineChart curve;
  curve.title = "Right answers on test images";
  curve.description = "Share of right answers on every tenth test image.";
  curve.y = {.label = "right answers", .high = 1, .percent = true};
  curve.series = {evaluation_curve(run, "accuracy", "test")};
  write_curves(page, run, state.step, "loss (nats per image)", curve);
  write_answers(page, test, found);
  write_clusters(page, run, test, model);
  write_origin(page, run);
  run.write("report.html", page.html());
}

}  // namespace cairn::pixels

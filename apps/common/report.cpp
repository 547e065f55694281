#include "apps/common/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/common/program.h"
#include "apps/common/training.h"
#include "nn/io/json.h"

namespace cairn {

namespace {

constexpr const char* page_style = R"(*{box-sizing:border-box}
body{margin:0;background:var(--surface);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:40px 32px 64px}
h1{font-size:30px;line-height:1.2;margin:0 0 8px;letter-spacing:-.01em}h2{font-size:22px;line-height:1.25;margin:56px 0 8px;padding-top:20px;border-top:1px solid var(--line)}
p{margin:8px 0;max-width:72ch}.lead{font-size:18px;color:var(--soft)}
.summary{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:24px 0 0}
.summary div{background:var(--panel);border-radius:8px;padding:14px 16px}.summary dt{font-size:13px;color:var(--soft)}
.summary dd{margin:0;font-size:26px;line-height:1.3;font-weight:600;font-variant-numeric:tabular-nums}.summary dd+dd{font-size:13px;font-weight:400;color:var(--soft);line-height:1.4}
.grid{display:grid;gap:24px 28px;margin:20px 0;align-items:start}.grid2{grid-template-columns:1fr 1fr}.grid4{grid-template-columns:repeat(4,1fr);gap:20px 24px}
figure{margin:0;min-width:0}figure>div{overflow-x:auto;padding:1px}figcaption{font-size:14px;line-height:1.45;color:var(--soft);margin-top:8px;max-width:76ch}
table{border-collapse:collapse;width:100%;font-size:14px;margin:12px 0}td,th{text-align:left;vertical-align:top;padding:5px 16px;border-top:1px solid var(--line);font-weight:400}
th{color:var(--soft)}.table{overflow-x:auto}td{font-variant-numeric:tabular-nums}
@media(max-width:760px){main{padding:24px 16px 48px}.grid2{grid-template-columns:minmax(0,1fr)}.grid4{grid-template-columns:1fr 1fr;gap:16px 12px}h1{font-size:25px}h2{margin-top:40px}td,th{padding:5px}}
@media print{figure{break-inside:avoid}}
)";

std::string element(const std::string& tag, const std::string& text) {
  return concat("<", tag, ">", svg::escape(text), "</", tag.substr(0, tag.find(' ')), ">\n");
}

}  // namespace

Report::Report(const std::string& title, const std::string& lead)
    : title_(title), body_(element("h1", title) + element("p class=\"lead\"", lead)) {}

void Report::summary(const std::vector<KeyFigure>& figures) {
  body_ += "<dl class=\"summary\">\n";
  for (const KeyFigure& figure : figures)
    body_ +=
        "<div>" + element("dt", figure.label) + element("dd", figure.value) + element("dd", figure.note) + "</div>\n";
  body_ += "</dl>\n";
}

void Report::section(const std::string& title) { body_ += element("h2", title); }
void Report::text(const std::string& paragraph) { body_ += element("p", paragraph); }

void Report::figures(const std::vector<svg::Picture>& pictures, int columns) {
  body_ += concat("<div class=\"grid grid", columns, "\">\n");
  for (const svg::Picture& picture : pictures) {
    body_ += concat("<figure><div>", picture.svg, "</div>");
    if (!picture.caption.empty()) body_ += element("figcaption", picture.caption);
    body_ += "</figure>\n";
  }
  body_ += "</div>\n";
}

void Report::table(const std::vector<std::string>& names, const Rows& rows) {
  body_ += "<div class=\"table\"><table><thead><tr>";
  for (const std::string& name : names) body_ += element("th scope=\"col\"", name);
  body_ += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    body_ += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) body_ += element(i == 0 ? "th scope=\"row\"" : "td", row[i]);
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
}

std::string Report::html() const {
  return concat(
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n",
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n", element("title", title_),
      "<style>\n", svg::style(), page_style, "</style>\n</head>\n<body>\n<main>\n", body_,
      "</main>\n</body>\n</html>\n");
}

std::string count(int64_t n, const std::string& what) {
  return concat(svg::number(double(n)), " ", what, n == 1 ? "" : "s");
}

Report::Rows rows_of(const Json& object) {
  Report::Rows result;
  for (const auto& [key, value] : object.items())
    result.push_back({key, value.is_string() ? value.get<std::string>() : value.dump()});
  return result;
}

namespace {

// A number in the lines of metrics.jsonl over the steps.
svg::Series curve_of(const RunFolder& run, const std::string& pointer) try {
  svg::Series curve;
  const Json::json_pointer at(pointer);
  for (const Json& line : run.lines()) {
    if (!line.contains(at)) continue;
    curve.x.push_back(line.at("step"));
    curve.y.push_back(number_or_nan(line.at(at)));
  }
  return curve;
} catch (const Json::exception&) {
  throw DataError(concat(run / "metrics.jsonl", ": not the metrics of a run of ", program()));
}

// A curve of fewer points: the mean of every `points` consecutive ones, at the last of them.
svg::Series means(const svg::Series& all, size_t points) {
  svg::Series result;
  for (size_t begin = 0; begin < all.x.size(); begin += points) {
    const size_t end = std::min(all.x.size(), begin + points);
    const double sum = std::accumulate(all.y.begin() + long(begin), all.y.begin() + long(end), 0.0);
    result.x.push_back(all.x[end - 1]);
    result.y.push_back(sum / double(end - begin));
  }
  return result;
}

}  // namespace

svg::Series evaluation_curve(const RunFolder& run, const std::string& metric, const std::string& name, int color) {
  svg::Series curve = curve_of(run, "/evaluation/" + metric);
  curve.name = name;
  curve.color = color;
  curve.dots = true;
  return curve;
}

void write_curves(Report& page, const RunFolder& run, int64_t steps, const std::string& unit,
                  svg::LineChart evaluations) {
  page.section("Learning");
  const svg::Series losses = curve_of(run, "/loss");
  const size_t points = (losses.x.size() + 299) / 300;
  svg::LineChart loss;
  loss.title = "Training loss";
  loss.description =
      concat("Training loss on a log scale. Each point is a mean over ", count(int64_t(points), "step"), ".");
  loss.y.label = unit;
  loss.y.log = true;
  loss.series = {means(losses, points)};
  loss.bands = evaluations.bands;
  std::vector<svg::Picture> pictures;
  for (svg::LineChart* chart : {&loss, &evaluations}) {
    chart->x.label = "training step";
    chart->x.low = 0;
    if (steps > 0) chart->x.high = double(steps);
    if (chart == &loss || !chart->series[0].x.empty()) pictures.push_back({svg::draw(*chart), chart->description});
  }
  page.figures(pictures, 2);
}

std::vector<Observation> observe_sequence(const std::vector<MultiHeadAttention*>& layers, int64_t n,
                                          const std::function<void()>& forward) {
  // A layer keeps about four arrays of this many elements.
  const double elements = std::pow(double(n), 2) * double(layers[0]->heads);
  if (elements <= double(1 << 25)) return observe(layers, forward);
  forward();
  return {};
}

std::vector<std::vector<double>> weight_shares(const std::vector<Observation>& layers, int64_t queries,
                                               const std::function<bool(int64_t, int64_t)>& of_interest) {
  std::vector<std::vector<double>> shares;
  for (const Observation& seen : layers) {
    shares.emplace_back();
    const int64_t n = seen.weights.size(2);
    for (int64_t head = 0; head < seen.weights.size(1); ++head) {
      const float* const weights = seen.weights.data<float>() + head * n * n;
      double sum = 0;
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j)
          if (of_interest(i, j)) sum += double(weights[i * n + j]);
      shares.back().push_back(sum / double(queries));
    }
  }
  return shares;
}

void write_attention_maps(Report& page, const std::string& attention, const std::vector<Observation>& layers,
                          const std::vector<std::vector<double>>& shares, const std::string& share,
                          const std::string& reading) {
  const std::vector<double> edges = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8};  // weights are rarely large
  const int64_t pooled = svg::pooling(layers[0].weights.size(2));
  const std::string cells = concat(" Each cell shows the largest of ", pooled, " x ", pooled, " weights.");
  svg::Cells legend{"attention weight", "", {{"attention weight, at least", {}}}, 46};
  for (const double edge : edges) legend.rows[0].cells.push_back({svg::number(edge, true), svg::level(edge, edges)});
  page.figure({svg::draw(legend), concat(reading, pooled > 1 ? cells : "",
                                         " Colors at the left are the clusters of the queries, if there are any.")});
  std::vector<svg::Picture> maps;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const Observation& seen = layers[layer];
    const auto most = std::max_element(shares[layer].begin(), shares[layer].end());
    const int64_t head = most - shares[layer].begin(), n = seen.weights.size(2);
    const Tensor labels = seen.choices.labels;
    const auto add = [&](const std::string& caption, const Tensor& weights) {
      svg::Heatmap map(n, n);
      map.edges = edges;
      map.title = concat("Layer ", layer + 1, ", head ", head + 1, ": ", caption);
      for (int64_t i = 0; i < n; ++i) map.add(i, weights.data<float>() + (head * n + i) * n, n);
      for (int64_t i = 0; labels.defined() && i < n; i += map.row_step)
        map.row_colors.push_back(labels.data<int32_t>()[head * n + i]);
      maps.push_back({svg::draw(map), map.title});
    };
    add(concat(attention, ". ", share, ": ", svg::number(*most, true)), seen.weights);
    if (attention != "full") add("full attention", seen.full);
  }
  page.figures(maps, 4);
}

void write_page(Report& page, RunFolder& run) {
  page.section("How this run was made");
  page.table({"Configuration", ""}, rows_of(RunFolder::config("--out", run.folder())));
  if (const auto saved = newest_checkpoint(run.folder()))
    page.table({"Provenance", ""}, rows_of(saved->about->at("provenance")));
  run.write("report.html", page.html());
}

}  // namespace cairn

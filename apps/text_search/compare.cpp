#include "apps/text_search/compare.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/svg.h"
#include "apps/text_search/passages.h"
#include "nn/io/file.h"
#include "nn/io/hash.h"

namespace cairn::text_search {
namespace {

constexpr int64_t neighbors = 10;

// A path below the root that it was found under; of a root that is a file, its name.
std::string below(const std::vector<std::filesystem::path>& roots, const std::filesystem::path& file) {
  for (const auto& root : roots)
    if (const auto relative = file.lexically_relative(root); !relative.empty() && *relative.begin() != "..")
      return relative == "." ? file.filename().string() : relative.string();
  return file.string();
}

std::string without_refine(const std::string& spec) {
  const size_t begin = spec.find("refine=");
  if (begin == std::string::npos) return spec;
  const size_t end = spec.find(',', begin);
  return end == std::string::npos ? spec.substr(0, begin - 1) : spec.substr(0, begin) + spec.substr(end + 1);
}

svg::LineChart chart(const LengthResult& length) {
  svg::LineChart chart;
  chart.title = concat(length.length, " tokens");
  chart.description = "Error against time, a line for each variant.";
  chart.x.label = "microseconds a token";
  chart.y.label = "1 - mean cosine", chart.y.log = true;
  for (size_t v = 1; v < length.variants.size(); ++v) {
    const VariantResult& variant = length.variants[v];
    const std::string name = without_refine(variant.spec);
    auto series = std::find_if(chart.series.begin(), chart.series.end(), [&](const auto& s) { return s.name == name; });
    if (series == chart.series.end()) {
      const int color = int(chart.series.size());
      series = chart.series.insert(series, {name, {}, {}, color, false, true});
    }
    series->x.push_back(variant.seconds_per_token * 1e6);
    series->y.push_back(1 - variant.cosine.mean);
  }
  return chart;
}

}  // namespace

Sequences cut_sequences(const WalkOptions& options, const WordPiece& tokenizer, int64_t length, int64_t maximum,
                        Corpus& corpus) {
  corpus = {};
  Xxh128 hash;
  Sequences kept;
  int64_t number = 0, stride = 1;
  SkippedCounts skipped{};
  walk(options, skipped, [&](const FoundFile& file) {
    if (interrupted()) throw Interrupted();
    std::string text;
    try {
      text = read_file(file.path);
    } catch (const DataError&) {  // it cannot be read
      return;
    }
    if (is_binary(text)) return;
    ++corpus.files, corpus.bytes += int64_t(text.size());
    const std::string line = concat(xxh128(text), "  ", below(options.roots, file.path), "\n");
    hash.add(line.data(), line.size());
    const auto tokens = tokenizer.tokenize(text);
    const auto step = size_t(length - 2);
    for (size_t begin = 0; begin + step <= tokens.size(); begin += step, ++number) {
      if (number % stride != 0) continue;
      std::vector<int32_t> sequence{tokenizer.cls()};
      for (size_t i = begin; i < begin + step; ++i) sequence.push_back(tokens[i].id);
      sequence.push_back(tokenizer.sep());
      kept.push_back(std::move(sequence));
      if (int64_t(kept.size()) < 2 * maximum) continue;
      // Every second one.
      for (size_t i = 1; i < kept.size() / 2; ++i) kept[i] = std::move(kept[2 * i]);
      kept.resize(kept.size() / 2);
      stride *= 2;
    }
  });
  corpus.hash = hash.text();
  const auto found = int64_t(kept.size()), n = std::min(found, maximum);
  check<UsageError>(n >= 2, "only ", found, " sequences of ", length, " tokens in ", corpus.files,
                    " files; expected at least 2: give more text, or smaller --lengths");
  for (int64_t i = 0; i < n; ++i) kept[size_t(i)] = kept[size_t(i * found / n)];
  kept.resize(size_t(n));
  return kept;
}

LengthResult compare(int64_t length, const std::vector<std::string>& specs, const Measured& measured) {
  const Tensor& full = measured.embeddings[0];
  LengthResult result{length, full.size(0), {}};
  const auto nearest = nearest_rows(full, full, neighbors, true);
  for (size_t v = 0; v < specs.size(); ++v) {
    const Tensor& mine = measured.embeddings[v];
    result.variants.push_back({specs[v], cosines(mine, full),
                               neighbors_kept(nearest_rows(mine, mine, neighbors, true), nearest),
                               measured.seconds_per_token[v]});
  }
  return result;
}

std::string comparison_text(const Comparison& comparison) {
  const Corpus& corpus = comparison.corpus;
  std::string text =
      concat("Text: ", corpus.files, " files, ", corpus.bytes, " bytes, xxh128 of their list ", corpus.hash, "\n");
  for (const LengthResult& length : comparison.lengths) {
    size_t width = std::string("attention").size();
    for (const VariantResult& v : length.variants) width = std::max(width, v.spec.size());
    text += concat("\n", length.sequences, " sequences of ", length.length, " tokens\n");
    text += formatted("%-*s %11s %8s %14s %11s %6s\n", int(width), "attention", "mean cosine", "least",
                      "neighbors kept", "us a token", "full/");
    const double full = length.variants[0].seconds_per_token;
    for (const VariantResult& v : length.variants)
      text += formatted("%-*s %11.4f %8.4f %14.3f %11.1f %6.2f\n", int(width), v.spec.c_str(), v.cosine.mean,
                        v.cosine.least, v.neighbors_kept, v.seconds_per_token * 1e6, full / v.seconds_per_token);
  }
  return text +
         "\nCosine: with the embedding by full attention. Neighbors: ten a sequence. full/: how many times as "
         "fast as full attention.\n";
}

nlohmann::ordered_json comparison_json(const Comparison& comparison) {
  using Json = nlohmann::ordered_json;
  Json lengths = Json::array();
  for (const LengthResult& length : comparison.lengths) {
    Json variants = Json::array();
    for (const VariantResult& v : length.variants)
      variants.push_back({{"attention", v.spec},
                          {"mean_cosine", finite_or_null(v.cosine.mean)},
                          {"least_cosine", finite_or_null(v.cosine.least)},
                          {"neighbors_kept", finite_or_null(v.neighbors_kept)},
                          {"seconds_per_token", v.seconds_per_token}});
    lengths.push_back({{"length", length.length}, {"sequences", length.sequences}, {"variants", variants}});
  }
  return {{"model", comparison.model},
          {"device", comparison.device},
          {"batch", comparison.batch},
          {"threads", comparison.threads},
          {"files", comparison.corpus.files},
          {"bytes", comparison.corpus.bytes},
          {"files_hash", comparison.corpus.hash},
          {"lengths", lengths}};
}

std::string comparison_picture(const Comparison& comparison) {
  std::vector<svg::Tile> tiles;
  for (const LengthResult& length : comparison.lengths)
    tiles.push_back({svg::draw(chart(length)), concat(length.length, " tokens"),
                     concat("Full attention takes ", svg::number(length.variants[0].seconds_per_token * 1e6), " us.")});
  return svg::sheet("Embeddings by other attention: error against time",
                    "A line joins what differs in refine alone. Error: from the embeddings by full attention.", tiles,
                    int(std::min<size_t>(2, tiles.size())), 520, 390);
}

}  // namespace cairn::text_search

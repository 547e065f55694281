#include "apps/text_search/index.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string_view>

#include "apps/text_search/files.h"
#include "core/error.h"
#include "core/tensor.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

bool has_unit_length(const Tensor& row) {
  double square = 0;
  for (int64_t i = 0; i < row.elements(); ++i) square += double(row.data<float>()[i]) * double(row.data<float>()[i]);
  return std::abs(square - 1) < 1e-2;
}

// Members of a JSON object. Error (Json::exception): the key is missing, or the value has another type.
const std::string& text_of(const Json& object, const char* key) { return object.at(key).get_ref<const std::string&>(); }
int64_t number_of(const Json& object, const char* key) { return int64_t(object.at(key).get_ref<const uint64_t&>()); }

}  // namespace

Index parse_index(const TensorReader& file) try {
  const auto expect = [&](bool condition, const auto&... what) {
    check<DataError>(condition, file.where, ": damaged: ", what...);
  };
  const auto metadata = file.metadata.find("index");
  check<DataError>(metadata != file.metadata.end(), file.where, ": not an index");
  const Json settings = parse_json(metadata->second, file.where + ": metadata");
  Index index;
  index.fingerprint = text_of(settings, "fingerprint");
  index.attention = text_of(settings, "attention");
  index.seed = number_of(settings, "seed");
  index.model = text_of(settings, "model");
  index.complete = text_of(settings, "complete") == "yes";
  const TensorReader::Entry &embeddings = file.at("embeddings"), &passages = file.at("passages");
  expect(embeddings.dtype == DType::float32 && embeddings.shape.rank() == 2 && embeddings.shape[1] > 0,
         "embeddings: expected float32 [n, features]");
  expect(passages.dtype == DType::uint8 && passages.shape.rank() == 1, "passages: expected uint8 [bytes]");
  Tensor text = file.read("passages");
  std::string_view left(static_cast<const char*>(text.raw()), text.bytes());
  for (std::string_view line; !left.empty(); left.remove_prefix(std::min(line.size() + 1, left.size()))) {
    line = left.substr(0, left.find('\n'));
    const Json passage = parse_json(line, concat(file.where, ": passage ", index.records.size() + 1));
    index.records.push_back({text_of(passage, "path"), number_of(passage, "line"), number_of(passage, "last_line"),
                             text_of(passage, "text"), Tensor()});
  }
  text = {};
  const int64_t n = embeddings.shape[0], found = int64_t(index.records.size());
  expect(n == found, "expected one embedding per passage, got ", n, " for ", found);
  const Tensor rows = file.read("embeddings");
  for (int64_t i = 0; i < n; ++i) {
    index.records[size_t(i)].row = rows.slice(i, i + 1);
    expect(has_unit_length(index.records[size_t(i)].row), "row ", i + 1, " does not have length 1");
  }
  return index;
} catch (const Json::exception&) {
  throw DataError(concat(file.where, ": damaged: its metadata lacks a key, or has a value of another type"));
}

Index read_index(const std::filesystem::path& file) { return parse_index(TensorReader(file)); }

void write_index(const std::filesystem::path& file, const Index& index) {
  std::string lines;
  std::vector<float> rows;
  int64_t n = 0, features = 1;
  for (const Record& record : index.records) {
    if (!record.row.defined()) continue;
    const Json json = {
        {"path", record.path}, {"line", record.line}, {"last_line", record.last_line}, {"text", record.text}};
    lines += json.dump() + "\n";
    features = record.row.elements();
    rows.insert(rows.end(), record.row.data<float>(), record.row.data<float>() + features);
    ++n;
  }
  const Json settings = {{"fingerprint", index.fingerprint},
                         {"attention", index.attention},
                         {"seed", index.seed},
                         {"model", index.model},
                         {"complete", index.complete ? "yes" : "no"}};
  const std::vector<uint8_t> bytes(lines.begin(), lines.end());
  write_safetensors(file, {{{"embeddings", Tensor::from(rows, {n, features})},
                            {"passages", Tensor::from(bytes, {int64_t(bytes.size())})}},
                           {{"index", settings.dump()}},
                           {}});
}

std::vector<Hit> search(const Index& index, const std::vector<float>& query, int64_t top) {
  std::vector<Hit> all;
  for (const Record& record : index.records)
    all.push_back({std::inner_product(query.begin(), query.end(), record.row.data<float>(), 0.0), &record});
  std::stable_sort(all.begin(), all.end(), [](const Hit& a, const Hit& b) { return a.score > b.score; });
  std::vector<Hit> hits;
  std::set<std::string_view> texts;
  for (const Hit& hit : all) {
    if (int64_t(hits.size()) == top) break;
    if (texts.insert(hit.record->text).second) hits.push_back(hit);
  }
  return hits;
}

Excerpt excerpt_of(const Record& record, std::string_view query, const WordPiece& tokenizer) {
  const auto tokens_of = [&](std::string_view text) {
    const std::vector<int32_t> tokens = tokenizer.tokenize(text);
    return std::set<int32_t>(tokens.begin(), tokens.end());
  };
  const std::set<int32_t> wanted = tokens_of(query);
  size_t most = 0, begin = 0, best = 0;
  int64_t number = record.line, best_line = record.line;
  for (const std::string& line : lines_of(record.text)) {
    size_t score = 0;
    for (const int32_t token : tokens_of(line))
      if (wanted.contains(token)) score += tokenizer.token(token).size();
    if (score > most) {
      most = score;
      best = begin;
      best_line = number;
    }
    begin += line.size() + 1;
    ++number;
  }
  return {best_line, record.text.substr(best)};
}

}  // namespace cairn::text_search

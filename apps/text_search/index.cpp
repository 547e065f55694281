#include "apps/text_search/index.h"

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <tuple>

#include "apps/text_search/embedder.h"
#include "core/error.h"
#include "core/tensor.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* format_name = "cairn text index 2";

// The members of a JSON object; `where` begins every message.
struct Members {
  const Json& object;
  const std::string& where;

  std::string text(const char* key) const {
    const auto found = object.find(key);
    check<DataError>(found != object.end() && found->is_string(), where, ": expected a string ", key);
    return found->get<std::string>();
  }
  int64_t number(const char* key) const {
    const auto found = object.find(key);
    check<DataError>(found != object.end() && found->is_number_unsigned() && *found <= uint64_t(INT64_MAX), where,
                     ": expected a whole number ", key);
    return found->get<int64_t>();
  }
};

Json parse_object(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  check<DataError>(json.is_object(), where, ": expected an object, got ", json.type_name());
  return json;
}

}  // namespace

bool IndexSettings::agrees_with(const IndexSettings& other) const {
  const auto all = [](const IndexSettings& s) {
    return std::tie(s.fingerprint, s.attention, s.seed, s.passage_tokens);
  };
  return all(*this) == all(other);
}

Index parse_index(const TensorFile& file) {
  const auto expect = [&](bool condition, const auto&... what) {
    check<DataError>(condition, file.where, ": damaged: ", what...);
  };
  const auto metadata = file.metadata.find("index");
  check<DataError>(metadata != file.metadata.end(), file.where, ": not an index");
  const std::string where = file.where + ": metadata";
  const Json json = parse_object(metadata->second, where);
  const Members settings{json, where};
  const std::string format = settings.text("format");
  check<DataError>(format == format_name, file.where, ": an index of another version: format ", in_quotes(format),
                   ", expected \"", format_name, '"');
  Index index;
  index.settings = {settings.text("fingerprint"), settings.text("model"), settings.text("attention"),
                    settings.number("seed"), settings.number("passage_tokens")};
  index.complete = settings.text("complete") == "yes";
  const Tensor &embeddings = file.at("embeddings"), &passages = file.at("passages"), &ends = file.at("ends");
  expect(embeddings.dtype() == DType::float32 && embeddings.rank() == 2 && embeddings.size(1) > 0,
         "embeddings: expected float32 [n, features]");
  expect(passages.dtype() == DType::uint8 && passages.rank() == 1, "passages: expected uint8 [bytes]");
  const int64_t n = embeddings.size(0), features = embeddings.size(1);
  expect(ends.dtype() == DType::int64 && ends.shape() == Shape{n}, "ends: expected int64 [", n, "]");
  const std::string_view lines(static_cast<const char*>(passages.raw()), size_t(passages.size(0)));
  int64_t begin = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t end = ends.data<int64_t>()[i];
    expect(end > begin && end <= int64_t(lines.size()), "passage ", i + 1, " ends at byte ", end);
    const std::string here = concat(file.where, ": passage ", i + 1);
    const Json object = parse_object(lines.substr(size_t(begin), size_t(end - begin)), here);
    const Members record{object, here};
    const float* row = embeddings.data<float>() + i * features;
    expect(has_unit_length(row, features), "row ", i + 1, " does not have the length 1");
    index.records.push_back({record.text("path"),
                             record.number("line"),
                             record.number("last_line"),
                             record.number("begin"),
                             record.number("end"),
                             record.text("text"),
                             {row, row + features}});
    begin = end;
  }
  expect(begin == int64_t(lines.size()), "passages: ", lines.size(), " bytes, expected ", begin);
  return index;
}

Index read_index(const std::filesystem::path& file) {
  std::error_code error;
  check<DataError>(!std::filesystem::exists(file / "passages.jsonl", error), file,
                   ": is an index of an older version, and a folder; text-search index PATH --model DIR --out FILE "
                   "makes a new one");
  return parse_index(read_safetensors(file));
}

void write_index(const std::filesystem::path& file, const Index& index) {
  std::string lines;
  std::vector<int64_t> ends;
  std::vector<float> rows;
  int64_t features = 1;
  for (const Record& record : index.records) {
    if (record.row.empty()) continue;
    const Json json = {{"path", record.path},   {"line", record.line}, {"last_line", record.last_line},
                       {"begin", record.begin}, {"end", record.end},   {"text", record.text}};
    lines += json.dump() + "\n";
    ends.push_back(int64_t(lines.size()));
    rows.insert(rows.end(), record.row.begin(), record.row.end());
    features = int64_t(record.row.size());
  }
  const IndexSettings& settings = index.settings;
  const Json metadata = {{"format", format_name},
                         {"fingerprint", settings.fingerprint},
                         {"model", settings.model},
                         {"attention", settings.attention},
                         {"seed", settings.seed},
                         {"passage_tokens", settings.passage_tokens},
                         {"complete", index.complete ? "yes" : "no"}};
  const auto n = int64_t(ends.size());
  const std::vector<uint8_t> bytes(lines.begin(), lines.end());
  write_safetensors(file, {{{"ends", Tensor::from(ends, {n})},
                            {"embeddings", Tensor::from(rows, {n, features})},
                            {"passages", Tensor::from(bytes, {int64_t(bytes.size())})}},
                           {{"index", metadata.dump()}},
                           {}});
}

}  // namespace cairn::text_search

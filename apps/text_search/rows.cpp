#include "apps/text_search/rows.h"

#include <cstring>
#include <nlohmann/json.hpp>

namespace cairn::text_search {

std::string rows_header(const std::map<std::string, std::string>& metadata, int64_t rows, int64_t features,
                        size_t spare) {
  using Json = nlohmann::ordered_json;
  const auto json = [&](int64_t n) {
    const uint64_t bytes = uint64_t(n) * uint64_t(features) * sizeof(float);
    const Json tensor = {{"dtype", "F32"}, {"shape", {n, features}}, {"data_offsets", {0, bytes}}};
    return Json{{"__metadata__", metadata}, {"embeddings", tensor}}.dump(-1, ' ', false,
                                                                         Json::error_handler_t::replace);
  };
  // 40 bytes more for numbers of rows and of bytes that have all their digits.
  const uint64_t size = (json(0).size() + 40 + spare + 7) / 8 * 8;
  std::string text(sizeof(size), '\0');
  std::memcpy(text.data(), &size, sizeof(size));
  text += json(rows);
  text.resize(sizeof(size) + size, ' ');
  return text;
}

}  // namespace cairn::text_search

#include "apps/text_search/search.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/ops.h"

namespace cairn::text_search {
namespace {

struct Candidate {
  float score;
  int64_t row;

  bool operator<(const Candidate& other) const { return std::tuple(-score, row) < std::tuple(-other.score, other.row); }
};

// The best rows, the best first.
std::vector<Candidate> best_rows(const Index& index, const Tensor& query, size_t count) {
  const int64_t features = index.header().settings.features;
  const int64_t block = std::max<int64_t>(1, (int64_t{1} << 20) / features);
  std::vector<Candidate> best;  // a heap, the worst on top
  for (int64_t first = 0; first < index.size(); first += block) {
    const int64_t rows = std::min(block, index.size() - first);
    Tensor block_rows({rows, features});
    index.read_rows(first, rows, block_rows.mutable_data<float>());
    const Tensor scores = matmul(block_rows, query.reshape({features, 1}));
    const float* score = scores.data<float>();
    for (int64_t i = 0; i < rows; ++i) {
      const Candidate candidate{score[i], first + i};
      if (std::isnan(candidate.score) || (best.size() == count && !(candidate < best.front()))) continue;
      if (best.size() == count) {
        std::pop_heap(best.begin(), best.end());
        best.pop_back();
      }
      best.push_back(candidate);
      std::push_heap(best.begin(), best.end());
    }
  }
  std::sort_heap(best.begin(), best.end());
  return best;
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Does a character of UTF-8 begin here that must not reach a terminal: of C1, or one that changes the direction?
bool is_control(std::string_view text) {
  if (static_cast<unsigned char>(text[0]) < ' ' || text[0] == 127) return true;
  if (text.size() >= 2 && text[0] == '\xC2') return static_cast<unsigned char>(text[1]) < 0xA0;
  if (text.size() < 3 || text[0] != '\xE2') return false;
  const auto second = static_cast<unsigned char>(text[1]), third = static_cast<unsigned char>(text[2]);
  return (second == 0x80 && third >= 0xA8 && third <= 0xAE) || (second == 0x81 && third >= 0xA6 && third <= 0xA9);
}

}  // namespace

std::vector<Hit> search(const Index& index, const Tensor& query, int64_t top) {
  check(query.elements() == index.header().settings.features, "search: expected ", index.header().settings.features,
        " features, got ", query.elements());
  struct Kept {
    int64_t row;
    Hit hit;
  };
  std::vector<Kept> kept;
  // Passages overlap their neighbors alone, so that each one that is kept drops at most two.
  for (const Candidate& candidate : best_rows(index, query, 3 * size_t(top))) {
    if (kept.size() == size_t(top)) break;
    Record record = index.record(candidate.row);
    const bool overlaps = std::any_of(kept.begin(), kept.end(), [&](const Kept& other) {
      const Record& better = other.hit.record;
      return std::abs(other.row - candidate.row) == 1 && better.path == record.path && better.begin < record.end &&
             record.begin < better.end;
    });
    if (!overlaps) kept.push_back({candidate.row, {candidate.score, std::move(record)}});
  }
  std::vector<Hit> hits;
  for (Kept& each : kept) hits.push_back(std::move(each.hit));
  return hits;
}

Excerpt excerpt_of(const Record& record, std::string_view query, const Tokenize& tokenize) {
  std::set<int32_t> wanted;
  for (const WordPiece::Token& token : tokenize(query)) wanted.insert(token.id);
  const std::string_view text = record.text;
  Excerpt best{record.line, record.text};
  size_t most = 0;
  int64_t line = record.line;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1, ++line) {
    end = std::min(text.find('\n', begin), text.size());
    std::set<int32_t> found;
    for (const WordPiece::Token& token : tokenize(text.substr(begin, end - begin)))
      if (wanted.count(token.id)) found.insert(token.id);
    if (found.size() > most) most = found.size(), best = {line, std::string(text.substr(begin))};
  }
  return best;
}

std::string one_line(std::string_view text, size_t columns) {
  std::string line;
  size_t used = 0;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = begin + 1;
    while (end < text.size() && is_continuation(text[end])) ++end;
    const std::string_view character = text.substr(begin, end - begin);
    if (character == " " || is_control(character)) {
      if (!line.empty() && line.back() != ' ') line += ' ', ++used;
    } else {
      line += character;
      used += character.size() < 3 ? 1 : 2;  // at most; those of East Asia are two columns wide
    }
    if (used <= columns) continue;
    while (is_continuation(line.back())) line.pop_back();
    line.pop_back();
    break;
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string shown_path(const std::string& path, const std::filesystem::path& current) {
  const std::string folder = current == "/" ? "/" : current.string() + '/';
  return path.starts_with(folder) ? path.substr(folder.size()) : path;
}

}  // namespace cairn::text_search

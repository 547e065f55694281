#include "apps/text_search/search.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
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

// The first tokens of a text's words, without punctuation and the shortest words.
std::set<int32_t> words_of(std::string_view text, const Tokenize& tokenize) {
  std::set<int32_t> words;
  size_t before = std::string_view::npos;
  for (const WordPiece::Token& token : tokenize(text))
    if (std::exchange(before, token.begin) != token.begin && token.end - token.begin >= 3) words.insert(token.id);
  return words;
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
  // Passages overlap their neighbors alone, so that each one that is kept drops at most two of these. Where many have
  // the same text, more candidates are needed.
  for (size_t count = 3 * size_t(top);; count *= 8) {
    const std::vector<Candidate> candidates = best_rows(index, query, count);
    kept.clear();
    for (const Candidate& candidate : candidates) {
      if (kept.size() == size_t(top)) break;
      Record record = index.record(candidate.row);
      const bool is_repeated = std::any_of(kept.begin(), kept.end(), [&](const Kept& other) {
        const Record& better = other.hit.record;
        const bool overlaps = std::abs(other.row - candidate.row) == 1 && better.path == record.path &&
                              better.begin < record.end && record.begin < better.end;
        return overlaps || better.text == record.text;
      });
      if (!is_repeated) kept.push_back({candidate.row, {candidate.score, std::move(record)}});
    }
    if (kept.size() == size_t(top) || candidates.size() < count) break;
  }
  std::vector<Hit> hits;
  for (Kept& each : kept) hits.push_back(std::move(each.hit));
  return hits;
}

Excerpt excerpt_of(const Record& record, std::string_view query, const Tokenize& tokenize) {
  const std::set<int32_t> wanted = words_of(query, tokenize);
  const std::string_view text = record.text;
  struct Line {
    size_t begin;
    std::vector<int32_t> found;  // words of the query
  };
  std::vector<Line> lines;
  std::map<int32_t, int> lines_with;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    Line& line = lines.emplace_back(Line{begin, {}});
    for (const int32_t word : words_of(text.substr(begin, end - begin), tokenize))
      if (wanted.count(word)) line.found.push_back(word), ++lines_with[word];
  }
  Excerpt best{record.line, record.text};
  double most = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    double score = 0;
    for (const int32_t word : lines[i].found) score += 1.0 / lines_with[word];
    if (score > most) most = score, best = {record.line + int64_t(i), std::string(text.substr(lines[i].begin))};
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

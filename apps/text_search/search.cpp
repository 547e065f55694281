#include "apps/text_search/search.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "apps/text_search/files.h"

namespace cairn::text_search {
namespace {

// Do two passages repeat each other?
bool are_alike(const Record& a, const Record& b) {
  return a.text == b.text || (a.path == b.path && a.begin < b.end && b.begin < a.end);
}

// The tokens that words begin with, without punctuation and the shortest.
std::set<int32_t> words_of(std::string_view text, const WordPiece& tokenizer) {
  std::set<int32_t> words;
  for (const int32_t id : tokenizer.tokenize(text))
    if (tokenizer.token(id).size() >= 3 && !tokenizer.token(id).starts_with("##")) words.insert(id);
  return words;
}

}  // namespace

std::vector<Hit> search(const Index& index, const std::vector<float>& query, int64_t top) {
  std::vector<Hit> all;
  for (const Record& record : index.records)
    all.push_back({std::inner_product(query.begin(), query.end(), record.row.begin(), 0.0), &record});
  std::stable_sort(all.begin(), all.end(), [](const Hit& a, const Hit& b) { return a.score > b.score; });
  std::vector<Hit> hits;
  for (const Hit& hit : all) {
    if (int64_t(hits.size()) == top) break;
    const bool is_repeated = std::any_of(hits.begin(), hits.end(),
                                         [&](const Hit& better) { return are_alike(*better.record, *hit.record); });
    if (!is_repeated) hits.push_back(hit);
  }
  return hits;
}

Excerpt excerpt_of(const Record& record, std::string_view query, const WordPiece& tokenizer) {
  const std::set<int32_t> wanted = words_of(query, tokenizer);
  const std::vector<std::string> lines = lines_of(record.text);
  std::vector<std::vector<int32_t>> found;  // the query's words in each line
  std::map<int32_t, int> lines_with;
  for (const std::string& line : lines) {
    found.emplace_back();
    for (const int32_t word : words_of(line, tokenizer)) {
      if (!wanted.contains(word)) continue;
      found.back().push_back(word);
      ++lines_with[word];
    }
  }
  Excerpt best{record.line, record.text};
  double most = 0;
  size_t begin = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    double score = 0;
    for (const int32_t word : found[i]) score += 1.0 / lines_with[word];
    if (score > most) {
      most = score;
      best = {record.line + int64_t(i), record.text.substr(begin)};
    }
    begin += lines[i].size() + 1;
  }
  return best;
}

}  // namespace cairn::text_search

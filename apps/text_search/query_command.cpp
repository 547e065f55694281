// text-search query: finds the passages of an index that are nearest in meaning.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/text_search/embedder.h"
#include "apps/text_search/index.h"
#include "core/error.h"
#include "nn/io/json.h"

namespace cairn::text_search {

namespace {

// The model of an index, with its attention. `folder`: of the model, if it is another than the index says. Error
// (DataError): it is another model.
Embedder open_model(const Index& index, const std::string& file, const std::string& folder) {
  EmbedderOptions options;
  options.compute.device = Device::cpu;
  options.compute.seed = index.seed;
  options.model = folder.empty() ? index.model : folder;
  options.attention = index.attention;
  Embedder embedder(options);
  const bool same_features = index.records.empty() || index.records[0].row.elements() == embedder.features();
  check<DataError>(embedder.fingerprint() == index.fingerprint && same_features, "--index ", file,
                   ": was made with another model than ", in_quotes(options.model),
                   "; name the right folder with --model, or index again");
  return embedder;
}

}  // namespace

void query_command(CommandLine& line) {
  std::vector<std::string> words;
  std::string file, model;
  int64_t top = 5;
  line.words("words", words, "the query");
  line("index", file, Text::file, "the index file", Keep::not_in_config);
  line("model", model, Text::folder, "folder of the model (default: the folder that the index was made with)",
       Keep::not_in_config);
  line("top", top, {1, 10000}, "number of passages to show");
  line.threads();
  line.footer(
      "Without words, each line of standard input is a query; on a terminal, the program asks for queries.\n"
      "--json prints one object per query: \"query\" and \"hits\", an array of objects with path, line,\n"
      "last_line, score, excerpt, excerpt_line and text.\n\nExamples:\n"
      "  text-search query 'how are checkpoints saved?' --index notes.index\n"
      "  text-search query --index notes.index --top 1 --json <questions.txt");
  line.parse();
  check<UsageError>(!file.empty(), "expected --index with an index; see text-search query --help");
  const Index index = read_index(file);
  if (!index.complete)
    note("the index is not complete, because its run was stopped; the same text-search index command continues it",
         line.quiet);
  if (index.records.empty()) note("the index is empty: none of its files contains text", line.quiet);
  const Embedder embedder = open_model(index, file, model);
  const size_t width = columns(STDOUT_FILENO, 160);
  const auto answer = [&](const std::string& query) {
    const WordPiece& tokenizer = embedder.tokenizer();
    const Tensor embedding = embedder.embed(embedder.encode({query}));
    const std::string current = std::filesystem::current_path().string() + '/';
    Json found = {{"query", query}, {"hits", Json::array()}};
    std::string text;
    for (const auto& [score, record] : search(index, embedding.to_vector<float>(), top)) {
      const Excerpt excerpt = excerpt_of(*record, query, tokenizer);
      found["hits"].push_back({{"path", record->path},
                               {"line", record->line},
                               {"last_line", record->last_line},
                               {"score", score},
                               {"excerpt", one_line(excerpt.text, 160)},
                               {"excerpt_line", excerpt.line},
                               {"text", record->text}});
      const std::string path = record->path.substr(record->path.starts_with(current) ? current.size() : 0);
      const std::string place = concat(one_line(path, SIZE_MAX), ':', excerpt.line, formatted("  %.3f  ", score));
      text += place + one_line(excerpt.text, std::max<size_t>(width - std::min(width, place.size()), 20)) + "\n";
    }
    line.tell(found, text);
  };
  std::string query;
  for (const std::string& word : words) query += (&word == words.data() ? "" : " ") + word;
  if (!words.empty()) return answer(query);
  const bool asks = isatty(STDIN_FILENO) && !line.quiet;
  note("Type one query per line; Ctrl-D ends.", !asks);
  while (true) {
    if (asks) std::cerr << "> " << std::flush;
    if (!std::getline(std::cin, query)) break;
    if (one_line(query, SIZE_MAX).empty()) continue;
    if (!line.json && !asks) print(one_line(query, width) + "\n");
    answer(query);
    if (!line.json) print("\n");
  }
  if (asks) std::cerr << '\n';
}

}  // namespace cairn::text_search

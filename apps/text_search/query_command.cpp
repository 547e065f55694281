// text-search query: the passages of an index that are nearest in meaning.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/options.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/text_search/commands.h"
#include "apps/text_search/embedder.h"
#include "apps/text_search/search.h"
#include "core/parallel.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

using Json = nlohmann::ordered_json;

size_t width() { return columns(STDOUT_FILENO, 160); }

struct QueryCommand {
  explicit QueryCommand(CLI::App& app)
      : command(add_command(app, "query", "Find passages by their meaning",
                            "Without words, each line of standard input is a query, which stands above its answer.\n"
                            "--json prints an object a query: \"query\" and \"hits\", an array of objects with path, "
                            "line, last_line, score, excerpt, excerpt_line and text.\n\nExamples:\n"
                            "  text-search query 'how are checkpoints saved?' --index index\n"
                            "  text-search query --index index --top 1 --json <questions.txt")),
        options(&command) {
    add_words(command, "words", words, "what to look for");
    add_path(command, "--index", index_folder, "DIR", "the index");
    add_path(command, "--model", model, "DIR", "the model's folder; by default where it was when the index was made");
    options.integer("top", top, 1, 10000, "how many passages");
    define_threads(options, threads);
    output.define(command);
    on_run(command, [this] { execute(); });
  }

  void execute() {
    options.read();
    options.assign();
    if (threads > 0) set_threads(int(threads));
    check<UsageError>(!index_folder.empty(), "expected --index with an index; see text-search query --help");
    std::string query;
    for (const std::string& word : words) query += (query.empty() ? "" : " ") + word;
    check<UsageError>(words.empty() || !is_blank(query), "expected words to look for, got none");
    index = std::make_unique<Index>(index_folder);
    if (!index->header().complete)
      note("the index is not complete: its run was stopped; text-search index goes on", output.quiet);
    if (index->size() == 0) note("the index is empty: none of the indexed files contains text", output.quiet);
    open_model();
    if (!words.empty()) return answer(query);
    for (std::string line; std::getline(std::cin, line);) {
      if (is_blank(line)) continue;
      if (!output.json) print(one_line(line, width()) + "\n");
      answer(line);
      if (!output.json) print("\n");
    }
  }

  static bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n\v\f") == std::string::npos; }

  void open_model() {
    const IndexSettings& settings = index->header().settings;
    EmbedderOptions embedder_options;
    embedder_options.model = model.empty() ? settings.model : model;
    embedder_options.attention = settings.attention;
    embedder_options.seed = uint64_t(settings.seed);
    embedder = std::make_unique<Embedder>(embedder_options);
    check<DataError>(embedder->fingerprint() == settings.fingerprint && embedder->features() == settings.features,
                     "--index ", index_folder, ": was made by another model than ", in_quotes(shown_model()),
                     " is now; name its folder with --model, or index again with --rebuild");
  }
  std::string shown_model() const { return model.empty() ? index->header().settings.model : model; }

  void answer(const std::string& query) {
    const WordPiece& tokenizer = embedder->tokenizer();
    const Tensor embedding = embedder->embed({tokenizer.encode(query, embedder->max_tokens())});
    const std::vector<Hit> hits = search(*index, embedding.reshape({embedder->features()}), top);
    const auto tokenize = [&](std::string_view text) { return tokenizer.tokenize(text); };
    if (output.json) return print_json(query, hits, tokenize);
    const std::filesystem::path current = std::filesystem::current_path();
    std::string text;
    for (const Hit& hit : hits) {
      const Excerpt excerpt = excerpt_of(hit.record, query, tokenize);
      const std::string place = concat(one_line(shown_path(hit.record.path, current), SIZE_MAX), ':', excerpt.line,
                                       formatted("  %.3f  ", double(hit.score)));
      text += place + one_line(excerpt.text, std::max<size_t>(width() - std::min(width(), place.size()), 20)) + "\n";
    }
    print(text);
  }

  static void print_json(const std::string& query, const std::vector<Hit>& hits, const Tokenize& tokenize) {
    Json json = {{"query", query}, {"hits", Json::array()}};
    for (const auto& [score, record] : hits) {
      const Excerpt excerpt = excerpt_of(record, query, tokenize);
      json["hits"].push_back({{"path", record.path},
                              {"line", record.line},
                              {"last_line", record.last_line},
                              {"score", finite_or_null(double(score))},
                              {"excerpt", one_line(excerpt.text, 160)},
                              {"excerpt_line", excerpt.line},
                              {"text", record.text}});
    }
    print(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  CLI::App& command;
  Options options;
  OutputOptions output;
  std::vector<std::string> words;
  std::string index_folder, model;
  int64_t top = 5, threads = 0;
  std::unique_ptr<Index> index;
  std::unique_ptr<Embedder> embedder;
};

}  // namespace

void define_query(CLI::App& app) { define_command<QueryCommand>(app); }

}  // namespace cairn::text_search

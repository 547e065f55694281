// text-search index: cuts files into passages and embeds them.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/variants.h"
#include "apps/text_search/embedder.h"
#include "apps/text_search/files.h"
#include "apps/text_search/index.h"
#include "apps/text_search/passages.h"
#include "core/error.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

namespace fs = std::filesystem;

constexpr int64_t min_passage_tokens = int64_t(max_word_bytes) + 2;

struct Indexing {
  // Declares the settings, and takes those that the user gave.
  explicit Indexing(CommandLine& command_line) : line(command_line) {
    search.fields(line);
    line("out", out, Text::file, "the index file to write or update", Keep::not_in_config);
    line("attention", options.attention, one_variant, "attention variant");
    line("passage-tokens", passage_tokens, {min_passage_tokens, 1 << 20},
         "maximum number of tokens of a passage, with [CLS] and [SEP]; at most the model's limit");
    line("save-every", save_every, {0, 86400}, "seconds between saves; a killed run loses at most this much work");
    options.fields(line);
    line.footer(
        "Run the same command again to update the index, or to continue after a stop. It embeds only passages\n"
        "with new text, and removes the passages of deleted files.\n"
        "It skips hidden files and folders, symbolic links, binary files (with a NUL byte) and files above 16 MB.\n"
        "\nExamples:\n"
        "  text-search index ~/notes --model model --out notes.index\n"
        "  text-search index . --model model --out src.index --exclude 'build,*.svg' --attention i-clustered-25");
    line.parse();
  }

  void run() {
    catch_interrupts(line.quiet);
    check<UsageError>(!out.empty(), "expected --out with a file for the index; see text-search index --help");
    const fs::path file = output_path("--out", out, "");
    const std::vector<fs::path> files = find_files(search, options.model);
    for (const std::string& path : search.paths) check_storable("PATH", stored_path(path));
    const std::string model = stored_path(options.model);
    check_storable("--model", model);
    const Embedder embedder(options);
    passage_tokens = std::min(passage_tokens, embedder.max_tokens());
    Index index;
    index.fingerprint = embedder.fingerprint();
    index.attention = options.attention;
    index.seed = options.compute.seed;
    index.model = model;
    add_records(files, embedder.tokenizer(), index);
    if (is_there(file)) reuse_rows(read_index(file), index);
    embed_new(embedder, file, index);
  }

  void add_records(const std::vector<fs::path>& files, const WordPiece& tokenizer, Index& index) {
    const auto count_tokens = [&](std::string_view word) { return tokenizer.tokenize(word).size(); };
    for (const fs::path& path : files) {
      if (interrupted()) throw Interrupted();
      if (!is_utf8(path.string())) {
        ++skipped["name"];
        continue;
      }
      const std::optional<std::string> text = read_text(path, skipped);
      if (!text) continue;
      const std::vector<Passage> passages = cut_passages(*text, count_tokens, size_t(passage_tokens) - 2);
      if (passages.empty())
        ++skipped["empty"];
      else
        ++files_indexed;
      for (const Passage& passage : passages)
        index.records.push_back({path.string(), passage.line, passage.last_line, valid_utf8(passage.text), {}});
    }
  }

  // Passages take the rows of passages with the same text in the old index.
  void reuse_rows(const Index& old, Index& index) const {
    if (old.fingerprint != index.fingerprint || old.attention != index.attention || old.seed != index.seed) {
      note(concat(out, ": was made with another model or other settings, so all passages are embedded again"),
           line.quiet);
      return;
    }
    std::unordered_map<std::string_view, const Record*> by_text;
    for (const Record& record : old.records) by_text.emplace(record.text, &record);
    for (Record& record : index.records)
      if (const auto found = by_text.find(record.text); found != by_text.end()) record.row = found->second->row;
  }

  // Embeds the passages without a row. Saves every --save-every seconds, at the end and when interrupted.
  void embed_new(const Embedder& embedder, const fs::path& file, Index& index) const {
    std::vector<Record*> waiting;
    Sequences sequences;
    int64_t tokens = 0;
    for (Record& record : index.records) {
      if (record.row.defined()) continue;
      waiting.push_back(&record);
      sequences.push_back(embedder.tokenizer().encode(record.text, passage_tokens));
      tokens += int64_t(sequences.back().size());
    }
    const Stopwatch time;
    double saved = 0;
    bool is_new = false;
    try {
      embedder.embed(sequences, line.quiet, [&](size_t i, const float* row) {
        waiting[i]->row = Tensor::from(std::vector<float>(row, row + embedder.features()), {embedder.features()});
        is_new = true;
        if (time.seconds() - saved < save_every) return;
        write_index(file, index);
        saved = time.seconds();
      });
    } catch (const Interrupted&) {
      if (is_new) write_index(file, index);
      note("interrupted; finished embeddings are saved, and the same command continues", line.quiet);
      throw;
    }
    index.complete = true;
    write_index(file, index);
    std::string skipped_files;
    for (const auto& [reason, count] : skipped)
      skipped_files += concat(skipped_files.empty() ? "; skipped files: " : ", ", count, " ", reason);
    line.tell(
        {{"out", out},
         {"files", files_indexed},
         {"skipped", skipped},
         {"passages", index.records.size()},
         {"embedded", waiting.size()},
         {"tokens", tokens},
         {"seconds", time.seconds()}},
        concat(out, ": passages: ", index.records.size(), ", files: ", files_indexed, "; embedded ", waiting.size(),
               " (tokens: ", tokens, ") in ", formatted("%.1f s", time.seconds()), skipped_files, "\n"));
  }

  FileSearch search;
  SkippedCounts skipped;
  EmbedderOptions options;
  std::string out;
  int64_t passage_tokens = 256, files_indexed = 0;
  double save_every = 60;
  CommandLine& line;
};

}  // namespace

void index_command(CommandLine& line) { Indexing(line).run(); }

}  // namespace cairn::text_search

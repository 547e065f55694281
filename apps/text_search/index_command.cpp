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
        "It skips hidden files and folders, symbolic links, binary files (with a NUL byte), files above 16 MB, "
        "and\n"
        "what cannot be read, whose passages stay in the index.\n"
        "\nExamples:\n"
        "  text-search index ~/notes --model model --out notes.index\n"
        "  text-search index . --model model --out src.index --exclude 'build,*.svg' --attention i-clustered-25");
    line.parse();
  }

  void run() {
    catch_interrupts(line.quiet);
    check<UsageError>(!out.empty(), "expected --out with a file for the index; see text-search index --help");
    const fs::path file = output_path("--out", out, "");
    const std::vector<fs::path> files = find_files(search, options.model, skipped, line.quiet);
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
    add_records(files, embedder.tokenizer(), is_there(file) ? read_index(file) : Index(), index);
    embed_new(embedder, file, index);
  }

  // The rows of `old` by text. Error (UsageError): it was made with another model or settings than `index`.
  std::unordered_map<std::string_view, const Tensor*> rows_of(const Index& old, const Index& index) const {
    std::unordered_map<std::string_view, const Tensor*> rows;
    if (old.fingerprint == index.fingerprint && old.attention == index.attention && old.seed == index.seed)
      for (const Record& record : old.records) rows.emplace(record.text, &record.row);
    else
      check<UsageError>(old.fingerprint.empty(), "--out ", out,
                        ": was made with another model or other settings; choose another file, or delete it");
    return rows;
  }

  // The passages of the files, and those of `old` whose file or folder cannot be read now.
  void add_records(const std::vector<fs::path>& files, const WordPiece& tokenizer, const Index& old, Index& index) {
    const auto rows = rows_of(old, index);
    const auto count_tokens = [&](std::string_view word) {
      if (interrupted()) throw Interrupted();
      return tokenizer.tokenize(word).size();
    };
    // A passage takes the row of one with the same text in the old index, else its tokens wait for a row.
    const auto add = [&](Record record) {
      if (const auto found = rows.find(record.text); found != rows.end())
        record.row = *found->second;
      else
        sequences.push_back(tokenizer.encode(record.text, passage_tokens));
      index.records.push_back(std::move(record));
    };
    Progress progress(int64_t(files.size()), line.quiet);
    for (const fs::path& path : files) {
      if (interrupted()) throw Interrupted();
      progress.update(&path - files.data() + 1, "files");
      if (!is_utf8(path.string())) {
        skipped["name"].insert(path);
        continue;
      }
      const std::optional<std::string> text = read_text(path, skipped);
      if (!text) continue;
      const std::vector<Passage> passages = cut_passages(*text, count_tokens, size_t(passage_tokens) - 2);
      if (passages.empty())
        skipped["empty"].insert(path);
      else
        ++files_indexed;
      for (const Passage& passage : passages)
        add({path.string(), passage.line, passage.last_line, as_utf8(std::string(passage.text)), {}});
    }
    progress.finish();
    const auto unreadable = skipped.find("unreadable");
    if (unreadable == skipped.end()) return;
    for (const Record& record : old.records)
      for (fs::path path = record.path; path.has_relative_path(); path = path.parent_path())
        if (unreadable->second.contains(path)) add({record.path, record.line, record.last_line, record.text, {}});
  }

  // Embeds the passages without a row. Saves every --save-every seconds, at the end and when interrupted.
  void embed_new(const Embedder& embedder, const fs::path& file, Index& index) const {
    std::vector<Record*> waiting;  // of `sequences`
    for (Record& record : index.records)
      if (!record.row.defined()) waiting.push_back(&record);
    int64_t tokens = 0;
    for (const auto& sequence : sequences) tokens += int64_t(sequence.size());
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
    Json counts = Json::object();
    for (const auto& [reason, paths] : skipped) counts[reason] = paths.size();
    line.tell(
        {{"out", out},
         {"files", files_indexed},
         {"skipped", counts},
         {"passages", index.records.size()},
         {"embedded", waiting.size()},
         {"tokens", tokens},
         {"seconds", time.seconds()}},
        concat(out, ": passages: ", index.records.size(), ", files: ", files_indexed, "; embedded ", waiting.size(),
               " (tokens: ", tokens, ") in ", formatted("%.1f s", time.seconds()), counts_of(skipped), "\n"));
  }

  FileSearch search;
  Skipped skipped;
  EmbedderOptions options;
  Sequences sequences;  // of the passages without a row
  std::string out;
  int64_t passage_tokens = 256, files_indexed = 0;
  double save_every = 60;
  CommandLine& line;
};

}  // namespace

void index_command(CommandLine& line) { Indexing(line).run(); }

}  // namespace cairn::text_search

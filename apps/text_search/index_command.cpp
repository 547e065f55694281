// text-search index: cuts files into passages and embeds them.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/run_folder.h"
#include "apps/text_search/embedder.h"
#include "apps/text_search/files.h"
#include "apps/text_search/index.h"
#include "apps/text_search/passages.h"
#include "core/error.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

namespace fs = std::filesystem;

constexpr int64_t min_passage_tokens = int64_t(max_word_bytes) + 2;

struct IndexCommand : Command {
  IndexCommand()
      : Command(
            "index", "Index the text files below folders",
            "Run the same command again to update the index, or to continue after a stop. It embeds only passages\n"
            "with new text, and removes the passages of deleted files.\n"
            "It skips hidden files and folders, symbolic links, binary files (with a NUL byte) and files above 16 MB.\n"
            "\nExamples:\n"
            "  text-search index ~/notes --model model --out notes.index\n"
            "  text-search index . --model model --out src.index --exclude 'build,*.svg' --attention i-clustered-25") {}

  void fields(SettingFields& f) override {
    search.fields(f);
    f("out", out, Text::file, "the index file to write or update", Keep::not_in_config);
    f("attention", options.attention, Text::variant, "attention variant");
    f("passage-tokens", passage_tokens, {min_passage_tokens, 1 << 20},
      "maximum number of tokens of a passage, with [CLS] and [SEP]; at most the model's limit");
    f("save-every", save_every, {0, 86400}, "seconds between saves; a killed run loses at most this much work");
    options.fields(f);
  }

  void run(Communicator&) override {
    catch_interrupts(quiet);
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
    if (is_there(file)) read_old(file, index);
    add_records(files, embedder.tokenizer(), index);
    old_rows.clear();
    old = {};
    embed_new(embedder, file, index);
  }

  // Reads the index that is replaced. Its rows are used again if it has the same model and settings.
  void read_old(const fs::path& file, const Index& index) {
    old = read_index(file);
    if (old.fingerprint != index.fingerprint || old.attention != index.attention || old.seed != index.seed) {
      note(concat(out, ": was made with another model or other settings, so all passages are embedded again"), quiet);
      return;
    }
    for (const Record& record : old.records) old_rows.emplace(record.text, &record.row);
  }

  void add_records(const std::vector<fs::path>& files, const WordPiece& tokenizer, Index& index) {
    int64_t read = 0;
    Progress progress(int64_t(files.size()), quiet);
    const auto count_tokens = [&](std::string_view word) {
      if (interrupted()) throw Interrupted();
      progress.update(read, "files");
      return tokenizer.tokenize(word).size();
    };
    // A passage takes the row of one with the same text in the old index, else its tokens wait for a row.
    const auto add = [&](Record record) {
      if (const auto found = old_rows.find(record.text); found != old_rows.end())
        record.row = *found->second;
      else
        sequences.push_back(tokenizer.encode(record.text, passage_tokens));
      index.records.push_back(std::move(record));
    };
    for (const fs::path& path : files) {
      if (interrupted()) throw Interrupted();
      read = &path - files.data();
      progress.update(read, "files");
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
        add({path.string(), passage.line, passage.last_line, valid_utf8(passage.text), {}});
    }
    progress.update(int64_t(files.size()), "files");
    progress.finish();
  }

  // Embeds the passages without a row. Saves every --save-every seconds, at the end and when interrupted.
  void embed_new(const Embedder& embedder, const fs::path& file, Index& index) const {
    std::vector<Record*> waiting;  // of `sequences`
    for (Record& record : index.records)
      if (record.row.empty()) waiting.push_back(&record);
    int64_t tokens = 0;
    for (const auto& sequence : sequences) tokens += int64_t(sequence.size());
    const Stopwatch time;
    double saved = 0;
    bool is_new = false;
    try {
      embedder.embed(sequences, quiet, [&](size_t i, const float* row) {
        waiting[i]->row.assign(row, row + embedder.features());
        is_new = true;
        if (time.seconds() - saved < save_every) return;
        write_index(file, index);
        saved = time.seconds();
      });
    } catch (const Interrupted&) {
      if (is_new) write_index(file, index);
      note("interrupted; finished embeddings are saved, and the same command continues", quiet);
      throw;
    }
    index.complete = true;
    write_index(file, index);
    std::string skipped_files;
    for (const auto& [reason, count] : skipped)
      skipped_files += concat(skipped_files.empty() ? "; skipped files: " : ", ", count, " ", reason);
    tell({{"out", out},
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
  Index old;                                                                 // as the file is before
  std::unordered_map<std::string_view, const std::vector<float>*> old_rows;  // of texts
  Sequences sequences;                                                       // of the passages without a row
  std::string out;
  int64_t passage_tokens = 256, files_indexed = 0;
  double save_every = 60;
};

}  // namespace

std::unique_ptr<Command> make_index() { return std::make_unique<IndexCommand>(); }

}  // namespace cairn::text_search

// text-search index: files, cut into passages and embedded.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apps/common/artifact.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/text_search/commands.h"
#include "apps/text_search/files.h"
#include "apps/text_search/index.h"
#include "apps/text_search/model_settings.h"
#include "apps/text_search/passages.h"
#include "nn/attention/attention.h"

namespace cairn::text_search {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t default_passage_tokens = 256;
constexpr int64_t min_passage_tokens = int64_t(max_word_bytes) + 2;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct IndexCommand : Command {
  IndexCommand()
      : Command(
            "index", "Index the text files below folders",
            "The same command again brings the index up to date, and goes on where it was stopped: passages whose "
            "text\n"
            "the index has are not embedded again, and those of files that are gone leave it.\n"
            "Left out are hidden files and folders, symbolic links, binary files (with a NUL byte) and files above "
            "16 MB.\n\nExamples:\n"
            "  text-search index ~/notes --model model --out notes.index\n"
            "  text-search index . --model model --out src.index --exclude 'build,*.svg' --attention i-clustered-25") {}

  void fields(SettingFields& f) override {
    f.words("PATH", search.paths, "files and folders");
    model.model_field(f);
    f("out", out, Text::file, "the index", Keep::no);
    f("attention", attention, Text::variant, "the attention variant");
    f("passage-tokens", passage_tokens, {min_passage_tokens, 1 << 20},
      "tokens of a passage at most, [CLS] and [SEP] included; by default 256, or what the model takes");
    f("exclude", exclude, Text::any,
      "leave out files and folders whose name, or path below PATH, is one of these globs, comma-separated");
    f("save-every", save_every, {0, 86400}, "seconds between two saves: what a killed run loses at most");
    model.fields(f, "passages that are embedded together");
  }

  void run(Communicator&) override {
    catch_interrupts(quiet);
    const auto begin = Clock::now();
    check<UsageError>(!out.empty(), "expected --out with a file for the index; see text-search index --help");
    EmbedderOptions embedder_options = model.embedder_options("index", attention);
    embedder_options.model = fs::absolute(model.model).lexically_normal();
    search.exclude = split_patterns(exclude);
    search.leave_out = fs::weakly_canonical(model.model);
    const std::vector<fs::path> files = find_files(search, skipped);
    // Before --out is checked: it may be an index of an older version, a folder.
    std::optional<Index> old;
    if (is_there(out)) old = read_old();
    const fs::path file = output_path("--out", out, "");

    const Embedder embedder(embedder_options);
    if (passage_tokens < 1) passage_tokens = std::min(default_passage_tokens, embedder.max_tokens());
    check<UsageError>(passage_tokens <= embedder.max_tokens(), "--passage-tokens: the model takes at most ",
                      embedder.max_tokens(), ", got ", passage_tokens);
    note_if_full(*make_attention(embedder.attention()), passage_tokens, passage_tokens, quiet);
    Index index{
        {embedder.fingerprint(), embedder_options.model.string(), attention, model.compute.seed, passage_tokens},
        false,
        {}};
    index.records = records_of(files, embedder.tokenizer());
    if (old && !old->settings.agrees_with(index.settings))
      note(concat(out, ": was made with another model or other settings, so all passages are embedded"), quiet);
    else if (old)
      reuse_rows(*old, index);
    old.reset();
    embed_new(embedder, file, index);
    if (index.complete || embedded > 0) write_index(file, index);
    print_summary(index, seconds_since(begin));
    if (index.complete) return;
    note("interrupted: what was embedded is kept, and the same command goes on", quiet);
    throw Interrupted();
  }

  Index read_old() const {
    try {
      return read_index(out);
    } catch (const DataError& error) {
      throw DataError(concat("--out ", error.what(), "; choose another file, or remove it if it is a damaged index"));
    }
  }

  std::vector<Record> records_of(const std::vector<fs::path>& files, const WordPiece& tokenizer) {
    const auto count_tokens = [&](std::string_view word) { return tokenizer.tokenize(word).size(); };
    std::vector<Record> records;
    for (const fs::path& path : files) {
      if (interrupted()) throw Interrupted();
      const std::optional<std::string> text = read_text(path, skipped);
      if (!text) continue;
      const std::vector<Passage> passages = cut_passages(*text, count_tokens, size_t(passage_tokens) - 2);
      if (passages.empty())
        ++skipped["empty"];
      else
        ++files_indexed;
      for (const Passage& passage : passages) {
        const auto bytes = std::string_view(*text).substr(passage.begin, passage.end - passage.begin);
        records.push_back({path.string(),
                           passage.line,
                           passage.last_line,
                           int64_t(passage.begin),
                           int64_t(passage.end),
                           valid_utf8(bytes),
                           {}});
      }
    }
    return records;
  }

  // Passages have the rows of those in the old index that have the same text.
  void reuse_rows(const Index& old, Index& index) {
    std::unordered_map<std::string_view, const Record*> by_text;
    for (const Record& record : old.records) by_text.emplace(record.text, &record);
    for (Record& record : index.records) {
      const auto found = by_text.find(record.text);
      if (found == by_text.end()) continue;
      record.row = found->second->row;
      ++reused;
    }
  }

  // Embeds the passages without a row, the longest first, and saves now and then. Interrupted, it leaves the index
  // incomplete.
  void embed_new(const Embedder& embedder, const fs::path& file, Index& index) {
    struct Waiting {
      Record* record;
      std::vector<int32_t> tokens;
    };
    std::vector<Waiting> waiting;
    for (Record& record : index.records)
      if (record.row.empty()) waiting.push_back({&record, embedder.tokenizer().encode(record.text, passage_tokens)});
    std::stable_sort(waiting.begin(), waiting.end(),
                     [](const Waiting& a, const Waiting& b) { return a.tokens.size() > b.tokens.size(); });
    Progress progress(int64_t(waiting.size()), quiet || waiting.empty());
    const auto begin = Clock::now();
    auto saved = begin;
    for (size_t first = 0; first < waiting.size(); first += size_t(model.batch)) {
      if (interrupted()) return;
      const size_t end = std::min(waiting.size(), first + size_t(model.batch));
      std::vector<std::vector<int32_t>> sequences;
      for (size_t i = first; i < end; ++i) sequences.push_back(waiting[i].tokens);
      const Tensor rows = embedder.embed(sequences);
      for (size_t i = first; i < end; ++i) {
        const float* row = rows.data<float>() + int64_t(i - first) * embedder.features();
        waiting[i].record->row.assign(row, row + embedder.features());
        tokens += int64_t(waiting[i].tokens.size());
      }
      embedded = int64_t(end);
      progress.update(embedded, formatted("%.0f tokens/s", double(tokens) / std::max(seconds_since(begin), 1e-3)));
      if (seconds_since(saved) < save_every) continue;
      write_index(file, index);
      saved = Clock::now();
    }
    progress.finish();
    index.complete = true;
  }

  void print_summary(const Index& index, double seconds) const {
    const int64_t count = reused + embedded;
    std::vector<std::string> reasons;
    for (const auto& [reason, files] : skipped) reasons.push_back(concat(files, ' ', reason));
    const Json result = {{"out", out},           {"complete", index.complete}, {"files", files_indexed},
                         {"skipped", skipped},   {"passages", count},          {"reused", reused},
                         {"embedded", embedded}, {"tokens", tokens},           {"seconds", seconds}};
    tell(result, concat(out, ": ", count, index.complete ? "" : concat(" of ", index.records.size()), " passages of ",
                        files_indexed, " files", reasons.empty() ? "" : "; skipped: ", joined(reasons), "; ", embedded,
                        " embedded (", tokens, " tokens) in ", formatted("%.1f s\n", seconds)));
  }

  FileSearch search;
  SkippedCounts skipped;
  ModelSettings model{"", 32, {}};
  std::string exclude, out, attention = "full";
  int64_t passage_tokens = 0;
  double save_every = 60;
  int64_t files_indexed = 0, reused = 0, embedded = 0, tokens = 0;  // of passages: all but files_indexed
};

}  // namespace

std::unique_ptr<Command> make_index() { return std::make_unique<IndexCommand>(); }

}  // namespace cairn::text_search

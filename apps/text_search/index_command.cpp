// text-search index: files, cut into passages and embedded.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "apps/common/format.h"
#include "apps/common/progress.h"
#include "apps/common/run_folder.h"
#include "apps/text_search/commands.h"
#include "apps/text_search/model_command.h"
#include "apps/text_search/update.h"

namespace cairn::text_search {
namespace {

constexpr int64_t default_passage_tokens = 256;

// "2 binary, 1 links"; empty where nothing was skipped.
std::string skipped_text(const SkippedCounts& skipped) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < skipped.size(); ++i)
    if (skipped[i] > 0) parts.push_back(concat(skipped[i], ' ', skipped_names[i]));
  return joined(parts);
}

struct IndexCommand : ModelCommand {
  explicit IndexCommand(CLI::App& app)
      : ModelCommand(
            app, "index", "Index the text files below folders",
            "The index is brought up to date: of files that it has and that have not changed nothing is embedded "
            "again,\nand files that are no longer below a PATH leave it. Without PATH, the PATHs are the index's. "
            "Stopped "
            "at any moment,\nit goes on with the same command.\nLeft out are hidden files and folders, symbolic links, "
            "binary files (with a NUL byte) and files above "
            "16 MB.\n\nExamples:\n"
            "  text-search index ~/notes --model model --out notes.index\n"
            "  text-search index --out notes.index\n"
            "  text-search index . --model model --out index --exclude 'build,*.svg' --attention i-clustered-25",
            32, "the model's folder; by default the index's") {
    add_words(command, "PATH", paths, "files and folders; by default the index's");
    add_path(command, "--out", out, "DIR", "the index");
    options.text("attention", attention, "the attention variant; by default the index's, or full");
    options.integer("passage-tokens", passage_tokens, 8, 1 << 20,
                    "tokens of a passage at most, [CLS] and [SEP] included; by default the index's, or 256");
    add_list(
        command, "--exclude", exclude,
        "leave out files and folders whose name, or path below PATH, is one of these globs, comma-separated; may be "
        "given several times; by default the index's");
    add_flag(
        command, "--rebuild", rebuild,
        "embed everything again, for an index that is damaged, or of other PATHs, another model or other settings");
    define_rest("passages that are embedded together");
    on_run(command, [this] { execute(); });
  }

  void execute() {
    read_options();
    check<UsageError>(!out.empty(), "expected --out with a folder for the index; see text-search index --help");
    UpdateOptions update;
    update.out = out;
    update.rebuild = rebuild;
    check_out(out);
    take_defaults(update);

    EmbedderOptions embedder_options = this->embedder_options(attention.empty() ? "full" : attention);
    embedder_options.model = std::filesystem::absolute(model).lexically_normal();
    update.walk.leave_out.push_back(std::filesystem::weakly_canonical(embedder_options.model));
    const Embedder embedder(embedder_options);
    note_if_full(*make_attention(embedder.attention()), embedder.max_tokens(), embedder.max_tokens(), output.quiet);
    if (passage_tokens < 1) passage_tokens = std::min(default_passage_tokens, embedder.max_tokens());
    check<UsageError>(passage_tokens <= embedder.max_tokens(), "--passage-tokens: the model takes at most ",
                      embedder.max_tokens(), ", got ", passage_tokens);

    IndexModel index_model;
    index_model.settings = {embedder.fingerprint(),
                            embedder_options.model.string(),
                            embedder_options.attention,
                            common.seed,
                            passage_tokens,
                            embedder.features()};
    if (interrupted()) throw Interrupted();
    const WordPiece& tokenizer = embedder.tokenizer();
    index_model.tokenize = [&](std::string_view text) { return tokenizer.tokenize(text); };
    index_model.cls = tokenizer.cls(), index_model.sep = tokenizer.sep();
    index_model.batch = batch;
    index_model.embed = [&](const std::vector<std::vector<int32_t>>& sequences) { return embedder.embed(sequences); };
    run(update, index_model);
  }

  // What was not given, as the index that is there has it, or what a run that was stopped has left of one.
  void take_defaults(UpdateOptions& update) {
    std::error_code error;
    std::optional<IndexHeader> header;
    if (std::filesystem::is_directory(out, error)) {
      const FolderLock lock(out);
      finish_renaming(out);
      if (rebuild) header = find_unfinished(out, rebuild_ending);
      if (rebuild && !header) header = find_unfinished(out, concat(rebuild_ending, ".new"));
      try {
        if (!header) header = find_index(out);
      } catch (const DataError&) {
        if (!rebuild) throw;
      }
      if (!header) header = find_unfinished(out, ".new");
    }
    update.walk.exclude = split_patterns(exclude);
    if (header) {
      const IndexSettings& old = header->settings;
      if (paths.empty()) paths = old.paths;
      if (exclude.empty()) update.walk.exclude = old.exclude;
      if (model.empty()) model = old.model;
      if (attention.empty()) attention = old.attention;
      if (passage_tokens < 1) passage_tokens = old.passage_tokens;
      if (!options.given("seed")) common.seed = old.seed;
    }
    update.walk.roots = roots_of(paths);
  }

  void run(UpdateOptions& update, const IndexModel& index_model) {
    std::error_code error;
    WalkOptions walked = update.walk;
    walked.leave_out.push_back(std::filesystem::canonical(out, error));
    int64_t total = 0;
    SkippedCounts ignored{};
    walk(walked, ignored, [&](const FoundFile& file) {
      total += file.bytes;
      if (interrupted()) throw Interrupted();
    });

    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    Progress progress(total, output.quiet, Progress::Counts::bytes);
    int64_t unchanged_bytes = 0;
    update.stop = interrupted;
    update.progress = [&](const IndexCounts& counts) {
      progress.skip(counts.unchanged_bytes - std::exchange(unchanged_bytes, counts.unchanged_bytes));
      progress.update(counts.bytes, formatted("%lld passages embedded  %.0f tokens/s", (long long)counts.embedded,
                                              double(counts.tokens) / std::max(seconds(), 1e-3)));
    };
    const IndexCounts counts = update_index(update, index_model);
    progress.finish();
    print_summary(counts, seconds());
    if (!counts.interrupted) return;
    note("interrupted: what was embedded is kept, and the same command goes on", output.quiet);
    throw Interrupted();
  }

  void print_summary(const IndexCounts& counts, double seconds) const {
    if (!output.json) {
      const std::string skipped = skipped_text(counts.skipped);
      print(concat(out, ": ", counts.passages, " passages of ", counts.files, " files (", counts.unchanged,
                   " unchanged, ", counts.removed, " removed)", skipped.empty() ? "" : "; skipped: ", skipped, "; ",
                   counts.tokens, " tokens embedded in ", formatted("%.1f s\n", seconds)));
      return;
    }
    nlohmann::ordered_json skipped;
    for (size_t i = 0; i < counts.skipped.size(); ++i) skipped[skipped_names[i]] = counts.skipped[i];
    const nlohmann::ordered_json json = {{"out", out},
                                         {"complete", !counts.interrupted},
                                         {"files", counts.files},
                                         {"unchanged", counts.unchanged},
                                         {"removed", counts.removed},
                                         {"skipped", skipped},
                                         {"passages", counts.passages},
                                         {"embedded", counts.embedded},
                                         {"tokens", counts.tokens},
                                         {"seconds", seconds}};
    print(json.dump() + "\n");
  }

  std::vector<std::string> paths, exclude;
  std::string out, attention;
  int64_t passage_tokens = 0;
  bool rebuild = false;
};

}  // namespace

void define_index(CLI::App& app) { define_command<IndexCommand>(app); }

}  // namespace cairn::text_search

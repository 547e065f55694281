// text-search index: files, cut into passages and embedded.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "apps/common/format.h"
#include "apps/common/options.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/text_search/commands.h"
#include "apps/text_search/embedder.h"
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

struct IndexCommand {
  explicit IndexCommand(CLI::App& app)
      : command(add_command(
            app, "index", "Index the text files below folders",
            "The index is brought up to date: of files that it has and that have not changed nothing is embedded "
            "again,\nand files that are no longer below a PATH leave it. Stopped at any moment, it goes on with the "
            "same command.\nLeft out are hidden files and folders, symbolic links, binary files (a NUL in the first "
            "8 KB) and large ones.\n\nExamples:\n"
            "  text-search index ~/notes --model model --out notes.index\n"
            "  text-search index . --model model --out index --exclude 'build,*.svg' --attention i-clustered-25")),
        options(&command) {
    add_words(command, "PATH", paths, "files and folders");
    add_path(command, "--model", model, "DIR", "the model's folder; by default the index's");
    add_path(command, "--out", out, "DIR", "the index");
    options.text("attention", attention,
                 "the attention variant, or one for each layer, comma-separated; by default the index's, or full");
    options.integer("batch", batch, 1, 4096, "passages that are embedded together");
    options.integer("passage-tokens", passage_tokens, 8, 1 << 20,
                    "tokens of a passage at most, [CLS] and [SEP] included; by default the index's, or 256");
    options.text("exclude", exclude,
                 "leave out files and folders whose name, or path below PATH, is one of these globs, comma-separated");
    options.integer("max-file-size", max_megabytes, 1, 1 << 20, "leave out files of more megabytes");
    add_flag(command, "--rebuild", rebuild, "replace an index that is damaged, or of another model or other settings");
    common.define(options);
    output.define(command);
    on_run(command, [this] { execute(); });
  }

  void execute() {
    options.read();
    options.assign();
    check<UsageError>(!out.empty(), "expected --out with a folder for the index; see text-search index --help");
    UpdateOptions update;
    update.out = out;
    update.rebuild = rebuild;
    update.walk.roots = roots_of(paths);
    update.walk.exclude = split_patterns(exclude);
    update.walk.max_bytes = max_megabytes * 1'000'000;
    check_out(out);
    take_defaults();
    check<UsageError>(!model.empty(), "expected --model with a model's folder; see text-search index --help");

    EmbedderOptions embedder_options;
    embedder_options.model = std::filesystem::absolute(model).lexically_normal();
    if (!attention.empty()) embedder_options.attention = attention;
    embedder_options.batch = batch;
    embedder_options.compute = common.apply();
    embedder_options.seed = uint64_t(common.seed);
    const Embedder embedder(embedder_options);
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
    const WordPiece& tokenizer = embedder.tokenizer();
    index_model.tokenize = [&](std::string_view text) { return tokenizer.tokenize(text); };
    index_model.cls = tokenizer.cls(), index_model.sep = tokenizer.sep();
    index_model.batch = batch;
    index_model.embed = [&](const std::vector<std::vector<int32_t>>& sequences) { return embedder.embed(sequences); };
    run(update, index_model);
  }

  // What was not given, as the index that is there has it.
  void take_defaults() {
    std::optional<IndexHeader> header;
    try {
      header = find_index(out);
    } catch (const DataError&) {
      if (!rebuild) throw;
    }
    if (!header) return;
    const IndexSettings& old = header->settings;
    if (model.empty()) model = old.model;
    if (rebuild) return;
    if (attention.empty()) attention = old.attention;
    if (passage_tokens < 1) passage_tokens = old.passage_tokens;
    if (!options.given("seed")) common.seed = old.seed;
  }

  void run(UpdateOptions& update, const IndexModel& index_model) {
    catch_interrupts(output.quiet);
    std::error_code error;
    update.walk.leave_out = std::filesystem::canonical(out, error);
    int64_t total = 0;
    SkippedCounts ignored{};
    walk(update.walk, ignored, [&](const FoundFile& file) {
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
    tell(counts, seconds());
    if (!counts.interrupted) return;
    note("interrupted: what was embedded is kept, and the same command goes on", output.quiet);
    throw Interrupted();
  }

  void tell(const IndexCounts& counts, double seconds) const {
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

  CLI::App& command;
  Options options;
  CommonSettings common;
  OutputOptions output;
  std::vector<std::string> paths;
  std::string model, out, attention, exclude;
  int64_t batch = 32, passage_tokens = 0, max_megabytes = 16;
  bool rebuild = false;
};

}  // namespace

void define_index(CLI::App& app) { define_command<IndexCommand>(app); }

}  // namespace cairn::text_search

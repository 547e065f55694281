// text-search compare: attention variants in a pretrained model, beside full attention.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/progress.h"
#include "apps/common/run_folder.h"
#include "apps/text_search/commands.h"
#include "apps/text_search/compare.h"
#include "apps/text_search/model_command.h"
#include "core/parallel.h"
#include "nn/io/file.h"

namespace cairn::text_search {
namespace {

// More columns than these would be too narrow to see.
constexpr int64_t drawn_tokens = 64;

struct CompareCommand : ModelCommand {
  explicit CompareCommand(CLI::App& app)
      : ModelCommand(
            app, "compare", "Compare attention variants in a pretrained model on your own text",
            "Sequences of each length are cut from the files and embedded by full attention and by each variant, with\n"
            "the same weights. Told are the cosine of the embeddings, how many of ten nearest neighbors stay the "
            "same,\n"
            "and the time. With --out, report.html and compare.json are written.\n\nExample:\n"
            "  text-search compare ~/notes --model model --out report",
            8) {
    add_words(command, "PATH", paths, "files and folders");
    add_path(command, "--out", out, "DIR", "write report.html and compare.json into this folder");
    options.text("variants", variants, "attention variants, comma-separated");
    options.text("lengths", lengths, "tokens of a sequence, comma-separated, rising");
    options.integer("sequences", sequences, 2, 1 << 20, "sequences of each length, at most");
    options.text("sentence", sentence,
                 "the text whose attention is drawn; by default one from the middle of the files");
    options.integer("layer", layer, 1, 1024, "the layer whose attention is drawn; by default the last");
    add_list(command, "--exclude", exclude,
             "leave out what these globs match, comma-separated (see text-search index --help)");
    define_rest("sequences that are embedded together");
    on_run(command, [this] { execute(); });
  }

  void execute() {
    read_options();
    std::vector<int64_t> all;
    about_option("--lengths", [&] { all = rising_integers(lengths, int64_t(1) << 20); });
    check<UsageError>(all.front() >= 8, "--lengths: expected at least 8, got ", all.front());
    const EmbedderOptions embedder_options = this->embedder_options();
    if (!out.empty()) make_out_folder(out);
    WalkOptions files;
    files.roots = roots_of(paths);
    files.exclude = split_patterns(exclude);
    Embedder embedder(embedder_options);
    const auto& size = embedder.bert().options;
    check<UsageError>(all.back() <= size.positions, "--lengths: the model has ", size.positions, " positions, got ",
                      all.back());
    if (layer < 1) layer = size.layers;
    check<UsageError>(layer <= size.layers, "--layer: the model has ", size.layers, ", got ", layer);
    const std::vector<std::string> specs = variants_of(embedder, variants);

    Comparison comparison{std::filesystem::absolute(model).lexically_normal().string(),
                          std::string(name(embedder.device())),
                          batch,
                          threads(),
                          {},
                          {},
                          {}};
    for (const int64_t length : all) {
      const Sequences cut = cut_sequences(files, embedder.tokenizer(), length, sequences, comparison.corpus);
      if (length == all.front() && !out.empty()) {
        auto drawn = sentence.empty() ? cut[cut.size() / 2] : embedder.tokenizer().encode(sentence);
        if (int64_t(drawn.size()) > drawn_tokens) drawn.resize(drawn_tokens), drawn.back() = embedder.tokenizer().sep();
        comparison.rows = attention_rows(embedder, drawn, specs, layer - 1);
      }
      Progress progress(int64_t(cut.size()), output.quiet);
      const Measured measured = embed_by_each(embedder, cut, specs, [&](int64_t done) {
        if (interrupted()) throw Interrupted();
        progress.update(done, concat("sequences of ", length, " tokens, by ", specs.size(), " variants"));
      });
      progress.finish();
      comparison.lengths.push_back(compare(length, specs, measured));
    }
    const auto json = comparison_json(comparison);
    if (!out.empty()) {
      const std::filesystem::path folder = out;
      replace_file(folder / "compare.json", {json.dump(2) + "\n"});
      replace_file(folder / "report.html", {comparison_page(comparison)});
    }
    if (output.json) return print(json.dump() + "\n");
    print(comparison_text(comparison));
    if (!out.empty()) print("Report: " + (std::filesystem::absolute(out) / "report.html").string() + "\n");
  }

  std::vector<std::string> paths, exclude;
  std::string out, sentence, lengths = "128,384,512";
  std::string variants =
      "clustered-25,i-clustered-25,oracle-top-32,i-clustered-25:topk=64,clustered-100,i-clustered-100,position-25,"
      "i-position-25";
  int64_t sequences = 200, layer = 0;
};

}  // namespace

void define_compare(CLI::App& app) { define_command<CompareCommand>(app); }

}  // namespace cairn::text_search

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

struct CompareCommand : ModelCommand {
  explicit CompareCommand(CLI::App& app)
      : ModelCommand(
            app, "compare", "Compare attention variants in a pretrained model on your own text",
            "Sequences of each length are cut from the files and embedded by full attention and by each variant, with\n"
            "the same weights. Told are the cosine of the embeddings, how many of ten nearest neighbors stay the "
            "same,\n"
            "and the time.\n\nExample:\n"
            "  text-search compare ~/notes --model model --lengths 128,512",
            8) {
    add_words(command, "PATH", paths, "files and folders");
    options.text("variants", variants, "attention variants, comma-separated");
    options.text("lengths", lengths, "tokens of a sequence, comma-separated, rising");
    add_path(command, "--picture", picture, "FILE", "draw error against time here (SVG)");
    options.integer("sequences", sequences, 2, 1 << 20, "sequences of each length, at most");
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
    const std::filesystem::path drawn = picture.empty() ? "" : output_path("--picture", picture, "");
    const EmbedderOptions embedder_options = this->embedder_options();
    WalkOptions files;
    files.roots = roots_of(paths);
    files.exclude = split_patterns(exclude);
    Embedder embedder(embedder_options);
    check<UsageError>(all.back() <= embedder.max_tokens(), "--lengths: the model has ", embedder.max_tokens(),
                      " positions, got ", all.back());
    const std::vector<std::string> specs = variants_of(embedder, variants);

    Comparison comparison{std::filesystem::absolute(model).lexically_normal().string(),
                          std::string(name(embedder.device())),
                          batch,
                          threads(),
                          {},
                          {}};
    for (const int64_t length : all) {
      for (const std::string& spec : specs) note_if_full(*make_attention(spec), length, length, output.quiet);
      const Sequences cut = cut_sequences(files, embedder.tokenizer(), length, sequences, comparison.corpus);
      Progress progress(int64_t(cut.size()), output.quiet);
      const Measured measured = embed_by_each(embedder, cut, specs, [&](int64_t done) {
        if (interrupted()) throw Interrupted();
        progress.update(done, concat("sequences of ", length, " tokens, by ", specs.size(), " variants"));
      });
      progress.finish();
      comparison.lengths.push_back(compare(length, specs, measured));
    }
    if (!picture.empty()) replace_file(drawn, {comparison_picture(comparison)});
    print(output.json ? comparison_json(comparison).dump() + "\n" : comparison_text(comparison));
  }

  std::vector<std::string> paths, exclude;
  std::string picture, lengths = "128,384,512";
  std::string variants =
      "clustered-25,clustered-25:refine=2,i-clustered-25,i-clustered-25:refine=1,i-clustered-25:refine=2,"
      "i-clustered-100,i-clustered-100:refine=1,oracle-top-32,position-25,i-position-25";
  int64_t sequences = 200;
};

}  // namespace

void define_compare(CLI::App& app) { define_command<CompareCommand>(app); }

}  // namespace cairn::text_search

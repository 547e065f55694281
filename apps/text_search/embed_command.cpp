// text-search embed: the embeddings of a text file's lines.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/progress.h"
#include "apps/common/run_folder.h"
#include "apps/text_search/commands.h"
#include "apps/text_search/model_command.h"
#include "apps/text_search/rows.h"
#include "apps/text_search/text_lines.h"
#include "nn/io/file.h"

namespace cairn::text_search {
namespace {

namespace fs = std::filesystem;

// So many batches are sorted by length together.
constexpr int64_t batches_at_once = 16;

// The file that is written, until it gets its name. Removed unless it is renamed.
struct TemporaryFile {
  explicit TemporaryFile(const fs::path& out) : path(out.string() + concat(".", getpid(), ".new")), file(path) {}
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  fs::path path;
  FileWriter file;
};

struct EmbedCommand : ModelCommand {
  explicit EmbedCommand(CLI::App& app)
      : ModelCommand(app, "embed", "Write the embeddings of a text file's lines",
                     "Each line is a text. The file --out gets `embeddings` [lines, features], float32, rows of "
                     "unit length\n(safetensors).\n\nExample:\n"
                     "  text-search embed --model model --text-file sentences.txt --out sentences.safetensors",
                     32) {
    add_path(command, "--text-file", file, "FILE", "the texts, a line each; - is standard input");
    add_path(command, "--out", out, "FILE", "write the embeddings here");
    options.text("attention", attention, "the attention variant");
    options.integer(
        "max-tokens", max_tokens, 3, 1 << 20,
        "tokens of a text at most, [CLS] and [SEP] included; by default as many as the model has positions");
    define_rest("texts that are embedded together; they bound the memory");
    on_run(command, [this] { execute(); });
  }

  void execute() {
    read_options();
    EmbedderOptions embedder_options = this->embedder_options(attention);
    embedder_options.max_tokens = max_tokens;
    check<UsageError>(!file.empty(), "expected --text-file with a file, or - for standard input");
    check<UsageError>(!out.empty(), "expected --out with a file for the embeddings");
    const fs::path path = output_path("--out", out, file == "-" ? "" : file);
    const Embedder embedder(embedder_options);
    note_if_full(*make_attention(embedder.attention()), embedder.max_tokens(), embedder.max_tokens(), output.quiet);
    const std::map<std::string, std::string> metadata = {{"model", model},
                                                         {"fingerprint", embedder.fingerprint()},
                                                         {"attention", embedder.attention()},
                                                         {"seed", std::to_string(common.seed)},
                                                         {"max_tokens", std::to_string(embedder.max_tokens())}};
    const auto begin = std::chrono::steady_clock::now();
    TemporaryFile temporary(path);
    const std::string header = rows_header(metadata, 0, embedder.features());
    temporary.file.write(header.data(), header.size());
    int64_t rows = 0, tokens = 0;
    std::vector<std::vector<int32_t>> texts(1);
    const int64_t total = count_lines(file);
    Progress progress(total, output.quiet || total == 0);
    const auto embed = [&] {
      if (texts.size() < 2) return;  // the last one is still being read
      texts.pop_back();
      const Tensor embeddings = embedder.embed(texts, [&](int64_t done, int64_t done_tokens) {
        if (interrupted()) throw Interrupted();
        progress.update(rows + done, concat(tokens + done_tokens, " tokens"));
      });
      temporary.file.write(embeddings.raw(), embeddings.bytes());
      rows += int64_t(texts.size());
      for (const auto& text : texts) tokens += int64_t(text.size());
      texts.assign(1, {});
    };
    tokenize_lines(
        embedder.tokenizer(), file, embedder.max_tokens(), [&](int32_t id) { texts.back().push_back(id); },
        [&] {
          texts.emplace_back();
          if (int64_t(texts.size()) > batches_at_once * batch) embed();
        });
    embed();
    progress.finish();
    temporary.file.overwrite(0, rows_header(metadata, rows, embedder.features()));
    temporary.file.sync();
    rename_file(temporary.path, path);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const nlohmann::ordered_json json = {{"out", out}, {"texts", rows}, {"tokens", tokens}, {"seconds", seconds}};
    print(output.json ? json.dump() + "\n"
                      : concat(out, ": ", rows, " texts, ", tokens, " tokens in ", formatted("%.1f s, ", seconds),
                               formatted("%.0f tokens/s\n", double(tokens) / seconds)));
  }

  std::string file, out, attention = "full";
  int64_t max_tokens = 0;
};

}  // namespace

void define_embed(CLI::App& app) { define_command<EmbedCommand>(app); }

}  // namespace cairn::text_search

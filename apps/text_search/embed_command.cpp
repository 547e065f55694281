// text-search embed: the embeddings of a text file's lines.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/artifact.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/text_search/commands.h"
#include "apps/text_search/files.h"
#include "apps/text_search/model_settings.h"
#include "nn/attention/attention.h"
#include "nn/io/safetensors.h"

namespace cairn::text_search {
namespace {

struct EmbedCommand : Command {
  EmbedCommand()
      : Command("embed", "Write the embeddings of a text file's lines",
                "Each line is a text. The file --out gets `embeddings` [lines, features], float32, rows of "
                "unit length\n(safetensors).\n\nExample:\n"
                "  text-search embed --model model --text-file sentences.txt --out sentences.safetensors") {}

  void fields(SettingFields& f) override {
    model.model_field(f);
    f("text-file", file, Text::file, "the texts, a line each; - is standard input", Keep::no);
    f("out", out, Text::file, "write the embeddings here", Keep::no);
    f("attention", attention, Text::variant, "the attention variant");
    f("max-tokens", max_tokens, {3, 1 << 20},
      "tokens of a text at most, [CLS] and [SEP] included; by default as many as the model has positions");
    model.fields(f, "texts that are embedded together");
  }

  void run(Communicator&) override {
    catch_interrupts(quiet);
    EmbedderOptions embedder_options = model.embedder_options("embed", attention);
    embedder_options.max_tokens = max_tokens;
    check<UsageError>(!file.empty(), "expected --text-file with a file, or - for standard input");
    check<UsageError>(!out.empty(), "expected --out with a file for the embeddings");
    const std::filesystem::path path = output_path("--out", out, file == "-" ? "" : file);
    const Embedder embedder(embedder_options);
    note_if_full(*make_attention(embedder.attention()), embedder.max_tokens(), embedder.max_tokens(), quiet);

    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::vector<int32_t>> texts;
    int64_t tokens = 0;
    for (const std::string& line : lines_of(read_input(file))) {
      texts.push_back(embedder.tokenizer().encode(line, embedder.max_tokens()));
      tokens += int64_t(texts.back().size());
    }
    Progress progress(int64_t(texts.size()), quiet || texts.empty());
    const Tensor embeddings = embedder.embed(texts, [&](int64_t done, int64_t done_tokens) {
      if (interrupted()) throw Interrupted();
      progress.update(done, concat(done_tokens, " tokens"));
    });
    progress.finish();
    TensorFile rows;
    rows.tensors = {{"embeddings", embeddings}};
    rows.metadata = {{"model", model.model},
                     {"fingerprint", embedder.fingerprint()},
                     {"attention", embedder.attention()},
                     {"seed", std::to_string(model.compute.seed)},
                     {"max_tokens", std::to_string(embedder.max_tokens())}};
    write_safetensors(path, rows);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    tell({{"out", out}, {"texts", texts.size()}, {"tokens", tokens}, {"seconds", seconds}},
         concat(out, ": ", texts.size(), " texts, ", tokens, " tokens in ", formatted("%.1f s, ", seconds),
                formatted("%.0f tokens/s\n", double(tokens) / seconds)));
  }

  ModelSettings model{"", 32, {}};
  std::string file, out, attention = "full";
  int64_t max_tokens = 0;
};

}  // namespace

std::unique_ptr<Command> make_embed() { return std::make_unique<EmbedCommand>(); }

}  // namespace cairn::text_search

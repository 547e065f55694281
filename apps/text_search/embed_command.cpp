// text-search embed: writes the embeddings of a text file's lines.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/common/artifact.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/text_search/embedder.h"
#include "apps/text_search/files.h"
#include "core/error.h"
#include "nn/io/safetensors.h"

namespace cairn::text_search {
namespace {

struct EmbedCommand : Command {
  EmbedCommand()
      : Command(
            "embed", "Write the embeddings of a text file's lines",
            "Each line is a text. --out is a safetensors file with `embeddings` [lines, features], float32, in rows\n"
            "of unit length.\n\nExample:\n"
            "  text-search embed --model model --text-file sentences.txt --out sentences.safetensors") {}

  void fields(SettingFields& f) override {
    f("text-file", file, Text::file, "file with one text per line; - is standard input", Keep::no);
    f("out", out, Text::file, "file to write the embeddings to", Keep::no);
    f("attention", options.attention, Text::variant, "attention variant");
    options.fields(f);
  }

  void run(Communicator&) override {
    catch_interrupts(quiet);
    check<UsageError>(!file.empty(), "expected --text-file with a file, or - for standard input");
    check<UsageError>(!out.empty(), "expected --out with a file for the embeddings");
    const std::filesystem::path path = output_path("--out", out, file == "-" ? "" : file);
    const Embedder embedder(options);
    const Stopwatch time;
    Sequences texts;
    int64_t tokens = 0;
    for (const std::string& line : lines_of(read_input(file))) {
      texts.push_back(embedder.tokenizer().encode(line, embedder.max_tokens()));
      tokens += int64_t(texts.back().size());
    }
    write_safetensors(path, {{{"embeddings", embedder.embed(texts, quiet)}}, {}, {}});
    const double seconds = time.seconds();
    tell({{"out", out}, {"texts", texts.size()}, {"tokens", tokens}, {"seconds", seconds}},
         concat(out, ": texts: ", texts.size(), ", tokens: ", tokens, "; ", formatted("%.1f s, ", seconds),
                formatted("%.0f tokens/s\n", double(tokens) / seconds)));
  }

  EmbedderOptions options;
  std::string file, out;
};

}  // namespace

std::unique_ptr<Command> make_embed() { return std::make_unique<EmbedCommand>(); }

}  // namespace cairn::text_search

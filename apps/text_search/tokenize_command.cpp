// text-search tokenize: the tokens of a text file's lines.
#include "apps/common/options.h"
#include "apps/common/program.h"
#include "apps/text_search/commands.h"
#include "apps/text_search/model_command.h"
#include "apps/text_search/text_lines.h"

namespace cairn::text_search {
namespace {

struct TokenizeCommand {
  explicit TokenizeCommand(CLI::App& app)
      : command(
            add_command(app, "tokenize", "Print the tokens of each line of a text file",
                        "A line of the file becomes a line with a JSON array: the numbers of its tokens in vocab.txt, "
                        "from 0,\n[CLS] first and [SEP] last.\n\nExamples:\n"
                        "  text-search tokenize --model model --text-file words.txt\n"
                        "  echo 'a stitch in time' | text-search tokenize --model model --text-file -")),
        options(&command) {
    add_path(command, "--model", model, "DIR",
             "the model's folder: vocab.txt and, if there is one, tokenizer_config.json");
    add_path(command, "--text-file", file, "FILE", "the text; - is standard input");
    options.integer("max-tokens", max_tokens, 2, int64_t(1) << 40,
                    "leave out what is beyond so many tokens of a line, [CLS] and [SEP] included");
    on_run(command, [this] { execute(); });
  }

  void execute() {
    options.read();
    options.assign();
    expect_model(model, "tokenize");
    check<UsageError>(!file.empty(), "expected --text-file with a file, or - for standard input");
    const WordPiece tokenizer = read_wordpiece(model);
    std::string text;  // not printed yet
    const auto put = [&](size_t enough) {
      if (text.size() < enough) return;
      print(text);
      text.clear();
    };
    bool first = true;
    tokenize_lines(
        tokenizer, file, max_tokens,
        [&](int32_t id) {
          text += first ? "[" : ", ";
          append(text, id);
          first = false;
          put(size_t{1} << 16);
        },
        [&] {
          text += "]\n";
          first = true;
          put(size_t{1} << 16);
        });
    put(1);
  }

  CLI::App& command;
  Options options;
  std::string model, file;
  int64_t max_tokens = 0;
};

}  // namespace

void define_tokenize(CLI::App& app) { define_command<TokenizeCommand>(app); }

}  // namespace cairn::text_search

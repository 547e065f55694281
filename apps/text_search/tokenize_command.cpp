// text-search tokenize: the tokens of a text file's lines.
#include <nlohmann/json.hpp>
#include <string>

#include "apps/common/program.h"
#include "apps/text_search/commands.h"
#include "apps/text_search/files.h"
#include "apps/text_search/model_command.h"
#include "apps/text_search/wordpiece.h"
#include "core/error.h"

namespace cairn::text_search {
namespace {

struct TokenizeCommand {
  explicit TokenizeCommand(CLI::App& app)
      : command(
            add_command(app, "tokenize", "Print the tokens of each line of a text file",
                        "A line of the file becomes a line with a JSON array: the numbers of its tokens in vocab.txt, "
                        "from 0,\n[CLS] first and [SEP] last.\n\nExamples:\n"
                        "  text-search tokenize --model model --text-file words.txt\n"
                        "  echo 'a stitch in time' | text-search tokenize --model model --text-file -")) {
    add_path(command, "--model", model, "DIR",
             "the model's folder: vocab.txt and, if there is one, tokenizer_config.json");
    add_path(command, "--text-file", file, "FILE", "the text; - is standard input");
    on_run(command, [this] { execute(); });
  }

  void execute() const {
    expect_model(model, "tokenize");
    check<UsageError>(!file.empty(), "expected --text-file with a file, or - for standard input");
    const WordPiece tokenizer = read_wordpiece(model);
    for (const std::string& line : lines_of(read_input(file)))
      print(nlohmann::json(tokenizer.encode(line)).dump() + "\n");
  }

  CLI::App& command;
  std::string model, file;
};

}  // namespace

void define_tokenize(CLI::App& app) { define_command<TokenizeCommand>(app); }

}  // namespace cairn::text_search

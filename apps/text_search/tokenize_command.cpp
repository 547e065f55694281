// text-search tokenize: prints the tokens of a text file's lines.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/common/program.h"
#include "apps/text_search/files.h"
#include "apps/text_search/wordpiece.h"
#include "core/error.h"

namespace cairn::text_search {
namespace {

struct TokenizeCommand : Command {
  TokenizeCommand()
      : Command("tokenize", "Print the tokens of each line of a text file",
                "Prints a JSON array of token ids for each line. An id is a line number in vocab.txt, counted from 0.\n"
                "[CLS] is the first and [SEP] the last.\n\nExamples:\n"
                "  text-search tokenize --model model --text-file words.txt\n"
                "  echo 'a stitch in time' | text-search tokenize --model model --text-file -") {}

  void fields(SettingFields& f) override {
    f("model", model, Text::folder, "folder with vocab.txt and, if it exists, tokenizer_config.json", Keep::no);
    f("text-file", file, Text::file, "text file; - is standard input", Keep::no);
  }

  void run(Communicator&) override {
    check<UsageError>(!file.empty(), "expected --text-file with a file, or - for standard input");
    const WordPiece tokenizer = read_wordpiece(model);
    for (const std::string& line : lines_of(read_input(file)))
      print(nlohmann::json(tokenizer.encode(line)).dump() + "\n");
  }

  std::string model, file;
};

}  // namespace

std::unique_ptr<Command> make_tokenize() { return std::make_unique<TokenizeCommand>(); }

}  // namespace cairn::text_search

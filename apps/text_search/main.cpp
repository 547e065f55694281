// text-search: finds texts by their meaning.
#include "apps/common/program.h"

namespace cairn::text_search {
// embed and tokenize are in line_commands.cpp; the others in their <command>_command.cpp.
void index_command(CommandLine& line);
void query_command(CommandLine& line);
void embed_command(CommandLine& line);
void tokenize_command(CommandLine& line);
void compare_command(CommandLine& line);
}  // namespace cairn::text_search

int main(int argc, char** argv) {
  using namespace cairn::text_search;
  return cairn::run_program(
      "text-search", "Search your own text by meaning.",
      "Examples:\n"
      "  text-search index ~/notes --model model --out notes.index\n"
      "  text-search query 'how are checkpoints saved?' --index notes.index\n"
      "  text-search compare ~/notes --model model\n",
      {{"index", index_command, "Index the text files below folders"},
       {"query", query_command, "Find passages by their meaning"},
       {"embed", embed_command, "Write the embeddings of a text file's lines"},
       {"tokenize", tokenize_command, "Print the tokens of each line of a text file"},
       {"compare", compare_command, "Compare attention variants in a pretrained model on your own text"}},
      argc, argv);
}

// text-search: finds texts by their meaning.
#include "apps/common/program.h"

namespace cairn::text_search {
// embed and tokenize are in line_commands.cpp; the others in their <command>_command.cpp.
std::unique_ptr<Command> make_index();
std::unique_ptr<Command> make_query();
std::unique_ptr<Command> make_embed();
std::unique_ptr<Command> make_tokenize();
std::unique_ptr<Command> make_compare();
}  // namespace cairn::text_search

int main(int argc, char** argv) {
  return cairn::run_program(
      "text-search", "Search your own text by meaning.",
      "Examples:\n"
      "  text-search index ~/notes --model model --out notes.index\n"
      "  text-search query 'how are checkpoints saved?' --index notes.index\n"
      "  text-search compare ~/notes --model model\n",
      {cairn::text_search::make_index, cairn::text_search::make_query, cairn::text_search::make_embed,
       cairn::text_search::make_tokenize, cairn::text_search::make_compare},
      argc, argv);
}

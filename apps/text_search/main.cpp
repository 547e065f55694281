// text-search: finds texts by their meaning.
#include "apps/common/program.h"
#include "apps/text_search/commands.h"

int main(int argc, char** argv) {
  return cairn::run_program(
      "text-search", "Search your own text by meaning.",
      "Examples:\n"
      "  text-search index ~/notes --model model --out notes.index\n"
      "  text-search query 'how are checkpoints saved?' --index notes.index\n"
      "  text-search compare ~/notes --model model\n"
      "\n"
      "Exit codes: 0 done, 1 failure, 2 usage or configuration, 3 bad data or model,\n"
      "4 device or out of memory, 130 interrupted.",
      {cairn::text_search::make_index, cairn::text_search::make_query, cairn::text_search::make_embed,
       cairn::text_search::make_tokenize, cairn::text_search::make_compare},
      argc, argv);
}

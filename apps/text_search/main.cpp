// text-search: texts found by their meaning.
#include "apps/common/program.h"
#include "apps/text_search/commands.h"

int main(int argc, char** argv) {
  return cairn::run_program("text-search", "Search your own text by meaning.",
                            "Examples:\n"
                            "  text-search index ~/notes --model model --out notes.index\n"
                            "  text-search query 'how are checkpoints saved?' --index notes.index\n"
                            "  text-search compare ~/notes --model model\n"
                            "\n"
                            "Exit codes: 0 done, 1 failure, 2 usage or configuration, 3 bad data or model,\n"
                            "4 device or out of memory, 130 interrupted.",
                            argc, argv, [](CLI::App& app) {
                              using namespace cairn::text_search;
                              define_index(app);
                              define_query(app);
                              define_embed(app);
                              define_tokenize(app);
                              define_compare(app);
                            });
}

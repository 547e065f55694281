#pragma once
// The commands of text-search. Each define_* adds one to the program.
namespace CLI {
class App;
}

namespace cairn::text_search {

void define_index(CLI::App& app);
void define_query(CLI::App& app);
void define_embed(CLI::App& app);
void define_tokenize(CLI::App& app);
void define_compare(CLI::App& app);

}  // namespace cairn::text_search

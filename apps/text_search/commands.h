#pragma once
// The commands of text-search.
#include <memory>

#include "apps/common/command.h"

namespace cairn::text_search {

std::unique_ptr<Command> make_index();
std::unique_ptr<Command> make_query();
std::unique_ptr<Command> make_embed();
std::unique_ptr<Command> make_tokenize();
std::unique_ptr<Command> make_compare();

}  // namespace cairn::text_search

#pragma once
// The commands of attention-bench.
#include <memory>

#include "apps/common/command.h"

namespace cairn::attention_bench {

std::unique_ptr<Command> make_run();
std::unique_ptr<Command> make_figure();

}  // namespace cairn::attention_bench

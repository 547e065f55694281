#pragma once
// The commands of copy-task.
#include <memory>

#include "apps/common/command.h"

namespace cairn::copy_task {

std::unique_ptr<Command> make_train();
std::unique_ptr<Command> make_evaluate();
std::unique_ptr<Command> make_show();
std::unique_ptr<Command> make_figure();

}  // namespace cairn::copy_task

// copy-task: a transformer learns to copy masked symbols (the paper's appendix C.2).
#include "apps/common/program.h"

namespace cairn::copy_task {
// Each is in its <command>_command.cpp.
std::unique_ptr<Command> make_train();
std::unique_ptr<Command> make_evaluate();
std::unique_ptr<Command> make_show();
std::unique_ptr<Command> make_figure();
}  // namespace cairn::copy_task

int main(int argc, char** argv) {
  return cairn::run_program(
      "copy-task",
      "The masked copy task: a transformer learns to fill in the masked symbols of one copy from the other copy.",
      "Examples:\n"
      "  copy-task train --quick --out run       train in one to four minutes, save everything in run/\n"
      "  copy-task evaluate --run run --attention full,clustered-15\n"
      "  copy-task show --run run                the model's answer to an example, and its attention\n",
      {cairn::copy_task::make_train, cairn::copy_task::make_evaluate, cairn::copy_task::make_show,
       cairn::copy_task::make_figure},
      argc, argv);
}

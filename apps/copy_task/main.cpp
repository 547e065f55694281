// copy-task: a transformer learns to copy masked symbols (the paper's appendix C.2).
#include "apps/copy_task/commands.h"

#include "apps/common/program.h"

int main(int argc, char** argv) {
  return cairn::run_program(
      "copy-task",
      "The masked copy task: a transformer learns to fill in the masked symbols of one copy from the other copy.",
      "Examples:\n"
      "  copy-task train --quick --out run       train in a minute or two, save everything in run/\n"
      "  copy-task evaluate --run run --attention full,clustered-15\n"
      "  copy-task show --run run                the model's answer to an example, and its attention\n"
      "\n"
      "Exit codes: 0 done, 1 failure, 2 usage or configuration, 3 bad data or checkpoint,\n"
      "4 device or out of memory, 5 diverged, 130 interrupted (after saving; a second\n"
      "Ctrl-C, more than half a second after the first, ends it at once).",
      {cairn::copy_task::make_train, cairn::copy_task::make_evaluate, cairn::copy_task::make_show,
       cairn::copy_task::make_figure},
      argc, argv);
}

// copy-task: a transformer learns to copy masked symbols (the paper's appendix C.2).
#include "apps/common/program.h"

namespace cairn::copy_task {
// train is in train.cpp, each other one in its <command>_command.cpp.
void train_command(CommandLine& line);
void evaluate_command(CommandLine& line);
void show_command(CommandLine& line);
void figure_command(CommandLine& line);
}  // namespace cairn::copy_task

int main(int argc, char** argv) {
  using namespace cairn::copy_task;
  return cairn::run_program(
      "copy-task",
      "The masked copy task: a transformer learns to fill in the masked symbols of one copy from the other copy.",
      "Examples:\n"
      "  copy-task train --quick --out run       train in one to five minutes, save everything in run/\n"
      "  copy-task evaluate --run run --attention full,clustered-15\n"
      "  copy-task show --run run                the model's answer to an example, and its attention\n",
      {{"train", train_command, "Train on fresh sequences, then evaluate"},
       {"evaluate", evaluate_command, "Evaluate a trained model, with its own attention or with other variants"},
       {"show", show_command, "Show an example or your own sequence, and the answer of a trained model"},
       {"figure", figure_command, "Reproduce the paper's figure 5: train every variant at every length"}},
      argc, argv);
}

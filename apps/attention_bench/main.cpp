// attention-bench: measures the time and memory of attention variants (the paper's appendix C.1 and figure 4).
#include "apps/common/program.h"

namespace cairn::attention_bench {
// Each is in its <command>_command.cpp.
void run_command(CommandLine& line);
void figure_command(CommandLine& line);
}  // namespace cairn::attention_bench

int main(int argc, char** argv) {
  using namespace cairn::attention_bench;
  return cairn::run_program(
      "attention-bench", "Measure the time and memory of attention variants at any length.",
      "Examples:\n"
      "  attention-bench run --attention i-clustered-100 --length 4096\n"
      "  attention-bench run --attention full,i-clustered-100 --length 4096 --what attention --stages\n"
      "  attention-bench figure --out figure4\n",
      {{"run", run_command, "Measure attention variants at one length"},
       {"figure", figure_command, "Draw the paper's figure 4: time and memory by length"}},
      argc, argv);
}

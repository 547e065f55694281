// attention-bench: measures the time and memory of attention variants (the paper's appendix C.1 and figure 4).
#include "apps/attention_bench/settings.h"

#include "apps/common/program.h"

int main(int argc, char** argv) {
  return cairn::run_program(
      "attention-bench", "Measure the time and memory of attention variants at any length.",
      "Examples:\n"
      "  attention-bench run --attention i-clustered-100 --length 4096\n"
      "  attention-bench run --attention full,i-clustered-100 --length 4096 --what attention --stages\n"
      "  attention-bench figure --out figure4\n"
      "\n"
      "Exit codes: 0 done, 1 failure, 2 usage, 4 device or out of memory, 130 interrupted.",
      {cairn::attention_bench::make_run, cairn::attention_bench::make_figure}, argc, argv);
}

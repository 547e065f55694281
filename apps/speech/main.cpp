// speech: a transformer learns to recognize the phones of recorded speech, with CTC (the paper's section 4.1).
#include "apps/common/program.h"
#include "apps/speech/model.h"

namespace cairn::speech {
// train is in train.cpp, each other one in its <command>_command.cpp.
void prepare_command(CommandLine& line);
void train_command(CommandLine& line);
void evaluate_command(CommandLine& line);
void transcribe_command(CommandLine& line);
void compare_command(CommandLine& line);
}  // namespace cairn::speech

int main(int argc, char** argv) {
  using namespace cairn::speech;
  add_no_attention();
  return cairn::run_program(
      "speech", "Speech recognition: a transformer learns to write down the phones of recordings.",
      "Examples:\n"
      "  apps/speech/corpus.sh corpus            fetches 1.7 hours of Russian sentences (180 MB)\n"
      "  speech prepare --festvox corpus/msu_ru_nsh_clunits --out russian.data\n"
      "  speech train --quick --data russian.data --out run\n"
      "  speech evaluate --run run --data russian.data --attention full,i-clustered-25\n"
      "  speech transcribe --run run a.wav\n"
      "  speech compare --runs run,other --attention full,i-clustered-25 --out page.html\n",
      {{"prepare", prepare_command, "Compute the features of recordings, for training and evaluation"},
       {"train", train_command, "Train a recognizer on prepared data, and keep the best model on dev"},
       {"evaluate", evaluate_command, "Evaluate a trained model, with its own attention or with other variants"},
       {"transcribe", transcribe_command, "Write down the phones of recordings"},
       {"compare", compare_command, "Compare trained models, each with several attention variants, on one page"}},
      argc, argv);
}

// speech: a transformer learns to recognize the phones of recorded speech, with CTC (the paper's section 4.1).
#include "apps/common/program.h"
#include "apps/speech/model.h"

namespace cairn::speech {
// Each is in its <command>_command.cpp.
std::unique_ptr<Command> make_prepare();
std::unique_ptr<Command> make_train();
std::unique_ptr<Command> make_evaluate();
std::unique_ptr<Command> make_transcribe();
std::unique_ptr<Command> make_compare();
}  // namespace cairn::speech

int main(int argc, char** argv) {
  cairn::speech::add_no_attention();
  return cairn::run_program(
      "speech", "Speech recognition: a transformer learns to write down the phones of recordings.",
      "Examples:\n"
      "  apps/speech/corpus.sh corpus            fetches 1.7 hours of Russian sentences (180 MB)\n"
      "  speech prepare --festvox corpus/msu_ru_nsh_clunits --out russian.data\n"
      "  speech train --quick --data russian.data --out run\n"
      "  speech evaluate --run run --data russian.data --attention full,i-clustered-25\n"
      "  speech transcribe --run run a.wav\n"
      "  speech compare --runs run,other --attention full,i-clustered-25 --out page.html\n",
      {cairn::speech::make_prepare, cairn::speech::make_train, cairn::speech::make_evaluate,
       cairn::speech::make_transcribe, cairn::speech::make_compare},
      argc, argv);
}

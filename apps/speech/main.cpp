// speech: a transformer learns to recognize the phones of recorded speech, with CTC (the paper's section 4.1).
#include "apps/common/program.h"
#include "apps/speech/commands.h"
#include "apps/speech/model.h"

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
      "\n"
      "Exit codes: 0 done, 1 failure, 2 usage or configuration, 3 bad data or checkpoint,\n"
      "4 device or out of memory, 5 diverged, 130 interrupted (after saving; a second\n"
      "Ctrl-C, more than half a second after the first, ends it at once).",
      {cairn::speech::make_prepare, cairn::speech::make_train, cairn::speech::make_evaluate,
       cairn::speech::make_transcribe},
      argc, argv);
}

// speech train
#include <memory>

#include "apps/speech/train.h"

namespace cairn::speech {
namespace {

struct Train : TrainCommand {
  Train()
      : TrainCommand("Train a recognizer on prepared data, and keep the best model on dev",
                     "  speech train --quick --data russian.data --out run\n"
                     "  speech train --data russian.data --out run --resume\n"
                     "  speech train --quick --data russian.data --init-from run --join 3 --batch-frames 6000 \\\n"
                     "    --shift-positions 0 --lr 1e-3 --warm-up 20 --iterations 500 --out tuned") {}

  void fields(SettingFields& f) override {
    settings.fields(f);
    TrainCommand::fields(f);
  }

  std::unique_ptr<RunTask> make_task(bool begins, Communicator&) override {
    const DeviceAndDType compute = settings.compute.apply();
    check<UsageError>(!settings.data.empty(), "expected --data with prepared data; speech prepare makes it");
    settings.training.validate(settings.model, compute.device);
    const Corpus corpus = read_corpus(read_safetensors(settings.data));
    return std::make_unique<SpeechTask>(settings, compute, corpus, begins ? settings.init_from : "");
  }

  Settings settings;
};

}  // namespace

std::unique_ptr<Command> make_train() { return std::make_unique<Train>(); }

}  // namespace cairn::speech

// speech train
#include <nlohmann/json.hpp>

#include "apps/common/training_run.h"
#include "apps/speech/train.h"

namespace cairn::speech {

using Json = nlohmann::ordered_json;

void train_command(CommandLine& line) {
  Settings settings;
  settings.fields(line);
  run_training(
      line,
      "  speech train --quick --data russian.data --out run\n"
      "  speech train --data russian.data --out run --resume\n"
      "  speech train --quick --data russian.data --init-from run --join 3 --batch-frames 6000 \\\n"
      "    --shift-positions 0 --lr 1e-3 --warm-up 20 --iterations 500 --out tuned",
      [&](const Run& run) {
        const DeviceAndDType compute = settings.compute.apply();
        check<UsageError>(!settings.data.empty(), "expected --data with prepared data; speech prepare makes it");
        settings.training.validate(settings.model, compute.device);
        return train(run, settings, compute);
      },
      [](const Json& result) { return concat("On dev, the ", evaluated_model(result), ":\n", metrics_text(result)); });
}

}  // namespace cairn::speech

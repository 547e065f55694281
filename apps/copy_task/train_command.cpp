// copy-task train
#include <nlohmann/json.hpp>

#include "apps/common/training_run.h"
#include "apps/copy_task/train.h"

namespace cairn::copy_task {

using Json = nlohmann::ordered_json;

void train_command(CommandLine& line) {
  Settings settings;
  settings.fields(line);
  line.many_processes = true;
  run_training(
      line,
      "  copy-task train --quick --out run\n"
      "  copy-task train --out run --resume\n"
      "  copy-task train --attention i-clustered-15 --length 31 --seed 1\n"
      "  copy-task train --config run/config.json --init-from run --seed 2 --lr 1e-5 \\\n"
      "    --attention i-clustered-30 --stop-at 0 --out tuned     fine-tune with more clusters",
      [&](const Run& run) {
        const DeviceAndDType compute = settings.compute.apply();
        settings.training.validate(settings.model, compute.device);
        const int processes = run.ranks.size();
        check<UsageError>(settings.training.average_every == 0 || settings.batch >= processes,
                          "--average-every: expected a --batch with at least one sequence for each of the ", processes,
                          " processes, got ", settings.batch);
        return train(run, settings, compute);
      },
      [](const Json& result) {
        return concat("On ", result.at("sequences").get<int64_t>(), " fresh sequences:\n", metrics_text(result));
      });
}

}  // namespace cairn::copy_task

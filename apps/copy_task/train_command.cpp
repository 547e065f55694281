// copy-task train
#include <memory>

#include "apps/common/program.h"
#include "apps/copy_task/train.h"

namespace cairn::copy_task {
namespace {

struct Train : TrainCommand {
  Train()
      : TrainCommand("Train on fresh sequences, then evaluate",
                     "  copy-task train --quick --out run\n"
                     "  copy-task train --out run --resume\n"
                     "  copy-task train --attention i-clustered-15 --length 31 --seed 1\n"
                     "  copy-task train --config run/config.json --init-from run --seed 2 --lr 1e-5 \\\n"
                     "    --attention i-clustered-30 --stop-at 0 --out tuned     fine-tune with more clusters") {
    many_processes = true;
  }

  void fields(SettingFields& f) override {
    settings.fields(f);
    TrainCommand::fields(f);
  }

  std::unique_ptr<RunTask> make_task(bool begins, Communicator& ranks) override {
    const DeviceAndDType compute = settings.compute.apply();
    settings.training.validate(settings.model, compute.device);
    check<UsageError>(settings.training.average_every == 0 || settings.batch >= ranks.size(),
                      "--average-every: expected a --batch with at least one sequence for each of the ", ranks.size(),
                      " processes, got ", settings.batch);
    auto task = std::make_unique<CopyTask>(settings, compute, begins ? settings.init_from : "");
    note(task->model().full_note(), quiet);
    return task;
  }

  Settings settings;
};

}  // namespace

std::unique_ptr<Command> make_train() { return std::make_unique<Train>(); }

}  // namespace cairn::copy_task

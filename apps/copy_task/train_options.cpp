#include "apps/copy_task/train_options.h"

#include <memory>
#include <utility>

#include "apps/common/format.h"
#include "apps/common/options.h"

namespace cairn::copy_task {
namespace {

// Refuses a model that cannot fit: each parameter has a gradient and two moments.
void check_memory(const TransformerOptions& model, Device device) {
  const double f = double(model.features()), hidden = double(model.feed_forward);
  const double bytes = 4 * sizeof(float) * double(model.layers) * (4 * f * f + 2 * f * hidden);
  const double available = double(available_memory(device));
  const auto gigabytes = [](double size) { return formatted("%.1f GB", size / 1e9); };
  check<DeviceError>(bytes <= available, "out of memory on ", name(device),
                     ": the parameters, their gradients and moments need ", gigabytes(bytes), ", ",
                     device == Device::cpu ? "this process may have " : "the device has free ", gigabytes(available),
                     "; reduce --layers, --heads, --head-size or --feed-forward");
}

}  // namespace

std::unique_ptr<Schedule> make_schedule(const TrainOptions& options) {
  std::unique_ptr<Schedule> schedule;
  about_option("--schedule " + options.schedule, [&] {
    if (options.schedule == "plateau")
      schedule = std::make_unique<DropOnPlateau>(options.learning_rate, options.plateau);
    else
      schedule = std::make_unique<Constant>(options.learning_rate);
  });
  return schedule;
}

// Error (DataError): weights of another model.
void initialize(Model& model, const FoundCheckpoint& from) try {
  restore(from, model, nullptr);
} catch (const DataError& error) {
  throw DataError(concat("--init-from: ", error.what(), "; give the options of the run that made these weights"));
}

// Weights are evaluated and saved where all processes have the same.
void check_average_every(const TrainOptions& options) {
  if (options.average_every == 0) return;
  for (const auto& [name, steps] :
       {std::pair("--iterations", options.iterations), std::pair("--evaluate-every", options.evaluate_every),
        std::pair("--checkpoint-every", options.checkpoint_every)})
    check<UsageError>(steps % options.average_every == 0, name, " ", steps, ": expected a multiple of --average-every ",
                      options.average_every);
}

void check_options(const TrainOptions& options) {
  check_average_every(options);
  options.model.validate();
  check_memory(options.model, options.compute.device);
  make_schedule(options);
  if (options.init_from) {
    Generator generator(options.seed);
    Model model(options.model, 1, generator);
    initialize(model, *options.init_from);
  }
}

}  // namespace cairn::copy_task

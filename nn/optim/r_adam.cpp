#include "nn/optim/r_adam.h"

#include <utility>

#include "core/dispatch.h"

namespace cairn {

RAdam::RAdam(std::vector<Variable> parameters, double learning_rate, const AdamOptions& options)
    : Optimizer(std::move(parameters), Moments::both, learning_rate), options_(options) {
  check_options("r_adam", options);
  options_.rectified = true;
}

void RAdam::update() {
  CAIRN_RUN("r_adam", first_value(), adam_step<T>(stream, count(), slices<T>(), options_, device_state()));
}

}  // namespace cairn

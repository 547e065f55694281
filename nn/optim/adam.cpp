#include "nn/optim/adam.h"

#include <utility>

#include "core/dispatch.h"

namespace cairn {

Adam::Adam(std::vector<Variable> parameters, double learning_rate, const AdamOptions& options)
    : Optimizer(std::move(parameters), Moments::both, learning_rate), options_(options) {
  check_options(options.rectified ? "r_adam" : "adam", options);
}

void Adam::update() {
  CAIRN_RUN(options_.rectified ? "r_adam" : "adam", first_value(),
            adam_step<T>(stream, count(), slices<T>(), options_, device_state()));
}

}  // namespace cairn

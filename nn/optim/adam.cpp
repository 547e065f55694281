#include "nn/optim/adam.h"

#include <cmath>
#include <limits>
#include <utility>

#include "core/dispatch.h"

namespace cairn {

Adam::Adam(std::vector<Variable> parameters, double learning_rate, const AdamOptions& options)
    : Optimizer(std::move(parameters), Moments::both, learning_rate), options_(options) {
  const char* const name = options.rectified ? "r_adam" : "adam";
  check_option(name, "beta1", options.beta1, 0, 1);
  check_option(name, "beta2", options.beta2, 0, 1);
  check_option(name, "epsilon", options.epsilon, std::numeric_limits<float>::min(), INFINITY);
  check_option(name, "weight_decay", options.weight_decay, 0, INFINITY);
}

void Adam::update(const StepSettings& settings) {
  CAIRN_RUN(options_.rectified ? "r_adam" : "adam", first_value(),
            adam_step<T>(stream, slices<T>(), options_, settings, device_state()));
}

}  // namespace cairn

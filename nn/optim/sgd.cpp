#include "nn/optim/sgd.h"

#include <cmath>
#include <utility>

#include "core/dispatch.h"

namespace cairn {

Sgd::Sgd(std::vector<Variable> parameters, double learning_rate, const SgdOptions& options)
    : Optimizer(std::move(parameters), options.momentum != 0 ? Moments::first : Moments::none, learning_rate),
      options_(options) {
  check_option("sgd", "momentum", options.momentum, 0, 1);
  check_option("sgd", "weight_decay", options.weight_decay, 0, INFINITY);
}

void Sgd::update(const StepSettings& settings) {
  CAIRN_RUN("sgd", first_value(), sgd_step<T>(stream, slices<T>(), options_, settings, device_state()));
}

}  // namespace cairn

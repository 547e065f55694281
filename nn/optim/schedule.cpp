#include "nn/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace cairn {

static void check_rate(double rate) {
  check<UsageError>(std::isfinite(rate) && rate >= 0,
                    "schedule: expected the learning rate to be finite and at least 0, got ", rate);
}

void Schedule::set_state(const std::vector<double>& state) {
  check<DataError>(state.empty(), "schedule: expected no state, got ", state.size(), " numbers");
}

WarmUp::WarmUp(double rate, int64_t warm_up) : rate_(rate), warm_up_(warm_up) {
  check_rate(rate);
  check<UsageError>(warm_up >= 0, "warm_up: expected at least 0 steps, got ", warm_up);
}

double WarmUp::learning_rate(int64_t step) const {
  return step < warm_up_ ? rate_ * double(step + 1) / double(warm_up_) : rate_ * left_after(step - warm_up_);
}

LinearDecay::LinearDecay(double rate, int64_t steps, int64_t warm_up)
    : WarmUp(rate, warm_up), falling_steps_(steps - warm_up) {
  check<UsageError>(warm_up < steps, "decay: expected a warm-up of 0 to ", steps - 1, " steps, got ", warm_up);
}

double LinearDecay::left_after(int64_t step) const { return 1 - std::min(double(step) / double(falling_steps_), 1.0); }

double CosineDecay::left_after(int64_t step) const {
  return (1 - std::cos(std::numbers::pi * LinearDecay::left_after(step))) / 2;
}

DropOnPlateau::DropOnPlateau(double rate, const PlateauOptions& options)
    : options_(options), rate_(rate), best_(INFINITY) {
  check_rate(rate);
  const auto& [factor, patience, threshold] = options;
  check<UsageError>(factor > 0 && factor < 1, "drop_on_plateau: expected a factor in (0, 1), got ", factor);
  check<UsageError>(patience >= 0, "drop_on_plateau: expected a patience of at least 0, got ", patience);
  check<UsageError>(threshold >= 0 && threshold < 1, "drop_on_plateau: expected a threshold in [0, 1), got ",
                    threshold);
}

void DropOnPlateau::observe(double metric) {
  const bool improved = std::isinf(best_) ? metric < best_ : metric < best_ - options_.threshold * std::abs(best_);
  if (improved) {
    best_ = metric;
    waited_ = 0;
  } else if (++waited_ > options_.patience) {
    rate_ *= options_.factor;
    waited_ = 0;
  }
}

void DropOnPlateau::set_state(const std::vector<double>& state) {
  check<DataError>(state.size() == 3, "drop_on_plateau: expected a state of 3 numbers, got ", state.size());
  check<DataError>(std::isfinite(state[0]) && state[0] >= 0 && !std::isnan(state[1]) && state[2] >= 0 &&
                       state[2] <= double(options_.patience) && state[2] == std::floor(state[2]),
                   "drop_on_plateau: no state of this schedule: rate ", state[0], ", best ", state[1], ", waited ",
                   state[2]);
  rate_ = state[0];
  best_ = state[1];
  waited_ = int64_t(state[2]);
}

}  // namespace cairn

#pragma once
// Learning rates over a training. A schedule is asked before each step; the optimizer does not know it:
//
//   optimizer.set_learning_rate(schedule.learning_rate(step));
//
// A rate depends only on the step and on what was observed. So a resumed training that calls set_state() with a saved
// state() continues with the same rates.
#include <cstdint>
#include <vector>

namespace cairn {

class Schedule {
 public:
  virtual ~Schedule() = default;
  // The rate of a step; steps count from 0.
  virtual double learning_rate(int64_t step) const = 0;
  // Takes the monitored metric, once per evaluation. Less is better: give the negative of an accuracy.
  virtual void observe(double /*metric*/) {}

  // What observe() has changed, for checkpoints; empty if it changes nothing.
  virtual std::vector<double> state() const { return {}; }
  // Error (DataError): not a state of this schedule.
  virtual void set_state(const std::vector<double>& state);
};

// Rises linearly over the first `warm_up` steps, from rate / warm_up at step 0 to the rate itself, and stays there.
// Without a warm-up it is constant.
class WarmUp : public Schedule {
 public:
  // Error (UsageError): negative steps; a rate that is negative or not finite.
  explicit WarmUp(double rate, int64_t warm_up = 0);
  double learning_rate(int64_t step) const override;

 protected:
  // The fraction of the rate that is left so many steps after the warm-up.
  virtual double left_after(int64_t /*step*/) const { return 1; }

 private:
  double rate_;
  int64_t warm_up_;
};

// After the warm-up, falls linearly to 0 until `steps` steps are done, and stays there.
class LinearDecay : public WarmUp {
 public:
  // Error (UsageError): a rate that is negative or not finite; warm_up outside [0, steps).
  LinearDecay(double rate, int64_t steps, int64_t warm_up = 0);

 protected:
  double left_after(int64_t step) const override;

 private:
  int64_t falling_steps_;
};

// The same, but along half a cosine: slow, fast, slow (Loshchilov and Hutter 2017, without restarts).
class CosineDecay : public LinearDecay {
 public:
  using LinearDecay::LinearDecay;

 protected:
  double left_after(int64_t step) const override;
};

struct PlateauOptions {
  double factor = 0.1;      // a drop multiplies the rate by it; in (0, 1)
  int64_t patience = 10;    // tolerated evaluations without improvement; the next one drops the rate
  double threshold = 1e-4;  // an improvement is a metric below best - threshold |best|
};

// Constant, but multiplied by a factor whenever the metric has not improved for more than `patience` evaluations. NaN
// is no improvement. PyTorch's ReduceLROnPlateau (mode "min", relative threshold, no cooldown) does the same for
// metrics above 0.
class DropOnPlateau : public Schedule {
 public:
  // Error (UsageError): a rate, factor, patience or threshold outside its range.
  explicit DropOnPlateau(double rate, const PlateauOptions& options = {});
  double learning_rate(int64_t) const override { return rate_; }
  void observe(double metric) override;
  std::vector<double> state() const override { return {rate_, best_, double(waited_)}; }
  void set_state(const std::vector<double>& state) override;

 private:
  PlateauOptions options_;
  double rate_, best_;
  int64_t waited_ = 0;  // evaluations since the best, or since the last drop
};

}  // namespace cairn

#pragma once
// Work that is done again and again, such as a training step. On CUDA it is recorded after a few ordinary runs, and
// from then on one call queues all its kernels (a CUDA graph); on the CPU it just runs.
//
//   Tensor loss;
//   CapturedStep step(device, [&] { loss = train_on(input).value(); });
//   for (...) { input.copy_from(batch); step(); use(loss); }
//
// The work runs on the host only until it has been recorded. So what changes from one time to the next must reach it
// through tensors that were made before and are changed in place (`input`), it must not read numbers back, and a tensor
// that it makes and somebody keeps (`loss`) is overwritten by each replay.
#include <cstdint>
#include <functional>
#include <memory>

#include "core/device.h"

namespace cairn {

namespace gpu {
class Recording;
}

class CapturedStep {
 public:
  // `ordinary`: how many times it runs before it is recorded, at least once. CUDA loads a kernel when it is first
  // launched, which may have to wait for the device, and so must not happen while work is recorded; and gradients must
  // exist.
  CapturedStep(Device device, std::function<void()> work, int ordinary = 3);
  ~CapturedStep();

  // Does the work. Errors: whatever it throws; DeviceError: it cannot be recorded.
  void operator()();
  // How many times it was replayed.
  int64_t replays() const { return replays_; }

 private:
  [[maybe_unused]] Device device_;  // without CUDA there is no choice
  std::function<void()> work_;
  int ordinary_;
  int64_t replays_ = 0;
  std::shared_ptr<gpu::Recording> recording_;
};

}  // namespace cairn

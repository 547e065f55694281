#include "core/captured_step.h"

#include <utility>

#include "core/dispatch.h"
#include "core/kernels/memory.h"

namespace cairn {

CapturedStep::CapturedStep(Device device, std::function<void()> work, int ordinary)
    : device_(device), work_(std::move(work)), ordinary_(ordinary) {
  check(ordinary >= 1, "captured step: expected at least 1 ordinary run, got ", ordinary);
}

CapturedStep::~CapturedStep() = default;

void CapturedStep::operator()() {
#if CAIRN_HAS_CUDA
  if (device_ == Device::cuda && ordinary_ == 0) {
    if (!recording_) {
      auto recording = std::make_shared<gpu::Recording>(current_stream(device_));
      work_();
      recording->finish();
      recording_ = std::move(recording);
    }
    const trace::Span span("replay", "program");
    recording_->replay();
    ++replays_;
    return;
  }
#endif
  if (ordinary_ > 0) --ordinary_;
  work_();
}

}  // namespace cairn

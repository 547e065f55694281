#include "nn/parallel/nccl.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/kernels/memory.h"
#include "core/kernels/nccl.h"

namespace cairn {
namespace {

class GpuCommunicator : public Communicator {
 public:
  GpuCommunicator(std::unique_ptr<Communicator> host, int place, int there)
      : host_(std::move(host)), place_(place), there_(there) {}
  ~GpuCommunicator() override {
    try {
      if (!nccl_ || broken_) return;
      nccl_->start_finish();
      poll(&gpu::Nccl::settled);
    } catch (const std::exception&) {  // what there was to say has been said, or nobody needs to know
    }
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  int on_processors() const override { return host_->on_processors(); }

  // Takes the GPU that comes as often in turn as this process on its machine: where the launcher shows each process
  // another GPU alone, that one. Whether all differ is seen in their UUIDs, by all processes alike.
  std::string take_gpu() override {
    const int gpus = gpu::device_count();
    std::array<uint32_t, 4> uuid{};
    if (gpus > 0) uuid = gpu::choose_device(place_ % gpus);
    Tensor all = Tensor::zeros({size(), 4}, DType::float64);  // which has room for 32 bits
    std::copy(uuid.begin(), uuid.end(), all.mutable_data<double>() + 4 * rank());
    host_->start_sum(all);
    host_->wait();
    const auto of = [&](int rank) {
      const double* first = all.data<double>() + 4 * rank;
      return std::array{first[0], first[1], first[2], first[3]};
    };
    for (int i = 0; i < size(); ++i) {
      if (of(i) == std::array{0., 0., 0., 0.}) return concat("rank ", i, " has no usable NVIDIA GPU or driver");
      for (int other = 0; other < i; ++other)
        if (of(i) == of(other))
          return concat("ranks ", other, " and ", i, " would have to share a GPU; here are ", there_, " processes and ",
                        gpus, " GPUs, and each process needs its own: start fewer");
    }
    return {};
  }

  void start_sum(const Tensor& x) override {
    if (x.device() == Device::cpu) return host_->start_sum(x);
    check(x.dtype() == DType::float32, "NCCL: a sum over ranks: expected float32, got ", name(x.dtype()));
    Tensor own = x;
    connected().start_sum(current_stream(Device::cuda), own.mutable_data<float>(), own.elements());
    poll(&gpu::Nccl::settled);
    kept_.push_back(std::move(own));
  }
  void progress() override { host_->progress(); }  // NCCL needs no help
  void wait() override {
    host_->wait();
    if (!kept_.empty()) poll(&gpu::Nccl::done);
    kept_.clear();
  }
  void broadcast(Tensor& x, int root) override {
    if (x.device() == Device::cpu) return host_->broadcast(x, root);
    connected().start_broadcast(current_stream(Device::cuda), x.mutable_raw(), x.bytes(), root);
    poll(&gpu::Nccl::done);
  }
  void meet() override { host_->meet(); }
  void abort(int exit_code) override { host_->abort(exit_code); }

 private:
  gpu::Nccl& connected() {
    if (!nccl_) {
      Tensor id({int64_t(std::tuple_size_v<gpu::Nccl::Id>)}, DType::uint8);
      gpu::Nccl::Id bytes{};
      if (rank() == 0) bytes = gpu::Nccl::make_id();
      std::copy(bytes.begin(), bytes.end(), id.mutable_data<uint8_t>());
      host_->broadcast(id);
      std::copy_n(id.data<uint8_t>(), bytes.size(), bytes.begin());
      nccl_ = std::make_unique<gpu::Nccl>(bytes, rank(), size());
      poll(&gpu::Nccl::settled);
    }
    return *nccl_;
  }

  // Waits on the host, not on the compute stream: a wait there for a process that is gone would have no end.
  void poll(bool (gpu::Nccl::*is_over)()) {
    Patience patience(*this, watchdog_);
    broken_ = true;
    while (!(*nccl_.*is_over)()) {
      patience.check();
      std::this_thread::yield();
    }
    broken_ = false;
  }

  std::unique_ptr<Communicator> host_;
  int place_, there_;
  std::vector<Tensor> kept_;  // what NCCL works on
  std::unique_ptr<gpu::Nccl> nccl_;
  bool broken_ = false;  // a call failed, and no other may follow
  double watchdog_ = watchdog_seconds();
};

}  // namespace

std::unique_ptr<Communicator> with_gpus(std::unique_ptr<Communicator> host, int place, int there) {
  return std::make_unique<GpuCommunicator>(std::move(host), place, there);
}

}  // namespace cairn

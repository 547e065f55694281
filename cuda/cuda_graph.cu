// Recorded work: a CUDA graph, captured from the stream, with memory of its own.
#include <mutex>
#include <unordered_map>

#include "core/kernels/memory.h"
#include "cuda/arena.h"
#include "cuda/launch.h"

namespace cairn::gpu {

// ------------------------------------------------------------------------------------------------------------- memory

// Every block of every arena.
struct Arena::Owner {
  Arena* arena;  // null: it has ended
  size_t bytes;

  static std::mutex& mutex() {
    static auto* instance = new std::mutex;  // never destroyed: tensors may be freed later than anything of ours
    return *instance;
  }
  static std::unordered_map<void*, Owner>& all() {
    static auto* instance = new std::unordered_map<void*, Owner>;
    return *instance;
  }
};

Arena*& Arena::recording() {
  static thread_local Arena* arena = nullptr;
  return arena;
}

void* Arena::take(size_t bytes) {
  std::vector<void*>& free = free_[bytes];
  if (!free.empty()) {
    void* block = free.back();
    free.pop_back();
    return block;
  }
  void* block = nullptr;
  // Not ordered with the stream, whose work is not done but recorded.
  const cudaError_t status = cudaMalloc(&block, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(status);
  const std::lock_guard guard(Owner::mutex());
  Owner::all()[block] = {this, bytes};
  return block;
}

void* Arena::host(size_t bytes) {
  void* block = nullptr;
  check_cuda(cudaMallocHost(&block, bytes));
  host_.push_back(block);
  return block;
}

bool Arena::give_back(void* block) {
  const std::lock_guard guard(Owner::mutex());
  const auto found = Owner::all().find(block);
  if (found == Owner::all().end()) return false;
  const auto [arena, bytes] = found->second;
  if (arena) {
    arena->free_[bytes].push_back(block);
  } else {
    Owner::all().erase(found);
    if (cudaFree(block) != cudaSuccess) cudaGetLastError();
  }
  return true;
}

Arena::~Arena() {
  const std::lock_guard guard(Owner::mutex());
  for (const auto& [bytes, blocks] : free_)
    for (void* block : blocks) {
      Owner::all().erase(block);
      if (cudaFree(block) != cudaSuccess) cudaGetLastError();
    }
  for (auto& [block, owner] : Owner::all())
    if (owner.arena == this) owner.arena = nullptr;
  for (void* block : host_)
    if (cudaFreeHost(block) != cudaSuccess) cudaGetLastError();
}

// ---------------------------------------------------------------------------------------------------------- recording

struct Recording::State {
  Stream stream;
  Arena arena;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;

  cudaError_t end() {
    Arena::recording() = nullptr;
    const cudaError_t status = cudaStreamEndCapture(native(stream), &graph);
    for (void* block : arena.outside()) deallocate(stream, block);
    return status;
  }
};

Recording::Recording(Stream stream) : state_(std::make_unique<State>()) {
  check(Arena::recording() == nullptr, "a recording within a recording");
  state_->stream = stream;
  release_freed_memory(stream);  // the arena will want as much
  // Relaxed: memory may be allocated meanwhile.
  check_cuda(cudaStreamBeginCapture(native(stream), cudaStreamCaptureModeRelaxed));
  Arena::recording() = &state_->arena;
}

Recording::~Recording() {
  const bool unfinished = Arena::recording() == &state_->arena;
  if (unfinished) {
    if (state_->end() != cudaSuccess) cudaGetLastError();
  } else if (cudaStreamSynchronize(native(state_->stream)) != cudaSuccess) {
    cudaGetLastError();  // replays may still be at work in the arena
  }
  if (state_->executable && cudaGraphExecDestroy(state_->executable) != cudaSuccess) cudaGetLastError();
  if (state_->graph && cudaGraphDestroy(state_->graph) != cudaSuccess) cudaGetLastError();
}

void Recording::finish() {
  check_cuda(state_->end());
  check_cuda(cudaGraphInstantiate(&state_->executable, state_->graph, 0));
}

void Recording::replay() { check_cuda(cudaGraphLaunch(state_->executable, native(state_->stream))); }

}  // namespace cairn::gpu

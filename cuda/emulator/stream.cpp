// Streams, events, and the capture of a stream into a graph.
//
// Work is done at once, in the order in which the host asks for it; only what is captured waits for a launch of its
// graph, which does it in the order of the capture. What CUDA forbids during a capture (CUDA C++ Programming Guide,
// "Prohibited and Unhandled Operations") gives CUDA's error and breaks the capture.
#include "cuda/emulator/stream.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/emulator/host_cuda.h"

namespace {

using namespace cairn::host_cuda;
using Work = std::function<void()>;

// What was captured; a graph and what is made from it share it.
struct Recording {
  ~Recording();
  std::vector<Work> work;
  std::vector<void*> memory;
};

// Device memory that a capture allocated. It keeps its address, and comes to life whenever a launch of the graph gets
// to the allocation, until it is freed: there, or by the host.
struct GraphMemory {
  const Recording* owner;
  size_t bytes;
  bool live = false;
  bool freed_in_graph = false;

  void set_live(void* block, bool now) {
    live = now;
    std::memset(block, 0xff, bytes);
  }
};

struct Capture {
  CUstream_st* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool broken = false;
  std::shared_ptr<Recording> recording = std::make_shared<Recording>();
};

// Which of the works of a capture come before a point in it. What is done later must have waited for all of them.
using Past = std::vector<bool>;

void join(Past& past, const Past& other) {
  past.resize(std::max(past.size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i) past[i] = past[i] || other[i];
}

}  // namespace

struct CUstream_st {
  bool blocking = true;
  std::shared_ptr<Capture> capture;  // several streams share one, if they wait for each other's events
  Past past;
};

struct CUevent_st {
  bool timed;
  bool recorded = false, captured = false;
  std::chrono::steady_clock::time_point time;
  std::weak_ptr<Capture> capture;
  Past past;
};

struct CUgraph_st {
  std::shared_ptr<Recording> recording;
};

struct CUgraphExec_st {
  std::shared_ptr<Recording> recording;
  bool frees_at_launch;
};

namespace {

struct State {
  std::recursive_mutex mutex;
  CUstream_st legacy;
  std::map<std::thread::id, CUstream_st> of_thread;  // cudaStreamPerThread
  std::set<CUstream_st*> streams;                    // but the legacy one
  std::map<void*, GraphMemory> graph_memory;
};
State& state() {
  static State* instance = new State;  // never destroyed: static tensors may be freed later than anything of ours
  return *instance;
}

// Held by every function below that is called from outside.
std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(state().mutex); }

thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

Recording::~Recording() {
  const auto guard = lock();
  for (void* block : memory) {
    const auto entry = state().graph_memory.find(block);
    const bool live = entry->second.live;  // then it outlives the graph, until somebody frees it
    state().graph_memory.erase(entry);
    if (!live) return_block(block);
  }
}

cudaError_t break_capture(Capture& capture, cudaError_t error) {
  capture.broken = true;
  return error;
}

// The error, if some capture under way is disturbed; these are then broken.
template <class Disturbs>
cudaError_t refuse(cudaError_t error, Disturbs disturbs) {
  bool refused = false;
  for (CUstream_st* stream : state().streams)
    if (stream->capture && disturbs(*stream)) stream->capture->broken = refused = true;
  return refused ? error : cudaSuccess;
}

bool is_blocking(const CUstream_st& stream) { return stream.blocking; }

bool forbids_unsafe_calls(const CUstream_st& stream) {
  const Capture& capture = *stream.capture;
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return capture.mode != cudaStreamCaptureModeRelaxed;
  return mode_of_thread == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

// Null: there is no such stream (any more).
CUstream_st* find(cudaStream_t handle) {
  State& all = state();
  if (handle == nullptr || handle == cudaStreamLegacy) return &all.legacy;
  if (handle == cudaStreamPerThread) {
    handle = &all.of_thread[std::this_thread::get_id()];
    all.streams.insert(handle);
  }
  return all.streams.count(handle) ? handle : nullptr;
}

// The same for a stream that is to get work.
cudaError_t find_for_work(cudaStream_t handle, CUstream_st*& stream) {
  stream = find(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream == &state().legacy) return refuse(cudaErrorStreamCaptureImplicit, is_blocking);
  return stream->capture && stream->capture->broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

void record(CUstream_st& stream, Work work) {
  auto& all = stream.capture->recording->work;
  all.push_back(std::move(work));
  stream.past.resize(all.size());
  stream.past.back() = true;
}

// All streams that took part go back to working at once.
void finish(const std::shared_ptr<Capture> capture) {
  for (CUstream_st* stream : state().streams)
    if (stream->capture == capture) {
      stream->capture = nullptr;
      stream->past.clear();
    }
}

}  // namespace

namespace cairn::host_cuda {

cudaError_t enqueue(cudaStream_t handle, Work work) {
  {
    const auto guard = lock();
    CUstream_st* stream;
    if (const auto error = find_for_work(handle, stream)) return report(error);
    if (stream->capture) {
      record(*stream, std::move(work));
      return cudaSuccess;
    }
  }
  work();
  return cudaSuccess;
}

cudaError_t refuse_unsafe_call() {
  const auto guard = lock();
  return refuse(cudaErrorStreamCaptureUnsupported, forbids_unsafe_calls);
}

cudaError_t refuse_synchronous_call() {
  const auto guard = lock();
  if (const auto error = refuse(cudaErrorStreamCaptureImplicit, is_blocking)) return error;
  return refuse_unsafe_call();
}

cudaError_t free_now(void* block) {
  const auto guard = lock();
  const auto entry = state().graph_memory.find(block);
  if (entry == state().graph_memory.end()) return return_block(block);
  if (!entry->second.live) return cudaErrorInvalidValue;
  entry->second.set_live(block, false);
  return cudaSuccess;
}

}  // namespace cairn::host_cuda

// ---- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const auto guard = lock();
  if (flags > cudaStreamNonBlocking) return report(cudaErrorInvalidValue);
  *stream = new CUstream_st{flags != cudaStreamNonBlocking, nullptr, {}};
  state().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* const stream = find(handle);
  if (!stream || stream != handle) return report(cudaErrorInvalidResourceHandle);
  if (stream->capture) stream->capture->broken = true;
  if (stream->capture && stream->capture->origin == stream) finish(stream->capture);
  state().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* const stream = find(handle);
  if (!stream) return report(cudaErrorInvalidResourceHandle);
  if (stream == &state().legacy) return report(refuse(cudaErrorStreamCaptureImplicit, is_blocking));
  return stream->capture ? report(break_capture(*stream->capture, cudaErrorStreamCaptureUnsupported)) : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  const auto guard = lock();
  return report(refuse(cudaErrorStreamCaptureUnsupported, [](const CUstream_st&) { return true; }));
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st{!(flags & cudaEventDisableTiming), false, false, {}, {}, {}};
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!event) return report(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* stream;
  if (!event) return report(cudaErrorInvalidResourceHandle);
  if (const auto error = find_for_work(handle, stream)) return report(error);
  event->recorded = true;
  event->captured = stream->capture != nullptr;
  event->capture = stream->capture;
  event->past = stream->past;
  event->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto guard = lock();
  if (!event) return report(cudaErrorInvalidResourceHandle);
  if (!event->captured) return cudaSuccess;
  if (const auto capture = event->capture.lock()) capture->broken = true;
  return report(cudaErrorCapturedEvent);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const auto guard = lock();
  for (const CUevent_st* event : {start, end}) {
    if (!event || !event->timed || !event->recorded) return report(cudaErrorInvalidResourceHandle);
    if (event->captured) return report(cudaErrorCapturedEvent);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return cudaSuccess;
}

// Outside of captures there is nothing to wait for. Within one, a stream that waits for an event of it takes part in
// it.
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  const auto guard = lock();
  CUstream_st* stream;
  if (!event) return report(cudaErrorInvalidResourceHandle);
  if (const auto error = find_for_work(handle, stream)) return report(error);
  if (!event->recorded) return cudaSuccess;
  if (!event->captured)
    return stream->capture ? report(break_capture(*stream->capture, cudaErrorStreamCaptureIsolation)) : cudaSuccess;
  const auto capture = event->capture.lock();
  if (!capture) return report(cudaErrorCapturedEvent);  // which has ended
  if (stream == &state().legacy) return report(break_capture(*capture, cudaErrorStreamCaptureImplicit));
  if (capture->broken) return report(cudaErrorStreamCaptureInvalidated);
  if (stream->capture && stream->capture != capture) {
    stream->capture->broken = true;
    return report(break_capture(*capture, cudaErrorStreamCaptureMerge));
  }
  stream->capture = capture;
  join(stream->past, event->past);
  return cudaSuccess;
}

// ---- captures and graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const auto guard = lock();
  CUstream_st* const stream = find(handle);
  if (!stream) return report(cudaErrorInvalidResourceHandle);
  if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed) return report(cudaErrorInvalidValue);
  if (stream == &state().legacy) return report(cudaErrorStreamCaptureUnsupported);
  if (stream->capture) return report(cudaErrorIllegalState);
  stream->capture = std::make_shared<Capture>(Capture{stream, mode, std::this_thread::get_id()});
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const auto guard = lock();
  *graph = nullptr;
  CUstream_st* const stream = find(handle);
  if (!stream) return report(cudaErrorInvalidResourceHandle);
  if (!stream->capture) return report(cudaErrorIllegalState);
  const auto capture = stream->capture;
  if (capture->origin != stream) return report(break_capture(*capture, cudaErrorStreamCaptureUnmatched));
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return report(break_capture(*capture, cudaErrorStreamCaptureWrongThread));
  stream->past.resize(capture->recording->work.size());
  const bool joined = std::find(stream->past.begin(), stream->past.end(), false) == stream->past.end();
  finish(capture);
  if (capture->broken) return report(cudaErrorStreamCaptureInvalidated);
  if (!joined) return report(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{capture->recording};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const auto guard = lock();
  const CUstream_st* const stream = find(handle);
  if (!stream) return report(cudaErrorInvalidResourceHandle);
  *status = !stream->capture          ? cudaStreamCaptureStatusNone
            : stream->capture->broken ? cudaStreamCaptureStatusInvalidated
                                      : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (*mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed) return report(cudaErrorInvalidValue);
  std::swap(*mode, mode_of_thread);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  *executable = nullptr;
  if (!graph || flags > cudaGraphInstantiateFlagAutoFreeOnLaunch) return report(cudaErrorInvalidValue);
  *executable = new CUgraphExec_st{graph->recording, flags == cudaGraphInstantiateFlagAutoFreeOnLaunch};
  return cudaSuccess;
}

// Within a capture a launch becomes a part of the new graph.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (!executable) return report(cudaErrorInvalidValue);
  if (const auto error = may_launch()) return report(error);
  if (!executable->frees_at_launch) {
    const auto guard = lock();
    for (void* block : executable->recording->memory)
      if (state().graph_memory.at(block).live) return report(cudaErrorInvalidValue);
  }
  return enqueue(stream, [recording = executable->recording] {
    for (const Work& work : recording->work) work();
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (!graph) return report(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  if (!executable) return report(cudaErrorInvalidValue);
  delete executable;
  return cudaSuccess;
}

// ---- memory in the order of a stream

cudaError_t cudaMallocAsync(void** block, size_t bytes, cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* stream;
  *block = nullptr;
  if (const auto error = find_for_work(handle, stream)) return report(error);
  if (const auto error = take_block(block, bytes)) return report(error);
  if (!*block || !stream->capture) return cudaSuccess;
  Recording& recording = *stream->capture->recording;
  recording.memory.push_back(*block);
  state().graph_memory[*block] = {&recording, bytes};
  record(*stream, [block = *block] {
    const auto launch_guard = lock();
    state().graph_memory.at(block).set_live(block, true);
  });
  return cudaSuccess;
}

// A capture can free only what it allocated.
cudaError_t cudaFreeAsync(void* block, cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* stream;
  if (!block) return cudaSuccess;
  if (const auto error = find_for_work(handle, stream)) return report(error);
  if (!stream->capture) return report(free_now(block));
  const auto entry = state().graph_memory.find(block);
  if (entry == state().graph_memory.end() || entry->second.owner != stream->capture->recording.get() ||
      entry->second.freed_in_graph)
    return report(break_capture(*stream->capture, cudaErrorInvalidValue));
  entry->second.freed_in_graph = true;
  record(*stream, [block] {
    const auto launch_guard = lock();
    state().graph_memory.at(block).set_live(block, false);
  });
  return cudaSuccess;
}

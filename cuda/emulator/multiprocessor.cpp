#include "cuda/emulator/multiprocessor.h"

#include <atomic>
#include <bit>
#include <charconv>
#include <cstring>
#include <exception>
#include <utility>

#if CAIRN_HOST_CUDA_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace cairn::host_cuda {
namespace {

#if CAIRN_HOST_CUDA_TSAN
// Events before a thread's release() of an address happen before events after another thread's acquire() of it.
void release(void* sync_address) { __tsan_release(sync_address); }
void acquire(void* sync_address) { __tsan_acquire(sync_address); }
constexpr bool thread_sanitizer = true;
#else
void release(void*) {}
void acquire(void*) {}
constexpr bool thread_sanitizer = false;
#endif

thread_local Multiprocessor* running_block = nullptr;

std::string text(uint3 index) { return concat('(', index.x, ',', index.y, ',', index.z, ')'); }

std::string hex(unsigned mask) {
  char digits[16];
  return "0x" + std::string(digits, std::to_chars(digits, digits + sizeof(digits), mask, 16).ptr);
}

unsigned lowest(unsigned lanes) { return unsigned(std::countr_zero(lanes)); }

// Random numbers for shuffled orders (Marsaglia's xorshift64, 2003); state is never 0.
uint64_t next_random(uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

}  // namespace

Multiprocessor& Multiprocessor::mine() {
  thread_local Multiprocessor multiprocessor;
  return multiprocessor;
}

Multiprocessor& Multiprocessor::current() {
  check<KernelError>(running_block != nullptr,
                     "a barrier, warp collective or dynamic shared memory outside of a kernel");
  return *running_block;
}

// ---- a block from beginning to end

void Multiprocessor::prepare(const Grid& grid, uint3 block) {
  const dim3 shape = grid.threads;
  const unsigned n = shape.x * shape.y * shape.z;
  dynamic_shared_.start_block(grid.shared_bytes);
  dynamic_shared_used_ = false;
  static_shared_filled = false;
  if (thread_sanitizer) fill_static_shared();  // filled by one of the CUDA threads, it would look like a race
  grid_ = &grid;
  block_ = block;
  random_ = (grid.options.seed * 0x9E3779B97F4A7C15u + block.x * 0xD2511F53u + block.y * 0xCD9E8D57u + block.z) | 1;

  threads_.assign(n, {});
  warps_.assign((n + 31) / 32, {});
  in_barrier_ = 0;
  runnable_.clear();
  group_.clear();
  failure_ = nullptr;
  alive_ = n;
  // These vectors must not grow while the block runs: the fibers would do it, and the thread sanitizer does not know
  // that they run one after another.
  runnable_.reserve(n);
  group_.reserve(n);
  while (fibers_.size() < n)
    fibers_.push_back(std::make_unique<Fiber>(&Multiprocessor::fiber_main, int(fibers_.size())));
  for (unsigned i = 0; i < n; ++i) {
    threads_[i].index = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
    threads_[i].lane = i % 32;
    threads_[i].warp = i / 32;
    threads_[i].fiber = fibers_[i].get();
    warps_[i / 32].alive |= 1u << i % 32;
    group_.push_back(&threads_[i]);
  }
  resume_group();
}

void Multiprocessor::run(const Grid& grid, uint3 block) {
  prepare(grid, block);
  blockIdx = block;
  blockDim = grid.threads;
  gridDim = grid.blocks;
  running_block = this;
  release(&grid_);
  suspend(host_);  // until no thread is runnable
  acquire(&alive_);
  running_block = nullptr;
  if (alive_ == 0 && !failure_) return;

  // Threads that still wait will never continue, so their stacks are reset.
  for (auto& fiber : fibers_) fiber->restart();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  fail_deadlocked();
}

// The entry of every fiber but the host's: runs one CUDA thread of each block, from beginning to end.
void Multiprocessor::fiber_main() {
  for (;;) {
    Multiprocessor& self = *running_block;
    self.run_current_thread();
    self.suspend(*self.running_->fiber);
  }
}

void Multiprocessor::run_current_thread() {
  acquire(&grid_);
  try {
    grid_->run_thread();
    check_dynamic_shared("its end", grid_->where);
    end_current_thread();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void Multiprocessor::end_current_thread() {
  CudaThread& me = *running_;
  me.state = State::ended;
  --alive_;
  Warp& warp = warps_[me.warp];
  warp.alive &= ~(1u << me.lane);
  // Barriers and collectives no longer wait for this thread.
  if (in_barrier_ > 0 && in_barrier_ == alive_) complete_barrier();
  complete_collectives(me.warp);
}

// Switches from the stack `from` to the next runnable CUDA thread, or to the host's stack if there is none.
void Multiprocessor::suspend(Fiber& from) {
  release(&alive_);  // only the host acquires it
  Fiber* to = &host_;
  if (!failure_ && !runnable_.empty()) {
    running_ = runnable_.back();
    runnable_.pop_back();
    threadIdx = running_->index;
    to = running_->fiber;
  }
  if (to != &from) Fiber::switch_to(from, *to);
}

// Makes the threads of group_, which are in rising order, runnable in the order of the options. They run before the
// threads that are runnable already, so that few stacks are in use at a time and stay in cache.
void Multiprocessor::resume_group() {
  if (grid_->options.order == Order::shuffled)
    for (size_t i = group_.size(); i > 1; --i) std::swap(group_[i - 1], group_[next_random(random_) % i]);
  for (auto thread = group_.rbegin(); thread != group_.rend(); ++thread) {
    (*thread)->state = State::runnable;
    runnable_.push_back(*thread);
  }
  group_.clear();
}

// ---- block barriers

int Multiprocessor::block_barrier(int predicate, SourceLine where) {
  CudaThread& me = *running_;
  check_dynamic_shared("a barrier", where);
  if (in_barrier_ == 0) first_in_barrier_ = &me;
  const CudaThread& first = *first_in_barrier_;
  me.predicate = predicate != 0;
  me.where = where;
  if (!(first.where == where))
    fail(concat("divergent barrier: this thread comes here while thread ", text(first.index),
                " waits in the barrier at ", to_string(first.where)),
         where, me);
  me.state = State::in_barrier;
  ++in_barrier_;
  char* const sync_address = sync_addresses_ + barriers_ % 2;
  release(sync_address);
  if (in_barrier_ == alive_) complete_barrier();
  suspend(*me.fiber);
  acquire(sync_address);
  return me.predicate;
}

void Multiprocessor::complete_barrier() {
  int count = 0;
  for (CudaThread& thread : threads_) {
    if (thread.state != State::in_barrier) continue;
    count += thread.predicate;
    group_.push_back(&thread);
  }
  for (CudaThread* thread : group_) thread->predicate = count;
  in_barrier_ = 0;
  ++barriers_;
  resume_group();
}

// ---- warp collectives

void Multiprocessor::warp_collective(const char* name, unsigned mask, const void* value, const ReadLanes& read,
                                     SourceLine where) {
  CudaThread& me = *running_;
  Warp& warp = warps_[me.warp];
  check_dynamic_shared(name, where);
  if (!(mask >> me.lane & 1)) fail(concat(name, ": the caller is not in its own mask ", hex(mask)), where, me);

  int i = 0;
  while (i < warp.pending && warp.collectives[i].mask != mask) ++i;
  Collective& collective = warp.collectives[i];
  if (i == warp.pending) {
    collective = {mask, 0};
    ++warp.pending;
  } else {
    const CudaThread& other = lane(me.warp, lowest(collective.arrived));
    if (std::string_view(other.collective) != name || !(other.where == where))
      fail(concat("lanes of a warp meet in different collectives: this one in ", name, ", thread ", text(other.index),
                  " in ", other.collective, " at ", to_string(other.where)),
           where, me);
  }
  me.collective = name;
  me.value = value;
  me.read = &read;
  me.where = where;
  me.state = State::in_warp;
  collective.arrived |= 1u << me.lane;
  release(&warp);
  complete_collectives(me.warp);
  suspend(*me.fiber);
  acquire(&warp);
}

// Completes the collectives at which all lanes of the mask that have not ended have arrived.
void Multiprocessor::complete_collectives(unsigned warp_number) {
  Warp& warp = warps_[warp_number];
  for (int i = 0; i < warp.pending;) {
    const Collective collective = warp.collectives[i];
    if (collective.arrived != (collective.mask & warp.alive)) {
      ++i;
      continue;
    }
    warp.collectives[i] = warp.collectives[--warp.pending];
    exchange_values(warp_number, collective.arrived);
  }
}

void Multiprocessor::exchange_values(unsigned warp, unsigned taking_part) {
  const void* values[32] = {};
  for (unsigned rest = taking_part; rest; rest &= rest - 1) {
    CudaThread& thread = lane(warp, lowest(rest));
    values[thread.lane] = thread.value;
    group_.push_back(&thread);
  }
  acquire(&warps_[warp]);
  for (const CudaThread* thread : group_) (*thread->read)({values, int(thread->lane)});
  release(&warps_[warp]);
  resume_group();
}

// ---- asynchronous copies

bool Multiprocessor::copies_at_once() { return grid_->options.order == Order::shuffled && next_random(random_) % 2; }

// ---- shared memory

void Multiprocessor::fill_static_shared() {
  for (const auto variable : static_shared_) std::memset(variable.data(), 0xff, variable.size());
  static_shared_filled = true;
}

// The threads of a block run one after another. So damage found when a thread waits or ends was done by that thread.
void Multiprocessor::check_dynamic_shared(const char* before, SourceLine where) const {
  if (!dynamic_shared_used_) return;
  if (const auto at = dynamic_shared_.damage())
    fail(concat("dynamic shared memory written out of bounds: byte ", *at, " of ", grid_->shared_bytes,
                ", by this thread, before ", before),
         where, *running_);
}

// ---- errors

void Multiprocessor::fail(const std::string& what, SourceLine where, const CudaThread& thread) const {
  throw KernelError(
      concat(to_string(where), ": ", what, ", in block ", text(block_), " thread ", text(thread.index), launched()));
}

std::string Multiprocessor::launched() const { return ", launched at " + to_string(grid_->where); }

void Multiprocessor::refuse(const std::string& what, SourceLine where) const { fail(what, where, *running_); }

void Multiprocessor::refuse_to_read(unsigned read, unsigned reader) {
  const CudaThread& thread = lane(running_->warp, reader);
  fail(concat(thread.collective, " reads lane ", read,
              ", which does not take part (not in the mask, ended, or beyond the block)"),
       thread.where, thread);
}

void Multiprocessor::fail_deadlocked() const {
  std::string where, waiting;
  for (const State state : {State::in_barrier, State::in_warp}) {
    const CudaThread* first = nullptr;
    int count = 0;
    for (const CudaThread& thread : threads_)
      if (thread.state == state && ++count == 1) first = &thread;
    if (!first) continue;
    if (where.empty()) where = to_string(first->where);
    waiting += concat(", ", count, " wait in ", state == State::in_barrier ? "a barrier" : first->collective, " at ",
                      to_string(first->where), " (thread ", text(first->index), ")");
  }
  throw KernelError(concat(where, ": deadlock in block ", text(block_), ": ", threads_.size() - alive_, " of ",
                           threads_.size(), " threads have ended", waiting, launched()));
}

// ---- what kernels call

int block_barrier(int predicate, SourceLine where) { return Multiprocessor::current().block_barrier(predicate, where); }

void warp_collective(const char* name, unsigned mask, const void* value, const ReadLanes& read, SourceLine where) {
  Multiprocessor::current().warp_collective(name, mask, value, read, where);
}

void refuse_to_read(int lane, int reader) {
  Multiprocessor::current().refuse_to_read(unsigned(lane), unsigned(reader));
}

void* dynamic_shared_memory() { return Multiprocessor::current().dynamic_shared_memory(); }

void fence() {
  static char sync_address;  // shared by all threads of all blocks
  std::atomic_thread_fence(std::memory_order_seq_cst);
  release(&sync_address);
  acquire(&sync_address);
}

void refuse(const std::string& what, SourceLine where) { Multiprocessor::current().refuse(what, where); }

void fill_static_shared() { Multiprocessor::current().fill_static_shared(); }

AsyncCopies& async_copies() { return Multiprocessor::current().async_copies(); }

bool copies_at_once() { return Multiprocessor::current().copies_at_once(); }

}  // namespace cairn::host_cuda

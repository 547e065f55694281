#include "cuda/emulator/multiprocessor.h"

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
  const unsigned in_block = shape.x * shape.y * shape.z, n = in_block * grid.block_cluster;
  grid_ = &grid;
  dynamic_shared_used_ = false;
  static_shared_filled = false;
  if (thread_sanitizer && grid.block_cluster == 1)
    fill_static_shared();  // filled by one of the CUDA threads, it would look like a race
  random_ = (grid.options.seed * 0x9E3779B97F4A7C15u + block.x * 0xD2511F53u + block.y * 0xCD9E8D57u + block.z) | 1;

  threads_.assign(n, {});
  warps_.clear();
  block_cluster_.alive = n;
  block_cluster_.waiting = 0;
  if (blocks_.size() != grid.block_cluster) blocks_ = std::vector<Block>(grid.block_cluster);
  runnable_.clear();
  group_.clear();
  failure_ = nullptr;
  // These vectors must not grow while the block runs: the fibers would do it, and the thread sanitizer does not know
  // that they run one after another.
  runnable_.reserve(n);
  group_.reserve(n);
  while (fibers_.size() < n)
    fibers_.push_back(std::make_unique<Fiber>(&Multiprocessor::fiber_main, int(fibers_.size())));
  for (unsigned b = 0; b < grid.block_cluster; ++b) {
    blocks_[b].index = {block.x + b, block.y, block.z};
    blocks_[b].alive = in_block;
    blocks_[b].waiting = 0;
    blocks_[b].dynamic_shared.start_block(grid.shared_bytes);
    for (unsigned i = 0; i < in_block; ++i) {
      CudaThread& thread = threads_[b * in_block + i];
      if (i % 32 == 0) warps_.push_back({b * in_block + i, 0, 0, {}});
      thread.index = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
      thread.block = b;
      thread.lane = i % 32;
      thread.warp = unsigned(warps_.size()) - 1;
      thread.fiber = fibers_[b * in_block + i].get();
      warps_.back().alive |= 1u << i % 32;
      group_.push_back(&thread);
    }
  }
  resume_group();
}

void Multiprocessor::run(const Grid& grid, uint3 block) {
  prepare(grid, block);
  blockDim = grid.threads;
  gridDim = grid.blocks;
  running_block = this;
  release(&grid_);
  suspend(host_);  // until no thread is runnable
  acquire(&host_);
  running_block = nullptr;
  if (block_cluster_.alive == 0 && !failure_) return;

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
  Warp& warp = warps_[me.warp];
  warp.alive &= ~(1u << me.lane);
  // Barriers and collectives no longer wait for this thread.
  for (Together* together : {static_cast<Together*>(&blocks_[me.block]), &block_cluster_})
    if (--together->alive == together->waiting && together->waiting > 0) complete_barrier(*together);
  complete_collectives(me.warp);
}

// Switches from the stack `from` to the next runnable CUDA thread, or to the host's stack if there is none.
void Multiprocessor::suspend(Fiber& from) {
  release(&host_);  // only the host acquires it
  Fiber* to = &host_;
  if (!failure_ && !runnable_.empty()) {
    running_ = runnable_.back();
    runnable_.pop_back();
    threadIdx = running_->index;
    blockIdx = blocks_[running_->block].index;
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

// ---- barriers of blocks and block clusters

int Multiprocessor::wait_with(Together& together, int predicate, SourceLine where) {
  CudaThread& me = *running_;
  check_dynamic_shared("a barrier", where);
  if (together.waiting == 0) together.first_waiting = &me;
  const CudaThread& first = *together.first_waiting;
  me.waits_with = &together;
  me.predicate = predicate != 0;
  me.where = where;
  if (!(first.where == where))
    fail(concat("divergent barrier: this thread comes here while thread ", text(first.index),
                " waits in the barrier at ", to_string(first.where)),
         where, me);
  me.state = State::in_barrier;
  char* const sync_address = together.sync_addresses + together.barriers % 2;
  release(sync_address);
  if (++together.waiting == together.alive) complete_barrier(together);
  suspend(*me.fiber);
  acquire(sync_address);
  return me.predicate;
}

void Multiprocessor::complete_barrier(Together& together) {
  int count = 0;
  for (CudaThread& thread : threads_) {
    if (thread.state != State::in_barrier || thread.waits_with != &together) continue;
    count += thread.predicate;
    group_.push_back(&thread);
  }
  for (CudaThread* thread : group_) thread->predicate = count;
  together.waiting = 0;
  ++together.barriers;
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
  if (watch_syncwarp && group_.front()->collective == std::string_view("__syncwarp")) watch_syncwarp(taking_part);
  release(&warps_[warp]);
  resume_group();
}

// ---- asynchronous copies

bool Multiprocessor::copies_at_once() { return grid_->options.order == Order::shuffled && next_random(random_) % 2; }

// ---- shared memory

void Multiprocessor::fill_static_shared() {
  if (grid_->block_cluster > 1)
    fail("a kernel in block clusters can use dynamic shared memory only", grid_->where, *running_);
  for (const auto variable : static_shared_) std::memset(variable.data(), 0xff, variable.size());
  static_shared_filled = true;
}

// The threads run one after another. So damage found when a thread waits or ends was done by that thread.
void Multiprocessor::check_dynamic_shared(const char* before, SourceLine where) const {
  if (!dynamic_shared_used_) return;
  for (const Block& block : blocks_)
    if (const auto at = block.dynamic_shared.damage())
      fail(concat("dynamic shared memory", &block == &blocks_[running_->block] ? "" : " of block " + text(block.index),
                  " written out of bounds: byte ", *at, " of ", grid_->shared_bytes, ", by this thread, before ",
                  before),
           where, *running_);
}

// The place in the dynamic shared memory of another block that corresponds to `mine`.
void* Multiprocessor::in_block(int rank, const void* mine, SourceLine where) {
  const Block& me = blocks_[running_->block];
  const ptrdiff_t offset = static_cast<const char*>(mine) - static_cast<const char*>(me.dynamic_shared.data());
  if (offset < 0 || size_t(offset) > grid_->shared_bytes) refuse("the address is not in dynamic shared memory", where);
  if (rank < 0 || size_t(rank) >= blocks_.size())
    refuse(concat("there is no block ", rank, " in a block cluster of ", blocks_.size()), where);
  if (blocks_[size_t(rank)].alive == 0)
    refuse(concat("block ", text(blocks_[size_t(rank)].index), " has ended"), where);
  return static_cast<char*>(blocks_[size_t(rank)].dynamic_shared.data()) + offset;
}

// ---- errors

void Multiprocessor::fail(const std::string& what, SourceLine where, const CudaThread& thread) const {
  throw KernelError(concat(to_string(where), ": ", what, ", in block ", text(blocks_[thread.block].index), " thread ",
                           text(thread.index), launched()));
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
  throw KernelError(concat(
      where, ": deadlock in block ", text(blocks_[0].index), blocks_.size() > 1 ? " and its block cluster" : "", ": ",
      threads_.size() - block_cluster_.alive, " of ", threads_.size(), " threads have ended", waiting, launched()));
}

// ---- what kernels call

int block_barrier(int predicate, SourceLine where) { return Multiprocessor::current().block_barrier(predicate, where); }

void warp_collective(const char* name, unsigned mask, const void* value, const ReadLanes& read, SourceLine where) {
  Multiprocessor::current().warp_collective(name, mask, value, read, where);
}

void refuse_to_read(int lane, int reader) {
  Multiprocessor::current().refuse_to_read(unsigned(lane), unsigned(reader));
}

unsigned completed_barriers() { return Multiprocessor::current().completed_barriers(); }

void block_cluster_barrier(SourceLine where) { Multiprocessor::current().block_cluster_barrier(where); }

void* in_block(int rank, const void* mine, SourceLine where) {
  return Multiprocessor::current().in_block(rank, mine, where);
}

void* dynamic_shared_memory() { return Multiprocessor::current().dynamic_shared_memory(); }

void refuse(const std::string& what, SourceLine where) { Multiprocessor::current().refuse(what, where); }

void fill_static_shared() { Multiprocessor::current().fill_static_shared(); }

AsyncCopies& async_copies() { return Multiprocessor::current().async_copies(); }

bool copies_at_once() { return Multiprocessor::current().copies_at_once(); }

}  // namespace cairn::host_cuda

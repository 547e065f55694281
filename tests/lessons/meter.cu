// The meter of apps/lessons/meter.h on the emulator: planted races, and sectors and passes counted by hand. Prints what
// differs.
#include "apps/lessons/meter.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

namespace cairn::lessons {
namespace {

int failures = 0;
void same(const std::string& what, const std::string& got, const std::string& expected) {
  if (got == expected) return;
  std::printf("%s\n  %s\n", what.c_str(), concat("expected ", expected, "\n  got      ", got).c_str());
  ++failures;
}

// Runs a kernel on 2048 floats of global memory. Returns the race, or the emulator's error.
template <class... Args>
std::string run(void (*kernel)(Meter<float>, Args...), int blocks, int threads, std::type_identity_t<Args>... args) {
  float* x = nullptr;
  check_cuda(cudaMalloc(&x, 8192));
  start_watching();
  host_cuda::configure({1});
  std::string words;
  try {
    launch(kernel, {blocks, unsigned(threads), 8192}, watch(x, 2048, "global"), args...);
    words = notes().race;
  } catch (const Error& error) {
    words = error.what();
  }
  check_cuda(cudaFree(x));
  return words;
}

// ---- races

// Steps on element 5, by threads of blocks of 64. 0w: thread 0 writes it; 1r: thread 1 reads it; 64r: thread 0 of block
// 1; B: __syncthreads; V: a vote of each warp; 3S: __syncwarp by lanes 0 and 1 of each warp (the mask is 3).
__global__ void play(Meter<float> global, bool shared, const char* script) {
  const Meter<float> x = shared ? watch_shared(dynamic_shared<float>(), 2048, "shared") : global;
  const unsigned me = blockIdx.x * 64 + threadIdx.x;
  for (char* next = const_cast<char*>(script); *next;) {
    const auto number = unsigned(std::strtoul(next, &next, 10));
    const char step = *next++;
    if (step == 'B') __syncthreads();
    if (step == 'V') __all_sync(full_warp, 1);
    if (step == 'S' && number >> threadIdx.x % 32 & 1) __syncwarp(number);
    if (step == 'w' && number == me) x[5] = 1;
    if (step == 'r' && number == me) (void)float(x[5]);
  }
}

void races() {
  const auto expect = [](const char* script, const std::string& expected, int blocks = 1) {
    for (const bool shared : {false, true}) {
      std::string got = run(play, blocks, 64, shared, script);
      for (size_t at; (at = got.find("meter.cu:")) != got.npos;) got.replace(at, 11, "L");  // and a line of two digits
      const std::string name = shared ? "shared[5]: " : "global[5]: ";
      same(name + script, got, expected.empty() || (shared && blocks > 1) ? "" : name + expected);
    }
  };
  // 0w5S6S1r: lane 0 before lane 2, and lane 2 before lane 1
  for (const char* ordered : {"0w0r", "0r1r63r", "0wB1r", "1rB0w", "0w4294967295S1r", "0w3S1r", "0w5S6S1r"})
    expect(ordered, "");
  for (const char* race : {"0w1r", "1r0w", "0wB1r0w", "0wV1r", "0w5S1r", "0w6S5S1r", "3S0w1r"})
    expect(race, "written by thread (0,0,0) at L, read by thread (1,0,0) at L, no barrier between, block (0,0,0)");
  expect("0w63w", "written by thread (0,0,0) at L, written by thread (63,0,0) at L, no barrier between, block (0,0,0)");
  expect("0w4294967295S33r",  // another warp
         "written by thread (0,0,0) at L, read by thread (33,0,0) at L, no barrier between, block (0,0,0)");
  expect("0wB64r",
         "written by thread (0,0,0) of block (0,0,0) at L, read by thread (0,0,0) of block (1,0,0) at L, nothing "
         "orders blocks",
         2);
}

// ---- counts

// Lane t reads elements `step` t + `first` and following, `n` of them, if t < lanes.
template <int n>
__global__ void read(Meter<float> global, bool shared, int step, int first, int lanes) {
  const Meter<float> x = shared ? watch_shared(dynamic_shared<float>(), 2048, "shared") : global;
  const int i = step * int(threadIdx.x) + first;
  if (int(threadIdx.x) >= lanes) return;
  if constexpr (n == 1) (void)float(x[i]);
  if constexpr (n == 4) (void)Pack<float, 4>(pack<4>(x, i / 4));
}

// What is counted for these reads: of global memory the sectors and the least number of them, of shared memory passes.
template <int n>
void counts(int step, int first, int lanes, int64_t sectors, int64_t least_sectors, int64_t passes, int64_t least) {
  const std::string what = concat("reads of ", n, ", step ", step, ", first ", first, ", lanes ", lanes);
  for (const bool shared : {false, true}) {
    same(what, run(read<n>, 1, 32, shared, step, first, lanes), "");
    const Count c = notes().arrays.at(shared ? "shared" : "global").count(false);
    same(what,
         concat(c.accesses, ' ', c.partial, ' ', shared ? c.passes : c.sectors, ' ',
                shared ? c.least_passes : c.least_sectors),
         concat(lanes, ' ', lanes < 32, ' ', shared ? passes : sectors, ' ', shared ? least : least_sectors));
  }
}

}  // namespace
}  // namespace cairn::lessons

int main() {
  using namespace cairn::lessons;
  races();
  counts<1>(1, 0, 32, 4, 4, 1, 1);
  counts<1>(1, 1, 32, 5, 4, 1, 1);  // from the middle of a sector on
  counts<1>(0, 7, 32, 1, 1, 1, 1);  // all lanes the same
  counts<1>(2, 0, 32, 8, 4, 2, 1);
  counts<1>(32, 0, 32, 32, 4, 32, 1);
  counts<1>(33, 0, 32, 32, 4, 1, 1);
  counts<1>(1, 0, 9, 2, 2, 1, 1);  // lanes are left out
  counts<4>(4, 0, 32, 16, 16, 4, 4);
  counts<4>(8, 0, 32, 32, 16, 8, 4);
  const std::string outside = run(read<1>, 1, 32, false, 1, 2040, 32);
  same("out of bounds", outside.substr(outside.find(": ")).substr(0, 52),
       ": global[2048] is read, and there are 2048 elements,");
  return failures > 0;
}

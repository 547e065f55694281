// c = a b in float32, without tensor cores, in five steps. What counts is how many multiply-adds each load serves: a
// multiprocessor of an H100 starts four warps' multiply-adds a clock, but one warp's load, and shared memory gives it
// 128 bytes. 2 m n k operations at 60 Tflop/s are the floor there. cuda/gemm.cu is the library's: cuBLAS.
#include "cuda/common.cuh"
#include "cuda/ladder/ladder.h"

namespace cairn::ladder {
namespace {

using namespace gpu;

// ---- 1. A thread takes an element of c. Two loads a multiply-add, from the L1 cache mostly (a warp's 32 columns of b
// are neighbors, its element of a is one for all): an eighth of the floor's speed at the very best, and each load
// waits some 35 clocks.
constexpr int naive_threads = 256;
__global__ void __launch_bounds__(naive_threads)
    thread_an_element(Product p, const float* a, const float* b, float* c) {
  const int i = int(blockIdx.y * 8 + threadIdx.x / 32), j = int(blockIdx.x * 32 + threadIdx.x % 32);
  if (i >= p.m || j >= p.n) return;
  float sum = 0;
  for (int64_t l = 0; l < p.k; ++l) sum += a[i * int64_t(p.k) + l] * b[l * p.n + j];
  c[i * int64_t(p.n) + j] = sum;
}

// ---- 2. A block takes 32 x 32 elements and brings tiles of a and b to shared memory, where each element serves 32
// threads. From the L2 cache come 8 bytes for 32 multiply-adds instead of 8 for 8 or more. Shared memory is still read
// twice a multiply-add, so the ceiling stays an eighth. Expected: 1.0 to 1.5 times, as the L1 cache of step 1 did much
// of the same; but this is the frame for what follows.
constexpr int side = 32;
__global__ void __launch_bounds__(side* side) shared_tiles(Product p, const float* a, const float* b, float* c) {
  __shared__ float of_a[side][side], of_b[side][side];
  const int x = int(threadIdx.x % side), y = int(threadIdx.x / side);
  const int i = int(blockIdx.y) * side + y, j = int(blockIdx.x) * side + x;
  float sum = 0;
  for (int first = 0; first < p.k; first += side) {
    of_a[y][x] = i < p.m && first + x < p.k ? a[i * int64_t(p.k) + first + x] : 0;
    of_b[y][x] = first + y < p.k && j < p.n ? b[int64_t(first + y) * p.n + j] : 0;
    __syncthreads();
    for (int l = 0; l < side; ++l) sum += of_a[y][l] * of_b[l][x];
    __syncthreads();  // the tiles are written again
  }
  if (i < p.m && j < p.n) c[i * int64_t(p.n) + j] = sum;
}

// ---- The steps from here on: a block of 256 threads takes 128 x 128 elements, a thread 8 x 8 of them, `depth` steps
// of k at a time. a's slab stands transposed, so that both are read along rows; its rows are 4 words longer, so that
// the threads that write a column of it meet different banks.
constexpr int threads = 256, block_side = 128, depth = 8, mine = 8;
struct Slab {
  alignas(16) float a[depth][block_side + 4];
  alignas(16) float b[depth][block_side];
};

// ---- 3. Register tiles. For each step of k a thread reads 8 elements of a and 8 of b and does 64 multiply-adds with
// them: 16 loads where step 2 needs 128. Shared memory is busy for 16 clocks out of the 16 that the multiply-adds take,
// and loads take a fifth of all instructions. Expected: 5 times. A thread's rows and columns are 16 apart: lanes then
// read neighbors, which meet no bank twice.
__global__ void __launch_bounds__(threads, 2) register_tiles(Product p, const float* a, const float* b, float* c) {
  __shared__ Slab slab;
  const int x = int(threadIdx.x % 16), y = int(threadIdx.x / 16);
  const int top = int(blockIdx.y) * block_side, left = int(blockIdx.x) * block_side;
  float sum[mine][mine] = {};
  for (int first = 0; first < p.k; first += depth) {
    for (int n = int(threadIdx.x); n < block_side * depth; n += threads) {
      const int i = n / depth, l = n % depth, l_of_b = n / block_side, j = n % block_side;
      slab.a[l][i] = top + i < p.m && first + l < p.k ? a[int64_t(top + i) * p.k + first + l] : 0;
      slab.b[l_of_b][j] = first + l_of_b < p.k && left + j < p.n ? b[int64_t(first + l_of_b) * p.n + left + j] : 0;
    }
    __syncthreads();
#pragma unroll
    for (int l = 0; l < depth; ++l) {
      float of_a[mine], of_b[mine];
      for (int n = 0; n < mine; ++n) of_a[n] = slab.a[l][y + 16 * n], of_b[n] = slab.b[l][x + 16 * n];
      for (int r = 0; r < mine; ++r)
        for (int s = 0; s < mine; ++s) sum[r][s] += of_a[r] * of_b[s];
    }
    __syncthreads();
  }
  for (int r = 0; r < mine; ++r)
    for (int s = 0; s < mine; ++s) {
      const int i = top + y + 16 * r, j = left + x + 16 * s;
      if (i < p.m && j < p.n) c[int64_t(i) * p.n + j] = sum[r][s];
    }
}

// ---- What steps 4 and 5 share: everything moves four floats at a time. n and k are multiples of four. A thread's rows
// and columns come in two groups of four, 64 apart.
using Four = Pack<float, 4>;
struct Fetched {
  Four a, b;  // this thread's part of a slab
};

__device__ Fetched fetch(const Product& p, const float* a, const float* b, int first) {
  const int i = int(blockIdx.y) * block_side + int(threadIdx.x) / 2, l = first + int(threadIdx.x) % 2 * 4;
  const int l_of_b = first + int(threadIdx.x) / 32, j = int(blockIdx.x) * block_side + int(threadIdx.x) % 32 * 4;
  Fetched result{};
  if (i < p.m && l < p.k) result.a = pack<4>(a + int64_t(i) * p.k + l, 0);
  if (l_of_b < p.k && j < p.n) result.b = pack<4>(b + int64_t(l_of_b) * p.n + j, 0);
  return result;
}

__device__ void put(const Fetched& fetched, Slab& slab) {
  const int i = int(threadIdx.x) / 2, l = int(threadIdx.x) % 2 * 4;
  for (int n = 0; n < 4; ++n) slab.a[l + n][i] = fetched.a.element[n];
  pack<4>(slab.b[threadIdx.x / 32], threadIdx.x % 32) = fetched.b;
}

__device__ void multiply(const Slab& slab, float (&sum)[mine][mine]) {
  const int x = int(threadIdx.x % 16), y = int(threadIdx.x / 16);
#pragma unroll
  for (int l = 0; l < depth; ++l) {
    const Four of_a[2] = {pack<4>(slab.a[l], y), pack<4>(slab.a[l], y + 16)};
    const Four of_b[2] = {pack<4>(slab.b[l], x), pack<4>(slab.b[l], x + 16)};
    for (int r = 0; r < mine; ++r)
      for (int s = 0; s < mine; ++s) sum[r][s] += of_a[r / 4].element[r % 4] * of_b[s / 4].element[s % 4];
  }
}

__device__ void write(const Product& p, const float (&sum)[mine][mine], float* c) {
  for (int r = 0; r < mine; ++r)
    for (int s = 0; s < mine; s += 4) {
      const int i = int(blockIdx.y) * block_side + int(threadIdx.x) / 16 * 4 + r / 4 * 64 + r % 4;
      const int j = int(blockIdx.x) * block_side + int(threadIdx.x) % 16 * 4 + s / 4 * 64;
      if (i < p.m && j < p.n)
        pack<4>(c + int64_t(i) * p.n + j, 0) = {sum[r][s], sum[r][s + 1], sum[r][s + 2], sum[r][s + 3]};
    }
}

// ---- 4. 16 bytes a load. A step of k takes 4 loads of shared memory, 6 clocks, where it took 16 and 16; loads are a
// seventeenth of the instructions, not a fifth. Expected: 1.3 times.
__global__ void __launch_bounds__(threads, 2) vectors(Product p, const float* a, const float* b, float* c) {
  __shared__ Slab slab;
  float sum[mine][mine] = {};
  for (int first = 0; first < p.k; first += depth) {
    const Fetched fetched = fetch(p, a, b, first);
    __syncthreads();  // all have done with the last slab
    put(fetched, slab);
    __syncthreads();
    multiply(slab, sum);
  }
  write(p, sum, c);
}

// ---- 5. Two slabs. While one is multiplied, 512 multiply-adds a thread, the next comes from memory, some 600 clocks
// away, and goes to the other: nobody waits for memory, and one barrier a slab is enough. Expected: 1.2 times; with two
// blocks a multiprocessor the other block had hidden part of the wait.
__global__ void __launch_bounds__(threads, 2) two_slabs(Product p, const float* a, const float* b, float* c) {
  __shared__ Slab slabs[2];
  float sum[mine][mine] = {};
  put(fetch(p, a, b, 0), slabs[0]);
  __syncthreads();
  for (int first = 0; first < p.k; first += depth) {
    const int now = first / depth % 2;
    const Fetched next = fetch(p, a, b, first + depth);  // zeros behind the end
    multiply(slabs[now], sum);
    put(next, slabs[1 - now]);
    __syncthreads();
  }
  write(p, sum, c);
}

template <auto kernel, int rows_a_block, int columns_a_block, int threads_a_block>
void run(Stream stream, Product p, const float* a, const float* b, float* c) {
  launch(kernel, {{ceil_div(p.n, columns_a_block), ceil_div(p.m, rows_a_block)}, threads_a_block, 0, stream}, p, a, b,
         c);
}
template <auto kernel>
void run_tiles(Stream stream, Product p, const float* a, const float* b, float* c) {
  run<kernel, block_side, block_side, threads>(stream, p, a, b, c);
}
// Step 3, where rows are not whole fours.
template <auto kernel>
void run_vectors(Stream stream, Product p, const float* a, const float* b, float* c) {
  p.n % 4 == 0 && p.k % 4 == 0 ? run_tiles<kernel>(stream, p, a, b, c) : run_tiles<register_tiles>(stream, p, a, b, c);
}

}  // namespace

std::vector<Step<Matmul>> matmul_steps() {
  return {{"a thread an element", run<thread_an_element, 8, 32, naive_threads>},
          {"tiles in shared memory", run<shared_tiles, side, side, side * side>},
          {"tiles in registers", run_tiles<register_tiles>},
          {"16 bytes a load", run_vectors<vectors>},
          {"two slabs in turn", run_vectors<two_slabs>}};
}

}  // namespace cairn::ladder

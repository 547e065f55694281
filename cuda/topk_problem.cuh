#pragma once
// What the kernels of cuda/topk_attention.cu share: the arguments, the tasks, and the parts of dK and dV.
#include "core/kernels/topk_attention.h"
#include "cuda/attention_problem.cuh"

namespace cairn::gpu {

inline constexpr int task_tile = 64;  // members of a task that a block takes at a time

template <class T>
struct TopKProblem : AttentionProblem<T> {
  using AttentionProblem<T>::size;
  int C, top;  // clusters, and top keys of each
  ClusterView clusters;
  const int32_t* topk;
  const T* mass;
  int task_bits = 6;  // a task has up to 2^task_bits members

  // Task t of cluster c of a batch_head has the number first_task(c) + t. `offsets` are those of the batch_head.
  CAIRN_HD int tasks() const { return int(size.N >> task_bits) + C + 1; }
  __device__ const int32_t* offsets(int64_t batch_head) const { return clusters.offsets + batch_head * (C + 1); }
  __device__ int first_task(const int32_t* offsets, int c) const { return (offsets[c] >> task_bits) + c; }
  __device__ int tasks_of(int begin, int end) const { return (end - begin + (1 << task_bits) - 1) >> task_bits; }
};

// The task of a block: members [first, end) of a cluster, as positions in the permutation. Members of cluster C have no
// cluster.
struct MemberTask {
  int batch_head, number, cluster;  // number: of the task in its batch_head
  int first, end;
  const int32_t* permutation;  // of the batch_head
  const int32_t* topk;         // the top keys: see key()
  int k;                       // its length: 0 for cluster C
  int of_cluster;              // the cluster's number, of all batch_heads'

  // Block 0 has the first task of `first_batch_head`.
  template <class T>
  __device__ MemberTask(const TopKProblem<T>& p, int64_t first_batch_head, unsigned block) {
    const unsigned tasks = unsigned(p.tasks());
    batch_head = int(first_batch_head) + int(block / tasks);
    number = int(block % tasks);
    const int32_t* const offsets = p.offsets(batch_head);
    cluster = 0;
    for (int after = p.C + 1; after - cluster > 1;) {  // the last cluster that starts no later; 32 lanes try at once
      const int step = (after - cluster + 31) / 32, mine = cluster + step * int(threadIdx.x % 32);
      const bool no_later = mine < after && p.first_task(offsets, mine) <= number;
      cluster += step * (__popc(__ballot_sync(full_warp, no_later)) - 1);
      after = min(after, cluster + step);
    }
    first = offsets[cluster] + ((number - p.first_task(offsets, cluster)) << p.task_bits);
    end = min(first + (1 << p.task_bits), cluster < p.C ? offsets[cluster + 1] : int(p.size.N));
    of_cluster = batch_head * p.C + cluster;
    permutation = p.clusters.permutation + batch_head * p.size.N;
    topk = p.topk + int64_t(of_cluster) * p.top;
    k = cluster < p.C ? p.top : 0;
  }
  // Top key l, or -1 if there is none or it is not in [0, S).
  template <class T>
  __device__ int key(const TopKProblem<T>& p, int l) const {
    const int key = l < k ? topk[l] : -1;
    return key < p.S() ? max(key, -1) : -1;
  }
  template <class T>
  __device__ float mass(const TopKProblem<T>& p) const {
    return k > 0 && p.mass ? float(p.mass[of_cluster]) : 1.0f;
  }
};

// A part is what one task adds to dK and dV of one of its top keys: a row of D + M floats. This holds the parts of one
// round of batch_heads, and the deltas of all batch_heads.
struct Parts {
  float* rows;              // [batch_heads, each, D + M]
  int32_t* keys;            // [batch_heads, each]: the key of each part; -1: no part
  int32_t* order;           // [batch_heads, each]: the parts sorted by key
  int32_t* starts;          // [batch_heads, S + 1]: where the parts of a key begin in `order`
  float* deltas = nullptr;  // [B, H, tasks]: what a task adds to dm
  int64_t each = 0;         // tasks times top keys
  int64_t first_batch_head = 0, batch_heads = 0;

  // The place in `keys` and `rows` of a task's part for its first top key.
  template <class T>
  __device__ int64_t first(const TopKProblem<T>& p, const MemberTask& task) const {
    return (task.batch_head - first_batch_head) * each + int64_t(task.number) * p.top;
  }
  // Writes the keys of the parts of the block's task. A task number without members has no parts.
  template <class T>
  __device__ void write_keys(const TopKProblem<T>& p, const MemberTask& task) const {
    const bool some = task.first < task.end;
    for (int l = int(threadIdx.x); l < p.top; l += int(blockDim.x))
      keys[first(p, task) + l] = some ? task.key(p, l) : -1;
  }
};

}  // namespace cairn::gpu

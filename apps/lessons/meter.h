#pragma once
// Meter<T>: a pointer for kernels that watches memory while the emulator runs them. With nvcc it is T*.
//
// It names accesses out of bounds, and races: two accesses of an element, one of them a write, that nothing orders. A
// barrier of the block between them orders them, and __syncwarp within a warp. Shuffles and votes do not. Nothing
// orders blocks. (The meter does not see accesses through plain pointers, such as atomics.)
//
// It counts what a GPU would do. One access of all lanes of a warp is a *request*. Global memory moves in *sectors* of
// 32 bytes, so a request for 32 neighboring floats takes 4. In shared memory, word w, of 4 bytes, lies in *bank*
// w % 32. In one *pass* each bank gives one word. The emulator runs lanes one after another, so the k-th accesses of
// all lanes in a line count as one request. A lane that has ended or takes another branch is left out (`partial`).
#include <algorithm>
#include <array>
#include <concepts>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda/common.cuh"

namespace cairn::lessons {
using namespace gpu;
// What a launch did to an array: sums over its requests.
struct Count {
  int64_t accesses = 0;                    // of single threads
  int64_t requests = 0, partial = 0;       // partial: without some lanes of their warp
  int64_t sectors = 0, least_sectors = 0;  // least: if the same bytes lay side by side
  int64_t passes = 0, least_passes = 0;    // least: without bank conflicts
};

#ifdef __CUDACC__
template <class T>
using Meter = T*;
template <class T>
T* watch(T* data, int64_t, const char*) {
  return data;
}
template <class T>
__device__ T* watch_shared(T* data, int64_t, const char*) {
  return data;
}
template <class T>
__device__ T* seen_from(SourceLine, T* x) {
  return x;
}
#else
using Index = std::array<unsigned, 3>;  // x, y, z

// An access by the CUDA thread that runs.
struct Access {
  bool write;
  SourceLine where;
  size_t syncwarps = 0;  // that its warp has completed
  Index block = {blockIdx.x, blockIdx.y, blockIdx.z}, thread = {threadIdx.x, threadIdx.y, threadIdx.z};
  unsigned number = (thread[2] * blockDim.y + thread[1]) * blockDim.x + thread[0];  // of the thread in its block
  unsigned barriers = host_cuda::completed_barriers();
};
using Accesses = std::vector<Access>;
using Masks = std::vector<unsigned>;  // of lanes

// Everything about the present launch. The emulator must run one block at a time: configure({.threads = 1}).
struct Notes {
  std::map<std::string, class Watched> arrays;
  std::map<std::pair<Index, unsigned>, Masks> syncwarps;  // of a warp: the lanes that met
  std::string race;                                       // the first one, in words
  std::string unwritten;  // the first read of shared memory that no thread had written, in words
};
inline Notes& notes() {
  static Notes instance;
  return instance;
}
// Forgets the launches before.
inline void start_watching() {
  notes() = {};
  host_cuda::watch_syncwarp = [](unsigned lanes) {
    const Access now{false, {}};
    notes().syncwarps[{now.block, now.number / 32}].push_back(lanes);
  };
}

class Watched {
 public:
  Watched(std::string name, int64_t size, bool shared) : name_(std::move(name)), size_(size), shared_(shared) {}
  // The running thread accesses elements [first, first + count), `bytes` bytes from `address` on.
  void access(int64_t first, int count, uintptr_t address, int bytes, bool write, SourceLine where) {
    if (const int64_t i = first < 0 ? first : std::max(first, size_); i < first + count)
      host_cuda::refuse(
          concat(name_, '[', i, write ? "] is written" : "] is read", ", and there are ", size_, " elements"), where);
    Access now{write, where};
    const auto& met = notes().syncwarps[{now.block, now.number / 32}];
    now.syncwarps = met.size();
    if (elements_.empty() || block_ != now.block) {
      if (shared_) elements_.clear();  // each block has its own
      elements_.resize(size_t(size_));
      block_ = now.block;
      for (auto& [line, site] : sites_) site.times.clear();
    }
    for (int64_t i = first; i < first + count; ++i) remember(i, now, met);

    Site& site = sites_[{where.file, where.line, write}];
    site.bytes = bytes;
    site.times.resize(size_t(blockDim.x) * blockDim.y * blockDim.z);
    if (site.times[now.number] == 10'000)
      host_cuda::refuse(concat("this thread accesses ", name_, " here 10,000 times (does the loop end?)"), where);
    site.requests[{block_, now.number / 32, site.times[now.number]++}][now.number % 32] = address;
  }

  // Whether a thread has written element i.
  bool written(int64_t i) const {
    return size_t(i) < elements_.size() && !elements_[size_t(i)].empty() && elements_[size_t(i)].front().write;
  }

  // The sums over all lines, for reads or for writes.
  Count count(bool writes) const {
    Count sum;
    for (const auto& [line, site] : sites_)
      if (std::get<bool>(line) == writes)
        for (const auto& [key, lanes] : site.requests) add(sum, lanes, site.bytes);
    return sum;
  }

 private:
  using Lanes = std::array<uintptr_t, 32>;  // the address of each lane; 0: not part of the request
  struct Site {
    int bytes = 0;                // of a lane
    std::vector<unsigned> times;  // how often each thread of the present block has been here
    std::map<std::tuple<Index, unsigned, unsigned>, Lanes> requests;  // by block, warp and time
  };
  // Whether something orders the access `now` after `before`. met: the lanes that met in the syncwarps of its warp.
  static bool ordered(const Access& before, const Access& now, const Masks& met) {
    if (before.block != now.block) return false;
    if (before.number == now.number || before.barriers != now.barriers) return true;
    if (before.number / 32 != now.number / 32) return false;
    unsigned after = 1u << before.number % 32;  // lanes that go on after `before`
    for (size_t i = before.syncwarps; i < met.size(); ++i)
      if (met[i] & after) after |= met[i];
    return after >> now.number % 32 & 1;
  }

  void remember(int64_t i, const Access& now, const Masks& met) {
    if (shared_ && !now.write && !written(i) && notes().unwritten.empty())
      notes().unwritten = concat(name_, '[', i, "]: read by thread ", text(now.thread), " at ", to_string(now.where),
                                 ", but no thread wrote it");
    Accesses& since_write = elements_[size_t(i)];
    for (const Access& before : since_write)
      if ((before.write || now.write) && notes().race.empty() && !ordered(before, now, met))
        notes().race = race(i, before, now);
    if (now.write)
      since_write.clear();
    else if (!since_write.empty() && !since_write.back().write && ordered(since_write.back(), now, met))
      since_write.pop_back();  // what races with that one races with this one too
    since_write.push_back(now);
  }

  static std::string text(const Index& index) { return concat('(', index[0], ',', index[1], ',', index[2], ')'); }
  std::string race(int64_t i, const Access& before, const Access& now) const {
    const bool one_block = before.block == now.block;
    const auto side = [&](const Access& access) {
      return concat(access.write ? "written" : "read", " by thread ", text(access.thread),
                    one_block ? "" : " of block " + text(access.block), " at ", to_string(access.where), ", ");
    };
    return concat(name_, '[', i, "]: ", side(before.write ? before : now), side(before.write ? now : before),
                  one_block ? "no barrier between, block " + text(now.block) : "nothing orders blocks");
  }

  static void add(Count& sum, const Lanes& lanes, int bytes) {
    std::set<uintptr_t> words, sectors;
    const int of_pass = std::min(32, 128 / bytes);  // lanes whose 128 bytes can move in one pass
    unsigned taking_part = 0;
    for (int first = 0; first < 32; first += of_pass) {
      std::array<std::set<uintptr_t>, 32> banks;
      size_t most = 0;
      for (int lane = first; lane < first + of_pass; ++lane) {
        const uintptr_t word = lanes[size_t(lane)] / 4;
        taking_part += word != 0;
        for (uintptr_t w = word; word && w < word + uintptr_t(bytes) / 4; ++w) {
          words.insert(w);
          sectors.insert(w / 8);
          banks[w % 32].insert(w);
          most = std::max(most, banks[w % 32].size());
        }
      }
      sum.passes += int64_t(most);
      sum.least_passes += most > 0;
    }
    sum.accesses += taking_part;
    ++sum.requests;
    sum.partial += taking_part < 32;
    sum.sectors += int64_t(sectors.size());
    sum.least_sectors += int64_t(words.size() + 7) / 8;
  }
  std::string name_;
  int64_t size_;
  bool shared_;
  Index block_{};                                             // the present one
  std::vector<Accesses> elements_;                            // the accesses since the last write, and that one
  std::map<std::tuple<const char*, int, bool>, Site> sites_;  // by file, line, and whether it writes
};

// An index, with the line where it is used.
struct At {
  int64_t index;
  SourceLine where;
  At(std::integral auto i, SourceLine line = SourceLine::current()) : index(int64_t(i)), where(line) {}
};

// What x[i] is. To read it, and to assign to it, are accesses. T has 4, 8 or 16 bytes.
template <class T>
struct Ref {
  Watched* array;
  int64_t first;
  int count;
  T* data;
  SourceLine where;

  using Value = std::remove_const_t<T>;
  Ref(Watched* of, int64_t from, int n, T* at, SourceLine line)
      : array(of), first(from), count(n), data(at), where(line) {}
  Ref(std::same_as<int> auto) = delete;  // c ? x[i] : 0 is an error. It would be an int.
  operator Value() const { return *accessed(false); }
  const Ref& operator=(const Value& value) const { return *accessed(true) = value, *this; }
  const Ref& operator=(const Ref& other) const { return *this = Value(other); }
  const Ref& operator+=(const Value& value) const { return *this = Value(*this) + value; }
  T* operator&() const { return data; }
  T* accessed(bool write) const {
    array->access(first, count, reinterpret_cast<uintptr_t>(data), int(sizeof(T)), write, where);
    return data;
  }
};
// What x[i] gives; if x is read only, it is read at once.
template <class T>
using Result = std::conditional_t<!std::is_const_v<T>, Ref<T>, typename Ref<T>::Value>;

template <class T>
struct Meter {
  Watched* array;
  T* data;
  int64_t first = 0;       // the element that data points at
  SourceLine caller = {};  // the line that accesses are reported for, if not their own
  Result<T> operator[](At i) const {
    return Ref<T>(array, first + i.index, 1, data + i.index, caller.line > 0 ? caller : i.where);
  }
  Meter operator+(int64_t i) const { return {array, data + i, first + i, caller}; }
  operator Meter<const T>() const { return {array, data, first, caller}; }
};
// x, for a function whose accesses are reported for the line that calls it.
template <class T>
Meter<T> seen_from(SourceLine caller, Meter<T> x) {
  x.caller = caller;
  return x;
}

// pack<4>(x, i): see cuda/common.cuh.
template <int n, class T>
auto pack(const Meter<T>& x, At i) {
  using P = std::remove_reference_t<decltype(gpu::pack<n>(x.data, 0))>;
  return Result<P>(Ref<P>(x.array, x.first + n * i.index, n, reinterpret_cast<P*>(x.data) + i.index, i.where));
}

// Watches an array: of global memory, in the next launch; of shared memory, in a kernel.
template <class T>
Meter<T> watch(T* data, int64_t size, const char* name) {
  return {&notes().arrays.insert_or_assign(name, Watched(name, size, false)).first->second, data};
}
template <class T>
Meter<T> watch_shared(T* data, int64_t size, const char* name) {
  return {&notes().arrays.try_emplace(name, name, size, true).first->second, data};
}
#endif
}  // namespace cairn::lessons

#pragma once
// Which keys a query may see by their positions alone, and so which tiles of scores need to be computed. Both devices
// go from tile to tile by next_keys() and next_queries(); a step costs the same, however many tiles it skips.
#include <cstdint>

#include "core/host_device.h"

namespace cairn {

// Positions [begin, end).
template <class Int>
struct Range {
  Int begin, end;
};

// Blocks of 2^query_bits queries and of 2^key_bits keys, numbered alike. A query sees the keys of its own block and of
// the two beside it, or, if `far`, those of all other blocks. (Powers of two, because kernels divide by shifts.)
struct Blocks {
  int32_t query_bits = -1, key_bits = 0;  // negative: no blocks
  bool far = false;
  bool later = true;  // false: of the far blocks, only earlier ones

  CAIRN_HD bool none() const { return query_bits < 0; }
  template <class Int>
  CAIRN_HD bool sees(Int query, Int key) const {
    const Int q = query >> query_bits, k = key >> key_bits;
    return far ? k + 1 < q || (later && k > q + 1) : k + 1 >= q && k <= q + 1;
  }
  template <class Int>
  CAIRN_HD bool sees_all(Int q0, Int q1, Int k0, Int k1) const {
    const Int a0 = q0 >> query_bits, a1 = (q1 - 1) >> query_bits, b0 = k0 >> key_bits, b1 = (k1 - 1) >> key_bits;
    return far ? b1 + 1 < a0 || (later && b0 > a1 + 1) : b0 + 1 >= a1 && b1 <= a0 + 1;
  }
  // As Pattern::next(), but not rounded: of the keys that queries [begin, end) see, or with `of_keys` the reverse.
  template <class Int>
  CAIRN_HD Range<Int> next(Int begin, Int end, Int from, Int limit, bool of_keys) const {
    const int own = of_keys ? key_bits : query_bits, other = of_keys ? query_bits : key_bits;
    const int64_t first = begin >> own, last = (end - 1) >> own;
    const bool before = !of_keys || later, after = of_keys || later;  // are far blocks before and after these seen?
    int64_t low = (first - 1) * (int64_t{1} << other), high = (last + 2) * (int64_t{1} << other);  // of the near ones
    if (far && before && from < (last - 1) * (int64_t{1} << other)) {
      low = 0, high = (last - 1) * (int64_t{1} << other);
    } else if (far) {
      low = after ? (first + 2) * (int64_t{1} << other) : limit, high = limit;
    }
    if (low < from) low = from;
    if (high > limit) high = limit;
    return low < high ? Range<Int>{Int(low), Int(high)} : Range<Int>{limit, limit};
  }
};

// Query i and key j see each other if |i - j| <= window, or if one of them is below `global`; or as their blocks say.
// In this file, sums that could overflow are written as differences.
struct Pattern {
  int32_t window = -1;  // negative: all positions see each other
  int32_t global = 0;
  bool self = true;  // false: a position is not in its own window
  Blocks blocks{};   // then without a window

  CAIRN_HD bool all() const { return window < 0 && blocks.none(); }
  template <class Int>
  CAIRN_HD bool sees(Int i, Int j) const {
    if (!blocks.none()) return blocks.sees(i, j);
    const Int distance = i < j ? j - i : i - j;
    return all() || (distance <= window && (self || distance > 0)) || i < global || j < global;
  }

  // The first range in [from, limit) of keys that some query of [begin, end) sees, or with `of_keys` of queries that
  // see some key of it; {limit, limit} if there is none. Dropout draws for four keys at once, so ranges are rounded out
  // to multiples of 4, or end at `limit`; each four of a range has a position that is seen, if positions see
  // themselves. `from` must be a multiple of 4. Two ranges may touch.
  template <class Int>
  CAIRN_HD Range<Int> next(Int begin, Int end, Int from, Int limit, bool of_keys) const {
    if (begin >= end || from >= limit) return {limit, limit};
    if (all() || begin < global) return {from, limit};
    Range<Int> range{limit, limit};
    if (!blocks.none()) {
      range = blocks.next(begin, end, from, limit, of_keys);
    } else if (from < global) {
      range = {from, limit < global ? limit : Int(global)};
    } else {
      // The windows together are [begin - window, end + window).
      const Int first = from > begin - window ? from : begin - window;
      if (from - end < window && first < limit) range = {first, limit - end < window ? limit : end + window};
    }
    const Int beyond = (4 - range.end % 4) % 4;
    return {range.begin == limit ? limit : range.begin / 4 * 4,
            limit - range.end < beyond ? limit : range.end + beyond};
  }
};

// A pattern and a causal flag.
struct Positions {
  bool causal = false;  // key j is visible to query i when j <= i
  Pattern pattern;

  CAIRN_HD bool all() const { return !causal && pattern.all(); }
  template <class Int>
  CAIRN_HD bool sees(Int query, Int key) const {
    return !(causal && key > query) && pattern.sees(query, key);
  }
  // True only if every query of [q0, q1) sees every key of [k0, k1); it may be false although they do.
  template <class Int>
  CAIRN_HD bool sees_all(Int q0, Int q1, Int k0, Int k1) const {
    if (causal && k1 - 1 > q0) return false;
    if (!pattern.blocks.none()) return pattern.blocks.sees_all(q0, q1, k0, k1);
    const bool near = q1 - 1 - k0 <= pattern.window && k1 - 1 - q0 <= pattern.window;
    return pattern.all() || (near && (pattern.self || q1 <= k0 || k1 <= q0)) || q1 <= pattern.global ||
           k1 <= pattern.global;
  }
  // Pattern::next() of the keys that queries [q0, q1) see, and of the queries that see keys [k0, k1). A range that ends
  // at the causal limit drops only keys that no query of [q0, q1) sees.
  template <class Int>
  CAIRN_HD Range<Int> next_keys(Int q0, Int q1, Int from, Int limit) const {
    const Int end = causal && q1 < limit ? q1 : limit;
    const Range<Int> range = pattern.next(q0, q1, from, end, false);
    return range.begin < end ? range : Range<Int>{limit, limit};
  }
  template <class Int>
  CAIRN_HD Range<Int> next_queries(Int k0, Int k1, Int from, Int limit) const {
    return pattern.next(k0, k1, causal && from < k0 ? k0 / 4 * 4 : from, limit, true);
  }
};

}  // namespace cairn

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

// Positions i and j see each other if |i - j| <= window, or if one of them is below `global`. In this file, sums that
// could overflow are written as differences.
struct Pattern {
  int32_t window = -1;  // negative: all positions see each other
  int32_t global = 0;
  bool self = true;  // false: a position is not in its own window

  CAIRN_HD bool all() const { return window < 0; }
  template <class Int>
  CAIRN_HD bool sees(Int i, Int j) const {
    const Int distance = i < j ? j - i : i - j;
    return all() || (distance <= window && (self || distance > 0)) || i < global || j < global;
  }

  // The first range in [from, limit) of positions that some position of [begin, end) sees; {limit, limit} if there is
  // none. Dropout draws for four keys at once, so ranges are rounded out to multiples of 4, or end at `limit`; each
  // four of a range has a position that is seen, if positions see themselves. `from` must be a multiple of 4. Two
  // ranges may touch.
  template <class Int>
  CAIRN_HD Range<Int> next(Int begin, Int end, Int from, Int limit) const {
    if (begin >= end || from >= limit) return {limit, limit};
    if (all() || begin < global) return {from, limit};
    Range<Int> range{limit, limit};
    if (from < global) {
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
    const bool near = q1 - 1 - k0 <= pattern.window && k1 - 1 - q0 <= pattern.window;
    return pattern.all() || (near && (pattern.self || q1 <= k0 || k1 <= q0)) || q1 <= pattern.global ||
           k1 <= pattern.global;
  }
  // Pattern::next() of the keys that queries [q0, q1) see, and of the queries that see keys [k0, k1). A range that ends
  // at the causal limit drops only keys that no query of [q0, q1) sees.
  template <class Int>
  CAIRN_HD Range<Int> next_keys(Int q0, Int q1, Int from, Int limit) const {
    const Int end = causal && q1 < limit ? q1 : limit;
    const Range<Int> range = pattern.next(q0, q1, from, end);
    return range.begin < end ? range : Range<Int>{limit, limit};
  }
  template <class Int>
  CAIRN_HD Range<Int> next_queries(Int k0, Int k1, Int from, Int limit) const {
    return pattern.next(k0, k1, causal && from < k0 ? k0 / 4 * 4 : from, limit);
  }
};

}  // namespace cairn

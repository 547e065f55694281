#pragma once
// What layers, attention variants and programs draw random numbers for. A purpose's number determines what is drawn, so
// a new purpose comes last.
#include <cstdint>

#include "core/philox.h"

namespace cairn {

enum class Purpose : uint32_t {
  initialize,
  data,
  planes,
  clusters,
  attention_dropout,
  attention_rest_dropout,  // of i-clustered: of the centroid's weights on keys that are not top keys
  attention_output_dropout,
  feed_forward_dropout,
  feed_forward_output_dropout,
  test,
  rotations,      // of lsh
  class_dropout,  // of strided: of the keys at multiples of the stride
};

}  // namespace cairn

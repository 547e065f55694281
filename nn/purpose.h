#pragma once
// What layers, attention variants and programs draw random numbers for. The numbers of the purposes name those draws,
// so a new purpose comes last.
#include <cstdint>

#include "core/philox.h"

namespace cairn {

enum class Purpose : uint32_t {
  initialize,
  data,
  planes,
  clusters,
  attention_dropout,
  attention_rest_dropout,  // on what an i-clustered query takes from its centroid
  attention_output_dropout,
  feed_forward_dropout,
  feed_forward_output_dropout,
  test,
  rotations,  // of lsh's buckets
};

}  // namespace cairn

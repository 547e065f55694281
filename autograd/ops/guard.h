#pragma once
// The tensors that gradients of attention read besides their operands.
#include "autograd/tape.h"
#include "core/attention_ops.h"

namespace cairn {

inline VersionGuard guard(const AttentionMask& mask) {
  return VersionGuard().add(mask.query_lengths).add(mask.key_lengths).add(mask.allowed);
}

}  // namespace cairn

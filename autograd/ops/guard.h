#pragma once
// What the gradients of attention read besides their operands.
#include "autograd/tape.h"
#include "core/attention_ops.h"

namespace cairn {

// The mask, and the step of the dropout that acts.
inline VersionGuard guard(const AttentionOptions& options) {
  VersionGuard result = options.dropout.p > 0 ? VersionGuard(options.dropout.draw) : VersionGuard();
  return result.add(options.mask.query_lengths).add(options.mask.key_lengths).add(options.mask.allowed);
}

}  // namespace cairn

#pragma once
#include "autograd/tape.h"
#include "core/attention_ops.h"

namespace cairn {

// The options of attention, saved for backward: a function that returns them. Error: a tensor of the mask has changed.
inline auto saved_options(const AttentionOptions& options) {
  return [options, query_lengths = SavedTensor(options.mask.query_lengths),
          key_lengths = SavedTensor(options.mask.key_lengths),
          allowed = SavedTensor(options.mask.allowed)]() -> const AttentionOptions& {
    query_lengths();
    key_lengths();
    allowed();
    return options;
  };
}

}  // namespace cairn

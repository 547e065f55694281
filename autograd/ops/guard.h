#pragma once
// The tensors that gradients of attention read besides their operands. (Groups check themselves.)
#include "autograd/tape.h"
#include "core/attention_ops.h"

namespace cairn {

inline std::vector<SavedTensor> guard(const AttentionMask& mask, const Tensor& topk = {}) {
  return {SavedTensor(mask.query_lengths), SavedTensor(mask.key_lengths), SavedTensor(mask.allowed), SavedTensor(topk)};
}
// Error: one of them has changed.
inline void check_unchanged(const std::vector<SavedTensor>& guard) {
  for (const SavedTensor& tensor : guard) tensor();
}

}  // namespace cairn

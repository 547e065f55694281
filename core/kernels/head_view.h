#pragma once
// How attention kernels see their operands: [batch, row, head, element] with any strides and contiguous elements. So
// activations [B, N, H * D] need no copy.
#include <concepts>
#include <cstdint>

#include "core/kernels/positions.h"
#include "core/philox.h"

namespace cairn {

template <class T>
struct HeadView {
  T* data = nullptr;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;

  CAIRN_HD T* at(int64_t batch, int64_t row, int64_t head) const {
    return data + batch * batch_stride + row * row_stride + head * head_stride;
  }
  // Row 0 of one (batch element, head); the next rows are row_stride apart.
  CAIRN_HD T* batch_head(int64_t batch, int64_t head) const { return at(batch, 0, head); }
  CAIRN_HD explicit operator bool() const { return data != nullptr; }
  template <std::same_as<const T> U>  // (a template, because nvcc warns of a conversion to itself)
  operator HeadView<U>() const {
    return {data, batch_stride, row_stride, head_stride};
  }
};

// B batch elements, H heads, N queries, S keys, D elements of a query or key, M of a value.
struct AttentionSize {
  int64_t B = 0, H = 0, N = 0, S = 0, D = 0, M = 0;
  double scale = 1;
};

// Which keys a query may attend to: by positions, lengths and a mask of single scores. A null pointer masks nothing.
//
// A head may be a residue class of the positions of a sequence with `heads` heads: row a of head r heads + h is
// position a classes + r of the sequence's head h (autograd/ops/joined_attention.cpp). Lengths count positions of the
// sequence; causal flag and pattern compare rows.
struct Mask : Positions {
  const int32_t* query_lengths = nullptr;  // [B]: queries beyond get zeros
  const int32_t* key_lengths = nullptr;    // [B]: keys beyond get no weight
  const uint8_t* allowed = nullptr;        // 0 forbids; element strides below (0 where broadcast)
  int64_t allowed_batch = 0, allowed_head = 0, allowed_class = 0, allowed_query = 0, allowed_key = 0;
  int64_t classes = 1, heads = INT64_MAX;

  // How many rows of the head are valid.
  CAIRN_HD int64_t queries(int64_t batch, int64_t head, int64_t N) const {
    return query_lengths ? rows(head, query_lengths[batch]) : N;
  }
  CAIRN_HD int64_t keys(int64_t batch, int64_t head, int64_t S) const {
    return key_lengths ? rows(head, key_lengths[batch]) : S;
  }
  // The rows of the head that are positions below `length`.
  CAIRN_HD int64_t rows(int64_t head, int64_t length) const { return (length + classes - 1 - head / heads) / classes; }
  // May query 0 attend to key 0? Null: all may attend to all.
  CAIRN_HD const uint8_t* allowed_of(int64_t batch, int64_t head) const {
    if (!allowed) return nullptr;
    return allowed + batch * allowed_batch + head % heads * allowed_head + head / heads * allowed_class;
  }
  // Does it hide keys within the lengths?
  CAIRN_HD bool elementwise() const { return allowed || !all(); }
  CAIRN_HD bool visible(int64_t batch, int64_t head, int64_t query, int64_t key) const {
    return sees(query, key) && (!allowed || allowed_of(batch, head)[query * allowed_query + key * allowed_key] != 0);
  }
};

// What every attention kernel reads.
template <class T>
struct AttentionOperands {
  AttentionSize size;
  HeadView<const T> q, k, v;  // [B, N, H, D], [B, S, H, D], [B, S, H, M]
  Mask mask;
  Dropout dropout;  // of weights
};

}  // namespace cairn

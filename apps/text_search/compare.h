#pragma once
// Compares the embeddings of attention variants with those of full attention: the error and the nearest neighbors.
#include <cstdint>

#include "apps/text_search/embedder.h"

namespace cairn::text_search {

// Cuts texts into consecutive sequences of exactly `length` tokens (at least 3): [CLS], length - 2 tokens of one text,
// [SEP]. If there are more than `maximum`, keeps that many, evenly spaced. Error (UsageError): fewer than two.
Sequences cut_sequences(const Sequences& texts, const WordPiece& tokenizer, int64_t length, int64_t maximum);

// Compares embeddings with those of full attention: mean_error and largest_error (1 - cosine; 0 below 1e-6, which is
// rounding), and neighbors_kept, the share of each sequence's ten nearest neighbors that stay the same.
Json embedding_difference(const Tensor& mine, const Tensor& full);

}  // namespace cairn::text_search

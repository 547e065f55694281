#pragma once
// What attention variants make of a model: their embeddings beside those of full attention, and their time.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/text_search/embedder.h"

namespace cairn::text_search {

using Sequences = std::vector<std::vector<int32_t>>;

// "full,..." as specifications, full first and each once. Errors (UsageError): as make_attention and the weights allow.
std::vector<std::string> variants_of(Embedder& embedder, const std::string& list);

struct Measured {
  std::vector<Tensor> embeddings;         // of each variant, float32 [n, features]
  std::vector<double> seconds_per_token;  // the median over batches
};
// The sequences' embeddings by every variant. Each batch is embedded by all of them in turn, so that a slow moment of
// the machine hits none alone. `after_batch` is called with how many sequences a variant has done.
Measured embed_by_each(Embedder& embedder, const Sequences& sequences, const std::vector<std::string>& specs,
                       const std::function<void(int64_t sequences)>& after_batch);

// How near rows (unit length, [n, features]) are to those of the same number.
struct Cosines {
  double mean, least;
};
Cosines cosines(const Tensor& a, const Tensor& b);

// The `k` rows of `b` that are nearest to each row of `a`, the nearest first; of equal ones the first. With `same`, b
// is a, and no row is its own neighbor. [n][min(k, rows)].
std::vector<std::vector<int32_t>> nearest_rows(const Tensor& a, const Tensor& b, int64_t k, bool same);
// The mean share of neighbors that are among the others' of the same row.
double neighbors_kept(const std::vector<std::vector<int32_t>>& mine, const std::vector<std::vector<int32_t>>& others);

}  // namespace cairn::text_search

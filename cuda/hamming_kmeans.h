#pragma once
// K-means on CUDA in a given form (hamming_kmeans.cu), for tests: hamming_kmeans chooses the fastest one.
#include "core/kernels/hamming_kmeans.h"

namespace cairn::gpu {

// row_blocks: how many blocks take a row, in one launch for all iterations: 1, 2, 4 or 8, for up to 256 clusters and
// 65535 codes a block. 0: two launches for each iteration. Returns false, without labels, if the device lacks block
// clusters.
bool hamming_kmeans_with(int row_blocks, Stream, KMeansSize, const uint64_t* codes, const int32_t* lengths, Draw,
                         int32_t* labels);

}  // namespace cairn::gpu

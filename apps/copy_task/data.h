#pragma once
// The masked copy task (the paper's appendix C.2, figure 6). The target is 0w0w with w of random symbols 1..10; in the
// input, some positions of the first copy and others of the second are masked, so that each masked symbol can be read
// in the other copy.
#include <cstdint>
#include <string>

#include "core/random.h"

namespace cairn::copy_task {

inline constexpr int separator = 0, symbols = 10, mask_token = 11;
inline constexpr int64_t classes = symbols + 1;    // of the output: 0..10
inline constexpr int64_t tokens = mask_token + 1;  // of the input: 0..11

// Length of the sequence 0w0w for w of `length` symbols.
constexpr int64_t sequence_length(int64_t length) { return 2 * (length + 1); }
// Masked positions in each half: round(length / 5).
constexpr int64_t masked_per_half(int64_t length) { return (2 * length + 5) / 10; }

// A token as text.
inline std::string token_text(int32_t token) { return token == mask_token ? "M" : std::to_string(token); }

struct Batch {
  Tensor input, target;  // int32 [batch, 2 (length + 1)]
  Batch to(Device device) const { return {input.to(device), target.to(device)}; }
};

// Indices of the random streams of sequences (Purpose::data). Training, evaluation, and the examples of reports and
// `show` have one each, so they share no sequences.
inline constexpr uint32_t training_data = 0, evaluation_data = 1, displayed_data = 2;
// `batch` fresh sequences, which the random stream determines. Causal: the second copy is masked, all of it.
Batch make_batch(int64_t batch, int64_t length, RandomStream& random, bool causal = false);

}  // namespace cairn::copy_task

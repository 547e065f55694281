#pragma once
// The formulas of operations in double, by loops over single elements, independent of the library. Tests
// compare results with them. A formula that only one file needs is in that file.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/attention_ops.h"

namespace cairn {

inline std::vector<double> as_double(const Tensor& x) {
  return x.to(Device::cpu).cast(DType::float64).to_vector<double>();
}

// ---- random numbers

// Philox 4x32-10 (Salmon et al., 2011): the four words of a counter. The key's lower half is its first word.
using Words = std::array<uint32_t, 4>;
inline Words reference_philox(uint64_t key, Words c) {
  for (uint32_t round = 0; round < 10; ++round) {
    const uint64_t p = uint64_t{0xD2511F53} * c[0], q = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t a = uint32_t(key) + round * 0x9E3779B9, b = uint32_t(key >> 32) + round * 0xBB67AE85;
    c = {uint32_t(q >> 32) ^ c[1] ^ a, uint32_t(q), uint32_t(p >> 32) ^ c[3] ^ b, uint32_t(p)};
  }
  return c;
}
inline uint64_t reference_key(const Draw& draw) {
  const Words words =
      reference_philox(draw.seed, {uint32_t(draw.step), uint32_t(draw.step >> 32), draw.layer, uint32_t(draw.purpose)});
  return uint64_t{words[1]} << 32 | words[0];
}

// What dropout multiplies a number by for its random word: 0 with probability p, else 1 / (1 - p), in float32.
inline double dropout_factor(double p, uint32_t word) {
  return double(word) < double(float(p)) * 0x1p32 ? 0 : double(1 / (1 - float(p)));
}
// That of an element, whose number counts from the whole batch's first one.
inline double dropout_factor(double p, uint64_t key, uint64_t number) {
  const uint64_t four = number / 4;
  return dropout_factor(p, reference_philox(key, {uint32_t(four), uint32_t(four >> 32), 0, 0})[number % 4]);
}
// That of the weight of query i on key j, in a row of (batch element, head) of the whole batch.
inline double dropout_factor(double p, uint64_t key, uint64_t row, int64_t i, int64_t j) {
  return dropout_factor(p, reference_philox(key, {uint32_t(j / 4), uint32_t(i), uint32_t(row), 0})[size_t(j % 4)]);
}

// ---- single elements

// f(place in the whole, place in a part that broadcasts to it), for every element of the whole, in order.
template <class F>
void each_broadcast(const Shape& whole, const Shape& part, F&& f) {
  for (int64_t i = 0; i < whole.elements(); ++i) {
    int64_t rest = i, place = 0, stride = 1;
    for (int axis = 1; axis <= whole.rank(); ++axis) {
      const int64_t at = rest % whole[-axis], size = axis <= part.rank() ? part[-axis] : 1;
      rest /= whole[-axis];
      place += (size == 1 ? 0 : at) * stride, stride *= size;
    }
    f(size_t(i), size_t(place));
  }
}
inline std::vector<double> broadcasted(const Tensor& x, const Shape& shape) {
  const std::vector<double> from = as_double(x);
  std::vector<double> to(size_t(shape.elements()));
  each_broadcast(shape, x.shape(), [&](size_t i, size_t place) { to[i] = from[place]; });
  return to;
}

// ---- matrices

// op(a) op(b) for matrices with equal leading axes or without.
inline std::vector<double> reference_matmul(const Tensor& a, const Tensor& b, bool ta, bool tb) {
  const std::vector<double> x = as_double(a), y = as_double(b);
  const int64_t m = a.size(ta ? -1 : -2), k = a.size(ta ? -2 : -1), n = b.size(tb ? -2 : -1);
  const int64_t batch = (a.rank() == 2 ? b : a).shape().without(-1).without(-1).elements();
  std::vector<double> result(size_t(batch * m * n));
  for (size_t at = 0; at < result.size(); ++at) {
    const int64_t j = int64_t(at) % n, i = int64_t(at) / n % m, member = int64_t(at) / (m * n);
    const int64_t of_a = a.rank() == 2 ? 0 : member * m * k, of_b = b.rank() == 2 ? 0 : member * k * n;
    for (int64_t l = 0; l < k; ++l)
      result[at] += x[size_t(of_a + (ta ? l * m + i : i * k + l))] * y[size_t(of_b + (tb ? j * k + l : l * n + j))];
  }
  return result;
}

// ---- rows of `cols` elements

// A row of minus infinities gives zeros; one with a NaN or plus infinity NaN.
inline std::vector<double> reference_softmax(std::vector<double> x, int64_t cols) {
  for (auto row = x.begin(); row != x.end(); row += cols) {
    double maximum = -INFINITY, sum = 0;
    for (auto at = row; at != row + cols; ++at) maximum = std::isnan(*at) || *at > maximum ? *at : maximum;
    for (auto at = row; at != row + cols; ++at) sum += * at = maximum == -INFINITY ? 0 : std::exp(*at - maximum);
    for (auto at = row; at != row + cols && maximum > -INFINITY; ++at) *at /= sum;
  }
  return x;
}

// y, mean and 1 / sqrt(variance + epsilon) of every row.
inline std::vector<std::vector<double>> reference_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                                             double epsilon) {
  auto y = as_double(x);
  const auto w = as_double(weight), b = as_double(bias);
  const size_t cols = w.size();
  std::vector<double> means, rstds;
  for (size_t row = 0; row < y.size(); row += cols) {
    double mean = 0, variance = 0;
    for (size_t c = 0; c < cols; ++c) mean += y[row + c] / double(cols);
    for (size_t c = 0; c < cols; ++c) variance += (y[row + c] - mean) * (y[row + c] - mean) / double(cols);
    const double rstd = 1 / std::sqrt(variance + epsilon);
    for (size_t c = 0; c < cols; ++c) y[row + c] = (y[row + c] - mean) * rstd * w[c] + b[c];
    means.push_back(mean), rstds.push_back(rstd);
  }
  return {y, means, rstds};
}

// The mean of -log softmax(logits)[target] over the rows that count.
inline double reference_cross_entropy(const Tensor& logits, const Tensor& targets) {
  const auto x = as_double(logits), target = as_double(targets);
  const size_t cols = size_t(logits.size(-1));
  double sum = 0, count = 0;
  for (size_t row = 0; row < target.size(); ++row) {
    if (target[row] < 0) continue;
    double maximum = -INFINITY, total = 0;
    for (size_t c = 0; c < cols; ++c) maximum = std::max(maximum, x[row * cols + c]);
    for (size_t c = 0; c < cols; ++c) total += std::exp(x[row * cols + c] - maximum);
    sum += maximum + std::log(total) - x[row * cols + size_t(target[row])];
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

// Row index[r] of the table for each r; zeros if there is no such row.
inline std::vector<double> reference_gather(const Tensor& table, const Tensor& index) {
  const auto from = as_double(table);
  std::vector<double> result;
  for (const double row : as_double(index))
    for (int64_t c = 0; c < table.size(1); ++c)
      result.push_back(row < 0 || row >= double(table.size(0)) ? 0 : from[size_t(int64_t(row) * table.size(1) + c)]);
  return result;
}

// ---- attention: whole matrices of weights

// x [B, N, H, D] of any element type, read as double.
struct Rows4 {
  explicit Rows4(const Tensor& x) : values(as_double(x)), shape(x.shape()) {}
  double operator()(int64_t b, int64_t n, int64_t h, int64_t d) const { return values[size_t(at(b, n, h, d))]; }
  double& operator()(int64_t b, int64_t n, int64_t h, int64_t d) { return values[size_t(at(b, n, h, d))]; }
  int64_t at(int64_t b, int64_t n, int64_t h, int64_t d) const {
    return ((b * shape[1] + n) * shape[2] + h) * shape[3] + d;
  }

  std::vector<double> values;
  Shape shape;
};

// The mean of x [B, N, H, D] over each of C clusters, by the labels [B, H, N].
inline std::vector<double> reference_cluster_mean(const Tensor& x, const Tensor& cluster_labels, int64_t C) {
  const int64_t B = x.size(0), N = x.size(1), H = x.size(2);
  const Rows4 from(x);
  Rows4 result(Tensor::zeros(x.shape().with(1, C), DType::float64));
  const auto labels = cluster_labels.to_vector<int32_t>();
  for (int64_t head = 0; head < B * H && N > 0; ++head) {
    const auto label = labels.begin() + head * N;
    for (int64_t i = 0; i < N; ++i) {
      if (label[i] < 0 || label[i] >= C) continue;
      const double members = double(std::count(label, label + N, label[i]));
      for (int64_t d = 0; d < x.size(3); ++d)
        result(head / H, label[i], head % H, d) += from(head / H, i, head % H, d) / members;
    }
  }
  return result.values;
}

// A matrix of numbers for each (batch element, head), [B, H, N, S].
struct BatchHeads {
  BatchHeads(int64_t batches, int64_t heads, int64_t rows, int64_t cols, double value = 0)
      : B(batches), H(heads), N(rows), S(cols), values(size_t(batches * heads * rows * cols), value) {}
  double operator()(int64_t b, int64_t h, int64_t i, int64_t j) const { return values[at(b, h, i, j)]; }
  double& operator()(int64_t b, int64_t h, int64_t i, int64_t j) { return values[at(b, h, i, j)]; }
  size_t at(int64_t b, int64_t h, int64_t i, int64_t j) const { return size_t(((b * H + h) * N + i) * S + j); }

  // f(b, h, i) for every row.
  template <class F>
  void rows(F&& f) const {
    for (int64_t row = 0; row < B * H * N; ++row) f(row / (H * N), row / N % H, row % N);
  }

  int64_t B, H, N, S;
  std::vector<double> values;
};

// Does the mask (on the CPU) let query i see key j? By the definition in core/attention_ops.h.
inline bool may_attend(const AttentionMask& mask, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (mask.query_lengths.defined() && i >= mask.query_lengths.data<int32_t>()[b]) return false;
  if (mask.key_lengths.defined() && j >= mask.key_lengths.data<int32_t>()[b]) return false;
  if (mask.causal && j > i) return false;
  const auto [window, global, self, blocks] = mask.pattern;
  if (!blocks.none()) {
    const int64_t to = j / (1 << blocks.key_bits) - i / (1 << blocks.query_bits);
    if (blocks.far ? std::abs(to) <= 1 || (to > 0 && !blocks.later) : std::abs(to) > 1) return false;
  }
  const int64_t distance = i < j ? j - i : i - j;
  if (window >= 0 && (distance > window || (!self && distance == 0)) && std::min(i, j) >= global) return false;
  if (!mask.allowed.defined()) return true;
  const int64_t index[4] = {b, h, i, j};
  int64_t place = 0;
  for (int axis = 0; axis < mask.allowed.rank(); ++axis) {
    const int64_t size = mask.allowed.size(axis);
    place = place * size + (size == 1 ? 0 : index[4 - mask.allowed.rank() + axis]);
  }
  return mask.allowed.data<bool>()[place];
}

inline AttentionMask on(Device device, AttentionMask mask) {
  for (Tensor* x : {&mask.query_lengths, &mask.key_lengths, &mask.allowed})
    if (x->defined()) *x = x->to(device);
  return mask;
}

// scale q k^T, minus infinity where masked.
inline BatchHeads reference_scores(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  const Rows4 q(query), k(key);
  const int64_t D = query.size(3);
  const double scale = options.scale != 0 ? options.scale : D > 0 ? 1 / std::sqrt(double(D)) : 1;
  BatchHeads scores(query.size(0), query.size(2), query.size(1), key.size(1));
  scores.rows([&](int64_t b, int64_t h, int64_t i) {
    for (int64_t j = 0; j < scores.S; ++j) {
      double product = 0;
      for (int64_t d = 0; d < D; ++d) product += q(b, i, h, d) * k(b, j, h, d);
      scores(b, h, i, j) = may_attend(options.mask, b, h, i, j) ? scale * product : -INFINITY;
    }
  });
  return scores;
}

// log of the sum of exponentials, [B, H, N]; minus infinity where no key is left.
inline std::vector<double> reference_logsumexp(const BatchHeads& scores) {
  std::vector<double> result;
  scores.rows([&](int64_t b, int64_t h, int64_t i) {
    double maximum = -INFINITY, sum = 0;
    for (int64_t j = 0; j < scores.S; ++j) maximum = std::max(maximum, scores(b, h, i, j));
    for (int64_t j = 0; j < scores.S && maximum > -INFINITY; ++j) sum += std::exp(scores(b, h, i, j) - maximum);
    result.push_back(maximum > -INFINITY ? maximum + std::log(sum) : -INFINITY);
  });
  return result;
}

// softmax of the scores; zero where no key is left.
inline BatchHeads reference_weights(const BatchHeads& scores) {
  BatchHeads weights = scores;
  const auto logsumexp = reference_logsumexp(scores);
  size_t row = 0;
  scores.rows([&](int64_t b, int64_t h, int64_t i) {
    for (int64_t j = 0; j < scores.S; ++j) {
      const double s = scores(b, h, i, j);
      weights(b, h, i, j) = s == -INFINITY ? 0 : std::exp(s - logsumexp[row]);  // NaN stays
    }
    ++row;
  });
  return weights;
}

// Takes the top keys [B, H, N, k] (-1: none) out of the weights. Returns the sum of these weights, [B, H, N].
inline std::vector<double> take_top_keys(BatchHeads& weights, const std::vector<int32_t>& topk) {
  std::vector<double> mass(size_t(weights.B * weights.H * weights.N));
  for (size_t i = 0; i < topk.size(); ++i) {
    if (topk[i] < 0) continue;
    const size_t row = i * mass.size() / topk.size();
    double& weight = weights.values[row * size_t(weights.S) + size_t(topk[i])];
    mass[row] += weight, weight = 0;
  }
  return mass;
}

inline BatchHeads product(BatchHeads a, const BatchHeads& b) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] *= b.values[i];
  return a;
}

// The weights that dropout leaves, scaled.
inline BatchHeads reference_dropout(BatchHeads weights, const Dropout& dropout) {
  const uint64_t key = reference_key(dropout.draw);
  if (dropout.p == 0) return weights;
  weights.rows([&](int64_t b, int64_t h, int64_t i) {
    const uint64_t row = (dropout.draw.first + uint64_t(b)) * uint64_t(weights.H) + uint64_t(h);
    for (int64_t j = 0; j < weights.S; ++j) weights(b, h, i, j) *= dropout_factor(dropout.p, key, row, i, j);
  });
  return weights;
}

// weights times v [B, S, H, M]: [B, N, H, M].
inline std::vector<double> times_values(const BatchHeads& weights, const Tensor& value) {
  const Rows4 v(value);
  Rows4 out(Tensor::zeros({weights.B, weights.N, weights.H, value.size(3)}, DType::float64));
  weights.rows([&](int64_t b, int64_t h, int64_t i) {
    for (int64_t j = 0; j < weights.S; ++j)
      if (weights(b, h, i, j) != 0)
        for (int64_t m = 0; m < value.size(3); ++m) out(b, i, h, m) += weights(b, h, i, j) * v(b, j, h, m);
  });
  return out.values;
}

// v [B, S, H, S] that makes the output of attention its weights.
inline Tensor identity_values(int64_t B, int64_t S, int64_t H, DType dtype) {
  Rows4 v(Tensor::zeros({B, S, H, S}, DType::float64));
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t j = 0; j < S; ++j) v(b, j, h, j) = 1;
  return Tensor::from(v.values, v.shape).cast(dtype);
}

}  // namespace cairn

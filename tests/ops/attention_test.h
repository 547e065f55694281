#pragma once
// What the tests of the attention family share: the formulas in double, one sentence after the other, over
// whole matrices of weights.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

#include "tests/ops/ops_test.h"

namespace cairn {

// x [B, N, H, D], read in double whatever it holds.
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
    for (int64_t b = 0; b < B; ++b)
      for (int64_t h = 0; h < H; ++h)
        for (int64_t i = 0; i < N; ++i) f(b, h, i);
  }

  int64_t B, H, N, S;
  std::vector<double> values;
};

// Does the mask let query i see key j? By the definition in core/attention_ops.h.
inline bool may_attend(const AttentionMask& mask, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (mask.query_lengths.defined() && i >= mask.query_lengths.data<int32_t>()[b]) return false;
  if (mask.key_lengths.defined() && j >= mask.key_lengths.data<int32_t>()[b]) return false;
  if (mask.causal && j > i) return false;
  const auto [window, stride, global] = mask.pattern;
  const int64_t distance = i < j ? j - i : i - j;
  if (window >= 0 && distance > window && std::min(i, j) >= global && (stride == 0 || distance % stride != 0))
    return false;
  if (!mask.allowed.defined()) return true;
  const int64_t index[4] = {b, h, i, j};
  int64_t place = 0;
  for (int axis = 0; axis < mask.allowed.rank(); ++axis) {
    const int64_t size = mask.allowed.size(axis);
    place = place * size + (size == 1 ? 0 : index[4 - mask.allowed.rank() + axis]);
  }
  return mask.allowed.data<bool>()[place];
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
      weights(b, h, i, j) = s > -INFINITY ? std::exp(s - logsumexp[row]) : 0;
    }
    ++row;
  });
  return weights;
}

inline BatchHeads product(BatchHeads a, const BatchHeads& b) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] *= b.values[i];
  return a;
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

// An output [B, N, H, S] of identity_values as planes.
inline BatchHeads as_planes(const Tensor& out) {
  const Rows4 x(out);
  BatchHeads result(out.size(0), out.size(2), out.size(1), out.size(3));
  result.rows([&](int64_t b, int64_t h, int64_t i) {
    for (int64_t j = 0; j < result.S; ++j) result(b, h, i, j) = x(b, i, h, j);
  });
  return result;
}

// The gradients of softmax's scores, given those of its weights: dS = scale A (dA - sum of A dA), and from them
// dq = dS k, dk = dS^T q.
struct ReferenceGradient {
  std::vector<double> dq, dk;
};
inline ReferenceGradient reference_score_gradient(const BatchHeads& weights, const BatchHeads& dweights,
                                                  const Tensor& query, const Tensor& key, double scale) {
  const int64_t D = query.size(3);
  if (scale == 0) scale = D > 0 ? 1 / std::sqrt(double(D)) : 1;
  const Rows4 q(query), k(key);
  Rows4 dq(Tensor::zeros(query.shape(), DType::float64)), dk(Tensor::zeros(key.shape(), DType::float64));
  weights.rows([&](int64_t b, int64_t h, int64_t i) {
    double mean = 0;
    for (int64_t j = 0; j < weights.S; ++j) mean += weights(b, h, i, j) * dweights(b, h, i, j);
    for (int64_t j = 0; j < weights.S; ++j) {
      const double ds = scale * weights(b, h, i, j) * (dweights(b, h, i, j) - mean);
      for (int64_t d = 0; d < D; ++d) dq(b, i, h, d) += ds * k(b, j, h, d), dk(b, j, h, d) += ds * q(b, i, h, d);
    }
  });
  return {dq.values, dk.values};
}

// g v^T: the gradient of the weights of weights times v. [B, N, H, M] and [B, S, H, M].
inline BatchHeads times_transposed(const Tensor& gradient, const Tensor& value) {
  const Rows4 g(gradient), v(value);
  BatchHeads result(gradient.size(0), gradient.size(2), gradient.size(1), value.size(1));
  result.rows([&](int64_t b, int64_t h, int64_t i) {
    for (int64_t j = 0; j < result.S; ++j)
      for (int64_t m = 0; m < value.size(3); ++m) result(b, h, i, j) += g(b, i, h, m) * v(b, j, h, m);
  });
  return result;
}

inline BatchHeads transposed(const BatchHeads& x) {
  BatchHeads result(x.B, x.H, x.S, x.N);
  x.rows([&](int64_t b, int64_t h, int64_t i) {
    for (int64_t j = 0; j < x.S; ++j) result(b, h, j, i) = x(b, h, i, j);
  });
  return result;
}

struct Sizes {
  int64_t B, H, N, S, D, M;
};
inline std::ostream& operator<<(std::ostream& out, const Sizes& s) {
  return out << "B " << s.B << " H " << s.H << " N " << s.N << " S " << s.S << " D " << s.D << " M " << s.M;
}

struct Operands {
  Operands(const Sizes& s, DType dtype, uint64_t seed = 1)
      : q(random_tensor({s.B, s.N, s.H, s.D}, dtype, 3 * seed)),
        k(random_tensor({s.B, s.S, s.H, s.D}, dtype, 3 * seed + 1)),
        v(random_tensor({s.B, s.S, s.H, s.M}, dtype, 3 * seed + 2)) {}
  Tensor q, k, v;
};

// true with probability 2/3; in masks by query, the first query sees nothing.
inline Tensor random_mask(const Shape& shape, uint64_t seed = 5) {
  Tensor mask = random_integers(shape, 0, 2, DType::boolean, seed);
  if (shape.elements() > 0 && shape.rank() >= 2 && shape[-2] > 1)
    std::fill_n(mask.mutable_data<bool>(), shape[-1], false);
  return mask;
}

// Lengths 0 .. most, at least one of them 0 and one of them `maximum` where there are two.
inline Tensor some_lengths(int64_t B, int64_t maximum) {
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < B; ++b) lengths.push_back(int32_t(b == 0 ? maximum : b == 1 ? 0 : maximum * b / B));
  return int32s(lengths);
}

// Every kind of mask, by name; for large sizes, where references take their time, one of each.
inline std::vector<std::pair<std::string, AttentionMask>> every_mask(const Sizes& s) {
  std::vector<std::pair<std::string, AttentionMask>> masks;
  masks.push_back({"nothing", {}});
  masks.push_back({"query lengths", {some_lengths(s.B, s.N), {}, {}, false}});
  masks.push_back({"key lengths", {{}, some_lengths(s.B, s.S), {}, false}});
  masks.push_back({"causal", {{}, {}, {}, true}});
  if (s.N * s.S > 10000) {
    masks.erase(masks.begin() + 1);
    masks.push_back({"batch element, query and key", {{}, {}, random_mask({s.B, 1, s.N, s.S}), false}});
  } else {
    for (const Shape& shape :
         {Shape{}, Shape{1}, Shape{s.S}, Shape{s.N, 1}, Shape{s.N, s.S}, Shape{s.H, 1, 1}, Shape{s.H, s.N, s.S},
          Shape{s.B, 1, 1, s.S}, Shape{s.B, 1, s.N, 1}, Shape{1, s.H, 1, s.S}, Shape{s.B, s.H, s.N, s.S}})
      masks.push_back({concat("allowed ", shape), {{}, {}, random_mask(shape), false}});
  }
  const AttentionMask everything{some_lengths(s.B, s.N / 2), some_lengths(s.B, s.S - s.S / 3),
                                 random_mask({s.B, 1, s.N, s.S}), true};
  masks.push_back({"everything", everything});
  const auto share = [&](int64_t parts) { return int32_t(s.S / parts); };
  masks.push_back({"a window", {{}, {}, {}, false, {share(9)}}});
  masks.push_back({"global positions and a stride", {{}, {}, {}, true, {share(40), share(3), 1}}});
  masks.push_back({"everything and a pattern", everything});
  masks.back().second.pattern = {share(10), share(4), 2};
  return masks;
}

}  // namespace cairn

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/ops/operation.h"

namespace {

double log_sum_exp(double a, double b, double c) {
  const double largest = std::max({a, b, c});
  if (largest == -INFINITY) return largest;
  return largest + std::log(std::exp(a - largest) + std::exp(b - largest) + std::exp(c - largest));
}

// log softmax of a row of logits.
std::vector<double> log_probabilities(const std::vector<double>& logits, int64_t begin, int64_t classes) {
  std::vector<double> result(logits.begin() + begin, logits.begin() + begin + classes);
  double sum = -INFINITY;
  for (const double x : result) sum = log_sum_exp(sum, x, -INFINITY);
  for (double& x : result) x -= sum;
  return result;
}

// By prefixes: after so many frames, the first u labels have been emitted, and the last frame was a blank, or label u.
double reference_ctc(const std::vector<double>& logits, int64_t begin, int64_t frames, int64_t classes,
                     const std::vector<int32_t>& labels, int32_t blank) {
  const size_t length = labels.size();
  std::vector<double> in_blank(length + 1, -INFINITY), in_label = in_blank;
  in_blank[0] = 0;
  for (int64_t t = 0; t < frames; ++t) {
    const std::vector<double> y = log_probabilities(logits, begin + t * classes, classes);
    for (size_t u = length + 1; u-- > 0;) {
      const double stays = log_sum_exp(in_blank[u], in_label[u], -INFINITY);
      if (u > 0) {
        const bool repeats = u > 1 && labels[u - 1] == labels[u - 2];
        in_label[u] =
            y[size_t(labels[u - 1])] + log_sum_exp(in_label[u], in_blank[u - 1], repeats ? -INFINITY : in_label[u - 1]);
      }
      in_blank[u] = y[size_t(blank)] + stays;
    }
  }
  return -log_sum_exp(in_blank[length], in_label[length], -INFINITY);
}

std::vector<int32_t> first(const Tensor& all, int64_t row, int64_t count) {
  const int32_t* const begin = all.data<int32_t>() + row * all.size(1);
  return {begin, begin + count};
}

Tensor ints(const std::vector<int32_t>& values, const Shape& shape) { return Tensor::from(values, shape); }

auto forward_with(int32_t blank) {
  return [blank](const Variables& t) { return Variables{ctc_loss(t[0], t[1], t[2], t[3], blank)}; };
}
auto reference_with(int32_t blank) {
  return [blank](const Tensors& t) {
    const std::vector<double> logits = as_double(t[0]);
    const int64_t T = t[0].size(1), K = t[0].size(2);
    std::vector<double> loss;
    for (int64_t b = 0; b < t[0].size(0); ++b)
      loss.push_back(
          reference_ctc(logits, b * T * K, t[2].data<int32_t>()[b], K, first(t[1], b, t[3].data<int32_t>()[b]), blank));
    return Tensors{from_doubles(loss, {t[0].size(0)})};
  };
}

}  // namespace

OPERATION("ctc_loss") {
  op.takes = {{"logits", "B T K"}, {"targets", "B U"}, {"frames", "B"}, {"target_lengths", "B"}};
  op.forward = forward_with(0);
  op.reference = reference_with(0);
  op.backward_reads = {0, 1, 2, 3};
  op.add("of three sequences",
         {normal({3, 7, 5}), ints({1, 2, 3, 4, 4, 0, 2, 0, 0}, {3, 3}), int32s({7, 5, 6}), int32s({3, 2, 1})});
  op.add("of equal neighbors", {normal({1, 6, 3}), ints({1, 1, 1}, {1, 3}), int32s({6}), int32s({3})});
  op.add("of a target that just fits",
         {normal({2, 5, 3}), ints({1, 1, 2, 1, 2, 1}, {2, 3}), int32s({4, 3}), int32s({3, 3})});
  op.add("of empty targets", {normal({2, 4, 3}), ints({7, -9}, {2, 1}), int32s({4, 0}), int32s({0, 0})});
  op.add("without room for labels", {normal({1, 3, 2}), Tensor({1, 0}, DType::int32), int32s({3}), int32s({0})});
  op.add("of no sequences",
         {normal({0, 3, 2}), Tensor({0, 2}, DType::int32), Tensor({0}, DType::int32), Tensor({0}, DType::int32)});
  op.add("of many labels and classes",
         {normal({2, 301, 37}), integers({2, 140}, 1, 36), int32s({301, 290}), int32s({140, 133})});
  op.add("of more classes than a warp takes",
         {normal({2, 9, 1301}), integers({2, 4}, 1, 1300), int32s({9, 8}), int32s({4, 3})});
  op.add("of large logits",
         {affine(normal({2, 12, 6}), 300).value(), ints({1, 2, 3, 5, 4, 4}, {2, 3}), int32s({12, 11}), int32s({3, 3})})
      .differences = false;
  op.add("that no alignment fits",
         {normal({3, 4, 3}), ints({1, 1, 1, 1, 2, 1, 1, 2, 2}, {3, 3}), int32s({4, 2, 0}), int32s({3, 3, 1})})
      .differences = false;
  Case& other =
      op.add("of another blank", {normal({2, 7, 4}), ints({2, 0, 0, 3, 3, 2}, {2, 3}), int32s({7, 6}), int32s({3, 3})});
  other.forward = forward_with(1);
  other.reference = reference_with(1);
  op.refuses({Tensor({1, 4, 3}), ints({1, 3}, {1, 2}), int32s({4}), int32s({2})},
             "ctc_loss: label 3 at position 1 of sequence 0 is no class (there are 3)");
  op.refuses({Tensor({1, 4, 3}), ints({1, 0}, {1, 2}), int32s({4}), int32s({2})},
             "ctc_loss: label 0 at position 1 of sequence 0 is the blank");
  op.refuses({Tensor({1, 4, 3}), ints({1, 2}, {1, 2}), int32s({5}), int32s({2})},
             "ctc_loss: frames[0] is 5, expected 0 to 4");
  op.refuses({Tensor({1, 4, 3}), ints({1, 2}, {1, 2}), int32s({4}), int32s({3})},
             "ctc_loss: target_lengths[0] is 3, expected 0 to 2");
  op.refuses({Tensor({1, 4, 0}), ints({1}, {1, 1}), int32s({4}), int32s({1})},
             "ctc_loss: blank 0 is no class (there are 0)");
}

TEST_CASE("ctc_loss has PyTorch's losses and gradients", "[ctc_loss]") {
  // torch 2.15.0, float64: torch.nn.functional.ctc_loss(x.log_softmax(2), ..., reduction="none", zero_infinity=False)
  // and the gradient of its sum, of logits x[t, b, k] = sin(3 t + 5 b + 7 k).
  const int64_t B = 2, T = 4, K = 3;
  std::vector<double> x;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t t = 0; t < T; ++t)
      for (int64_t k = 0; k < K; ++k) x.push_back(std::sin(double(3 * t + 5 * b + 7 * k)));
  const Variable logits(from_doubles(x, {B, T, K}), true);
  const Variable loss = ctc_loss(logits, ints({1, 2, 2, 2}, {2, 2}), int32s({4, 3}), int32s({2, 2}));
  CHECK(difference(loss.value(), std::vector<double>{1.7502760336924381, 2.011200515323077}) < 1e-12);
  backward(sum(loss));
  CHECK(difference(logits.grad(), std::vector<double>{0.022185805795298497,
                                                      -0.5011872282838303,
                                                      0.47900142248853184,
                                                      0.08383637063415848,
                                                      -0.09833688385148594,
                                                      0.014500513217327456,
                                                      0.07870034674476882,
                                                      0.24880356751375007,
                                                      -0.32750391425851894,
                                                      -0.13203622938697682,
                                                      0.2788647476625895,
                                                      -0.14682851827561266,
                                                      0.17997691044595737,
                                                      0.2745627751910288,
                                                      -0.45453968563698616,
                                                      -0.5194550973479305,
                                                      0.34235570423497214,
                                                      0.17709939311295833,
                                                      0.21440701322301922,
                                                      0.275029702072061,
                                                      -0.48943671529508026,
                                                      0.0,
                                                      0.0,
                                                      0.0}) < 1e-12);
}

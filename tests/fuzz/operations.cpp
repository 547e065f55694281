// The bytes are a program of public operations: which one, with operands of which shapes, types, devices and values.
// Most operands fit; some are undefined, of another type, device or size, huge, or were saved by another call. A call
// may end with a cairn::Error. Otherwise the results of single elements and rows, products, attention, segments and
// argmax are what the formula gives in double. The others (gradients, clustering, the attention of clusters and
// buckets) have the documented shape and type, labels and keys within their ranges, and are finite where the operands
// are small.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/attention_ops.h"
#include "core/parallel.h"
#include "nn/purpose.h"
#include "tests/fuzz/operands.h"

using namespace cairn;

namespace {

class Program : Operands {
 public:
  Program(const uint8_t* data, size_t size) : Operands(data, size) {}

  void run() {
    for (int calls = 0; at_ < end_ && calls < 12; ++calls) {
      known_ = true;
      switch (byte() % 24) {
        case 0: elements(); break;
        case 1: pairs(); break;
        case 2: reductions(); break;
        case 3: products(); break;
        case 4: biases(); break;
        case 5: softmaxes(); break;
        case 6: layer_norms(); break;
        case 7: dropouts(); break;
        case 8: table_rows(); break;
        case 9: losses(); break;
        case 10: largest(); break;
        case 11: tensors(); break;
        case 12:
        case 13: full_attention(); break;
        case 14: hashing(); break;
        case 15: grouping(); break;
        case 16: segments(); break;
        case 17:
        case 18: centroids(); break;
        case 19:
        case 20: top_keys(); break;
        case 21: linear(); break;
        default: buckets();
      }
    }
  }

 private:
  void elements() {
    const Unary op =
        pick({Unary::negate, Unary::exp, Unary::log, Unary::sqrt, Unary::square, Unary::relu, Unary::gelu});
    const Tensor x = operand(some_shape());
    const double alpha = real(0.5), beta = real(-0.25);
    if (const auto y = attempt([&] { return unary(op, x); }); y && small(x)) {
      Numbers expected = as_double(x);
      for (double& value : expected) value = formula(op, value);
      expect_numbers(*y, x.shape(), x, expected);
    }
    if (const auto y = attempt([&] { return affine(x, alpha, beta); }); y && small(x) && std::abs(alpha) <= 4) {
      Numbers expected = as_double(x);
      for (double& value : expected) value = alpha * value + beta;
      if (std::abs(beta) <= 4) expect_numbers(*y, x.shape(), x, expected);
    }
    const Tensor dy = operand(x.shape());
    if (const auto dx = attempt([&] { return unary_backward(op, x, dy); })) expect_result(*dx, x.shape(), x);
  }

  void pairs() {
    const Binary op = pick({Binary::add, Binary::subtract, Binary::multiply, Binary::divide});
    const Shape shape = some_shape();
    Shape other;
    for (int64_t size : shape) other.push_back(one_in(3) ? 1 : size);
    const Tensor a = operand(shape), b = operand(one_in(3) && other.rank() > 0 ? other.without(0) : other);
    if (const auto y = attempt([&] { return binary(op, a, b); })) {
      const Shape both = broadcast(a.shape(), b.shape(), "");
      const Numbers x = broadcasted(a, both), z = broadcasted(b, both);
      Numbers expected(x.size());
      for (size_t i = 0; i < x.size(); ++i) expected[i] = formula(op, x[i], z[i]);
      if (is_small({a, b})) expect_numbers(*y, both, a, expected);
    }
    Tensor sum = operand(a.shape());
    attempt([&] { return accumulate(sum, a, real(2)), 0; });
    if (const auto y = attempt([&] { return broadcast_to(b, a.shape()); }); y && is_small({b}))
      expect_numbers(*y, a.shape(), b, broadcasted(b, a.shape()));
    if (const auto y = attempt([&] { return sum_to(a, b.shape()); }); y && is_small({a}))
      expect_numbers(*y, b.shape(), a, reference_reduce(Reduce::sum, a, b.shape()));
  }

  void reductions() {
    const Tensor x = operand(some_shape());
    const int axis = one_in(8) ? int(odd()) : int(byte() % 4) - 2;
    const Reduce op = pick({Reduce::sum, Reduce::max});
    if (const auto y = attempt([&] { return reduce(op, x, axis); }); y && is_small({x}))
      expect_numbers(*y, x.shape().without(axis), x, reference_reduce(op, x, x.shape().with(axis, 1)));
    attempt([&] { return sum_all(x); });
  }

  void products() {
    const bool ta = one_in(2), tb = one_in(2);
    const int64_t m = length(40), k = length(70), n = length(40), members = length(3);
    Shape of_a = ta ? Shape{k, m} : Shape{m, k}, of_b = tb ? Shape{n, k} : Shape{k, n};
    const int leading = byte() % 4;
    if (leading & 1) of_a = {members, of_a[0], of_a[1]};
    if (leading & 2) of_b = {members, of_b[0], of_b[1]};
    const Tensor a = operand(of_a), b = operand(of_b), bias = one_in(2) ? operand({n}) : Tensor();
    if (const auto y = attempt([&] { return matmul(a, b, ta, tb); }); y && is_small({a, b}))
      expect_numbers(*y, y->shape(), a, reference_matmul(a, b, ta, tb));
    if (const auto y = attempt([&] { return ::linear(a, b, bias); }); y && is_small({a, b, bias})) {
      const Tensor rows = a.reshape({a.shape().without(-1).elements(), a.size(-1)});
      Numbers expected = reference_matmul(rows, b, false, true);
      const Numbers add = bias.defined() ? as_double(bias) : Numbers{};
      for (size_t i = 0; i < expected.size() && !add.empty(); ++i) expected[i] += add[i % add.size()];
      expect_numbers(*y, a.shape().with(-1, b.size(0)), a, expected);
    }
  }

  void biases() {
    const Shape shape = some_shape();
    const Tensor x = operand(shape), bias = operand({shape.rank() ? shape[-1] : 1}), dy = operand(shape);
    const Activation f = pick({Activation::gelu, Activation::relu});
    if (const auto y = attempt([&] { return bias_activation(x, bias, f); }); y && is_small({x, bias})) {
      Numbers expected = broadcasted(bias, x.shape());
      const Numbers add = as_double(x);
      for (size_t i = 0; i < expected.size(); ++i)
        expected[i] = formula(f == Activation::gelu ? Unary::gelu : Unary::relu, expected[i] + add[i]);
      expect_numbers(*y, x.shape(), x, expected);
    }
    if (const auto dx = attempt([&] { return bias_activation_backward(x, bias, f, dy); }))
      expect_finite(*dx, x.shape(), x, is_small({x, bias, dy}));
  }

  void softmaxes() {
    const Tensor x = operand(some_shape());
    if (const auto y = attempt([&] { return softmax(x); })) {
      if (is_small({x})) expect_numbers(*y, x.shape(), x, reference_softmax(as_double(x), x.size(-1)));
      const Tensor dy = operand(x.shape());
      if (const auto dx = attempt([&] { return softmax_backward(*y, dy); }))
        expect_finite(*dx, x.shape(), x, is_small({x, dy}));
    }
    if (const auto y = attempt([&] { return l2_normalize(x); })) {
      expect_finite(*y, x.shape(), x, is_small({x}));
      const Tensor dy = operand(x.shape());
      if (const auto dx = attempt([&] { return l2_normalize_backward(x, dy); }))
        expect_finite(*dx, x.shape(), x, is_small({x, dy}));
    }
  }

  void layer_norms() {
    const Shape shape = some_shape();
    const Shape cols{shape.rank() ? shape[-1] : 1};
    const Tensor x = operand(shape), weight = operand(cols), bias = operand(cols), dy = operand(shape);
    const double epsilon = real(0.01);
    const auto forward = attempt([&] { return layer_norm(x, weight, bias, epsilon); });
    if (!forward) return;
    if (is_small({x, weight, bias}) && epsilon == 0.01)
      expect_numbers(forward->y, x.shape(), x, reference_layer_norm(x, weight, bias, epsilon)[0]);
    LayerNormResult mixed = saved(*forward, layer_norms_);
    mixed.mean = saved_tensor(mixed.mean), mixed.rstd = saved_tensor(mixed.rstd);
    if (const auto g = attempt([&] { return layer_norm_backward(x, weight, mixed, dy); })) {
      const bool known = is_small({x, weight, dy}) && epsilon == 0.01;
      expect_finite(g->dx, x.shape(), x, known);
      expect_finite(g->dweight, weight.shape(), x, known);
      expect_finite(g->dbias, weight.shape(), x, known);
    }
  }

  void dropouts() {
    const Tensor x = operand(some_shape()), residual = operand(x.shape());
    const double p = real(0.5);
    const Draw numbers_of = draw();
    if (const auto y = attempt([&] { return dropout(x, p, numbers_of); }); y && is_small({x}) && p == 0.5) {
      Numbers expected = as_double(x);
      const Numbers got = as_double(*y);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] = got[i] == 0 ? 0 : 2 * expected[i];
      expect_numbers(*y, x.shape(), x, expected);
    }
    if (const auto y = attempt([&] { return dropout_add(x, p, numbers_of, residual); }))
      expect_result(*y, x.shape(), x);
  }

  void table_rows() {
    const int64_t n = length(33), cols = length(33);
    const Shape picked = some_shape();
    const Tensor table = operand({n, cols}), index = operand(picked, DType::int32, -1, std::max<int64_t>(n, 0));
    if (const auto y = attempt([&] { return gather_rows(table, index); }); y && is_small({table}))
      expect_numbers(*y, y->shape(), table, reference_gather(table, index));
    Shape rows = picked;
    rows.push_back(cols);
    const Tensor x = operand(rows);
    const int64_t size = count(n);
    if (const auto y = attempt([&] { return scatter_add_rows(x, index, size); }); y && is_small({x}))
      expect_numbers(*y, {size, x.size(-1)}, x, reference_scatter(x, index, size));
  }

  void losses() {
    const Shape rows = some_shape();
    const int64_t classes = length(33);
    Shape shape = rows;
    shape.push_back(classes);
    const Tensor logits = operand(shape), targets = operand(rows, DType::int32, -1, classes), dloss = operand({});
    const auto forward = attempt([&] { return cross_entropy(logits, targets); });
    if (!forward) return;
    if (is_small({logits}) && device_ == Device::cpu)
      expect_numbers(forward->loss, {}, logits, {reference_cross_entropy(logits, targets)});
    CrossEntropy mixed = saved(*forward, losses_);
    mixed.logsumexp = saved_tensor(mixed.logsumexp), mixed.count = saved_tensor(mixed.count);
    if (const auto g = attempt([&] { return cross_entropy_backward(logits, targets, mixed, dloss); }))
      expect_finite(*g, logits.shape(), logits, is_small({logits, dloss}));
  }

  void largest() {
    const Tensor x = operand(some_shape(), dtype_, -5, 5);
    const auto best = attempt([&] { return argmax(x); });
    if (!best || !is_small({x}) || !few(x)) return;
    expect_whole(*best, x.shape().without(-1), 0, double(x.size(-1)));
    const Numbers values = as_double(x), columns = as_double(*best);
    const auto cols = size_t(x.size(-1));
    for (size_t i = 0; i < values.size(); ++i)
      expect(values[i] <= values[i / cols * cols + size_t(columns[i / cols])], "not the largest");
  }

  void tensors() {
    const DType from = pick({DType::float32, DType::float64, DType::bfloat16, DType::int32, DType::int64, DType::uint64,
                             DType::uint8, DType::boolean}),
                to = pick({DType::float32, DType::int32, DType::uint64, DType::uint8, DType::boolean, DType::bfloat16});
    Tensor x = operand(some_shape(), from, 0, 2);
    attempt([&] { return x.cast(to); });
    attempt([&] { return Tensor::full(one_in(4) ? odd_shape({2, 3}) : some_shape(), real(1e18), to, device_); });
    attempt([&] { return x.slice(count(0), count(1)); });
    attempt([&] { return x.reshape(one_in(2) ? odd_shape(x.shape()) : Shape{x.elements()}); });
    attempt([&] { return x.item(); });
    attempt([&] { return x.to(Device::cuda).to(Device::cpu).to_vector<float>().size(); });
    const Tensor source = operand(x.shape(), from, 0, 2);
    attempt([&] { return x.copy_from(source), x.clone(); });
    attempt([&] { return Shape{odd(), odd(), odd(), 0, 1}.with(int(odd()), odd()).without(int(odd())).elements(); });
    attempt([&] {
      int64_t seen = 0;
      const int64_t n = length(100), grain = count(7);
      parallel_for(n, grain, [&](int64_t begin, int64_t end) { seen += end - begin; });
      expect(seen == n, "a loop that does not take every index");
      return 0;
    });
  }

  // May results be infinite, or not be the formula's?
  static bool usual(const AttentionOptions& o) { return o.dropout.p == 0 && std::abs(o.scale) <= 1; }
  void expect_gradient(const std::optional<AttentionGradient>& g, const Tensor& q, const Tensor& k, const Tensor& v,
                       bool known) {
    if (!g) return;
    expect_finite(g->dq, q.shape(), q, known);
    expect_finite(g->dk, k.shape(), q, known);
    expect_finite(g->dv, v.shape(), q, known);
  }

  void full_attention() {
    const Tensor q = q_operand(), k = k_operand(), v = v_operand(), dout = operand({B_, N_, H_, M_});
    const AttentionOptions o = options();
    const auto forward = attempt([&] { return attention(q, k, v, o); });
    if (!forward) return;
    const Shape shape{q.size(0), q.size(1), q.size(2), v.size(3)};
    expect_finite(forward->out, shape, q, is_small({q, k, v}) && usual(o));
    const bool few_scores = few(forward->logsumexp) && k.size(1) <= 1 << 8;  // rows of nothing may be many
    if (is_small({q, k, v}) && usual(o) && few_scores) {
      const AttentionOptions here{on(Device::cpu, o.mask), {}, o.scale};
      expect_numbers(forward->out, shape, q, times_values(reference_weights(reference_scores(q, k, here)), v));
    }
    AttentionResult mixed = saved(*forward, attentions_);
    mixed.out = saved_tensor(mixed.out), mixed.logsumexp = saved_tensor(mixed.logsumexp);
    expect_gradient(attempt([&] { return attention_backward(q, k, v, o, mixed, dout); }), q, k, v,
                    is_small({q, k, v, dout}) && usual(o));
  }

  void linear() {
    const Tensor q = q_operand(), k = k_operand(), v = v_operand(), dout = operand({B_, N_, H_, M_});
    const AttentionOptions o = options();
    const auto forward = attempt([&] { return linear_attention(q, k, v, o); });
    if (!forward) return;
    expect_finite(forward->out, {q.size(0), q.size(1), q.size(2), v.size(3)}, q, is_small({q, k, v}) && usual(o));
    LinearAttentionResult mixed = saved(*forward, linears_);
    mixed.out = saved_tensor(mixed.out), mixed.denominators = saved_tensor(mixed.denominators);
    expect_gradient(attempt([&] { return linear_attention_backward(q, k, v, o, mixed, dout); }), q, k, v,
                    is_small({q, k, v, dout}) && usual(o));
  }

  void hashing() {
    const Tensor q = q_operand(), lengths = one_in(2) ? operand({B_}, DType::int32, 0, N_ + 1) : Tensor();
    const int bits = one_in(8) ? int(odd()) : 1 + byte() % 64, iterations = one_in(8) ? -1 : byte() % 4;
    const int64_t D = count(D_), clusters = count(C_);
    const auto planes = attempt([&] { return random_planes(bits, D, one_in(2), draw(), device_); });
    const auto codes = attempt([&] { return hash_codes(q, planes ? *planes : operand({3, D_ + 1}, DType::float32)); });
    if (codes)
      if (const auto labels =
              attempt([&] { return hamming_kmeans(*codes, lengths, clusters, bits, iterations, draw()); }))
        expect_whole(*labels, codes->shape(), -1, double(clusters));
    if (const auto labels = attempt([&] { return euclidean_kmeans(q, lengths, clusters, iterations, draw()); }))
      expect_whole(*labels, {q.size(0), q.size(2), q.size(1)}, -1, double(clusters));
    if (const auto labels = attempt([&] {
          return position_labels(one_in(8) ? odd_shape({B_, H_, N_}) : Shape{B_, H_, N_}, lengths, clusters, one_in(2),
                                 device_);
        }))
      expect_whole(*labels, labels->shape(), -1, double(clusters));
  }

  // Groups of queries, or those of another call.
  Groups groups(const Shape& shape, int64_t clusters) {
    const Tensor labels = operand(shape, DType::int32, -1, clusters);
    const auto made_now = attempt([&] { return group(labels, count(clusters)); });
    if (made_now) groups_.push_back(*made_now);
    if (one_in(16)) return {};
    if (groups_.empty() || (made_now && !one_in(8))) return made_now ? *made_now : Groups();
    return groups_[byte() % groups_.size()];
  }

  void grouping() {
    const Groups made_now = groups({B_, H_, N_}, C_);
    if (!attempt([&] { return made_now.check("group", made_now.labels().shape(), device_), 0; })) return;
    expect_whole(made_now.permutation(), made_now.labels().shape(), 0, double(made_now.labels().size(2)));
    expect_whole(made_now.offsets(), made_now.offsets().shape(), 0, double(made_now.labels().size(2)) + 1);
    expect_whole(made_now.counts(), made_now.offsets().shape().with(-1, made_now.clusters()), 0,
                 double(made_now.labels().size(2)) + 1);
    if (!one_in(4)) return;
    Tensor own = pick({made_now.labels(), made_now.permutation(), made_now.offsets()});  // the same memory
    if (own.device() != Device::cpu || own.elements() == 0) return;
    own.mutable_data<int32_t>()[byte() % own.elements()] = int32_t(odd());
  }

  void segments() {
    const Groups g = groups({B_, H_, N_}, C_);
    const Segment kind = pick({Segment::sum, Segment::mean});
    const Tensor x = q_operand(), y = operand({B_, C_, H_, D_});
    if (const auto means = attempt([&] { return segment_reduce(kind, x, g); }); means && is_small({x}))
      expect_numbers(*means, x.shape().with(1, g.clusters()), x, reference_segment_reduce(kind, x, g));
    if (const auto copies = attempt([&] { return segment_broadcast(kind, y, g); }))
      expect_finite(*copies, y.shape().with(1, g.labels().size(2)), y, is_small({y}));
  }

  void centroids() {
    const Tensor q = q_operand(), k = k_operand(), v = v_operand();
    const Tensor given = one_in(4) ? operand({B_, H_, N_, top_}, DType::int32, -1, S_) : Tensor();
    const AttentionOptions o = options();
    const int64_t top = count(top_);
    const bool with_rest = !one_in(8);
    const auto forward = attempt([&] { return centroid_topk(q, k, v, top, with_rest, o, given); });
    if (!forward) return;
    const Shape rows{q.size(0), q.size(2), q.size(1)};
    Shape keys = rows;
    keys.push_back(top);
    if (device_ == Device::cpu || !given.defined()) expect_whole(forward->topk, keys, -1, double(k.size(1)));
    const bool known = is_small({q, k, v}) && usual(o);
    expect_finite(forward->mass, rows, q, known);
    if (with_rest) expect_finite(forward->rest, {q.size(0), q.size(1), q.size(2), v.size(3)}, q, known);
    CentroidTopK mixed = saved(*forward, centroids_);
    mixed.topk = saved_tensor(mixed.topk), mixed.logsumexp = saved_tensor(mixed.logsumexp);
    mixed.mass = saved_tensor(mixed.mass), mixed.rest = saved_tensor(mixed.rest);
    const Tensor dmass = operand(rows), drest = operand({q.size(0), q.size(1), q.size(2), v.size(3)});
    expect_gradient(attempt([&] { return centroid_topk_backward(q, k, v, o, mixed, dmass, drest); }), q, k, v,
                    is_small({q, k, v, dmass, drest}) && usual(o));
  }

  void top_keys() {
    const Tensor q = q_operand(), k = k_operand(), v = v_operand(), dout = operand({B_, N_, H_, M_});
    const Groups g = groups({B_, H_, N_}, C_);
    const AttentionOptions o = options();
    Tensor keys = operand({B_, H_, C_, 1}, DType::int32, -1, S_);
    if (!centroids_.empty() && one_in(3)) keys = centroids_[byte() % centroids_.size()].topk;
    const bool bare = one_in(3);
    const Tensor mass = bare ? Tensor() : operand({B_, H_, C_}), rest = bare ? Tensor() : operand({B_, C_, H_, M_});
    if (const auto out = attempt([&] { return topk_attention(q, k, v, g, keys, mass, rest, o); }))
      expect_finite(*out, {q.size(0), q.size(1), q.size(2), v.size(3)}, q, is_small({q, k, v, mass, rest}) && usual(o));
    if (const auto d = attempt([&] { return topk_attention_backward(q, k, v, g, keys, mass, o, dout); })) {
      const bool known = is_small({q, k, v, mass, dout}) && usual(o);
      expect_gradient(AttentionGradient{d->dq, d->dk, d->dv}, q, k, v, known);
      if (mass.defined()) expect_finite(d->dmass, mass.shape(), q, known);
    }
  }

  void buckets() {
    const Tensor q = q_operand(), v = operand({B_, N_, H_, M_}), dout = operand({B_, N_, H_, M_});
    const Tensor k = one_in(8) ? k_operand() : q;
    const Tensor lengths = one_in(2) ? operand({B_}, DType::int32, 0, N_ + 1) : Tensor();
    const BucketCount of{count(one_in(2) ? 0 : 2 * C_), count(1 + byte() % 40)};
    BucketOptions b;
    b.rounds = count(1 + byte() % 3), b.first = count(0), b.end = count(b.rounds), b.chunk = of.chunk;
    b.bucket_mask = one_in(2), b.deduplicate = one_in(2), b.self = one_in(2), b.wrap = one_in(2);
    const auto rotations =
        attempt([&] { return random_rotations(b.rounds, count(C_ + 2), count(D_), draw(), device_); });
    const auto made_now = attempt([&] {
      return hash_buckets(q, rotations ? *rotations : operand({2, C_ + 2, D_}, DType::float32), lengths, of);
    });
    if (made_now) expect_whole(*made_now, made_now->shape(), -1, double(INT32_MAX));
    auto sorted = attempt([&] {
      return group_buckets(made_now ? *made_now : operand({B_, H_, b.rounds, N_}, DType::int32, -1, C_),
                           count(2 * C_ + 2));
    });
    if (!sorted || one_in(8)) sorted = groups({B_, H_, N_}, C_);
    const AttentionOptions o = options();
    const auto forward = attempt([&] { return bucket_attention(q, k, v, *sorted, b, o); });
    if (!forward) return;
    expect_finite(forward->out, {q.size(0), q.size(1), q.size(2), v.size(3)}, q, is_small({q, k, v}) && usual(o));
    AttentionResult mixed = saved(*forward, attentions_);
    mixed.out = saved_tensor(mixed.out), mixed.logsumexp = saved_tensor(mixed.logsumexp);
    expect_gradient(attempt([&] { return bucket_attention_backward(q, k, v, *sorted, b, o, mixed, dout); }), q, k, v,
                    is_small({q, k, v, dout}) && usual(o));
  }

  std::vector<LayerNormResult> layer_norms_;
  std::vector<CrossEntropy> losses_;
  std::vector<AttentionResult> attentions_;
  std::vector<LinearAttentionResult> linears_;
  std::vector<CentroidTopK> centroids_;
  std::vector<Groups> groups_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_threads(1);
  try {
    Program(data, size).run();
  } catch (const Error& error) {  // of what makes the operands
    expect_short_line(error.what());
  }
  return 0;
}

#include "core/attention_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/bucket_attention.h"
#include "core/kernels/centroid_topk.h"
#include "core/kernels/euclidean_kmeans.h"
#include "core/kernels/hamming_kmeans.h"
#include "core/kernels/l2_normalize.h"
#include "core/kernels/linear_attention.h"
#include "core/kernels/position_labels.h"
#include "core/kernels/topk_attention.h"

namespace cairn {
namespace {

// [B, N, H, D], contiguous, as attention kernels see it.
template <class T>
HeadView<const T> heads(const Tensor& x) {
  return {x.data<T>(), x.size(1) * x.size(2) * x.size(3), x.size(2) * x.size(3), x.size(3)};
}
template <class T>
HeadView<T> heads(Tensor& x) {
  return {x.mutable_data<T>(), x.size(1) * x.size(2) * x.size(3), x.size(2) * x.size(3), x.size(3)};
}
// An operand that may be missing.
template <class T>
HeadView<const T> optional_heads(const Tensor& x) {
  return x.defined() ? heads<T>(x) : HeadView<const T>{};
}

Tensor like(const Tensor& x) { return Tensor(x.shape(), x.dtype(), x.device()); }

// A size for a kernel that writes so many elements: without any it visits no head, however many there are.
template <class Size>
Size visited(Size size, int64_t elements) {
  if (elements == 0) size.B = 0;
  return size;
}
int64_t elements(const AttentionGradient& g) { return g.dq.elements() + g.dk.elements() + g.dv.elements(); }

void check_lengths(const char* operation, const char* argument, const Tensor& lengths, int64_t B, int64_t maximum,
                   Device device) {
  if (!lengths.defined()) return;
  check_tensor(operation, argument, lengths, DType::int32, device, {B});
  if (device != Device::cpu) return;
  for (int64_t b = 0; b < B; ++b) {
    const int32_t length = lengths.data<int32_t>()[b];
    check(length >= 0 && length <= maximum, operation, ": ", argument, "[", b, "] is ", length, ", expected 0 to ",
          maximum);
  }
}

Mask kernel_mask(const AttentionMask& mask, const AttentionSize& size) {
  Mask result;
  if (mask.query_lengths.defined()) result.query_lengths = mask.query_lengths.data<int32_t>();
  if (mask.key_lengths.defined()) result.key_lengths = mask.key_lengths.data<int32_t>();
  result.causal = mask.causal;
  result.pattern = mask.pattern;
  if (mask.allowed.defined()) {
    const int64_t full[4] = {size.B, size.H, size.N, size.S};
    int64_t strides[4] = {}, stride = 1;
    for (int i = 1; i <= mask.allowed.rank(); ++i) {
      if (mask.allowed.size(-i) == full[4 - i]) strides[4 - i] = stride;
      if (mask.allowed.size(-i) == 1) strides[4 - i] = 0;
      stride *= mask.allowed.size(-i);
    }
    result.allowed = reinterpret_cast<const uint8_t*>(mask.allowed.data<bool>());
    result.allowed_batch = strides[0], result.allowed_head = strides[1];
    result.allowed_query = strides[2], result.allowed_key = strides[3];
  }
  return result;
}

Dropout kernel_dropout(const AttentionDropout& dropout) { return {dropout.draw.view(), float(dropout.p)}; }

GroupSize group_size(const Groups& groups) {
  const Shape& shape = groups.labels().shape();
  return {shape[0], shape[1], shape[2], groups.clusters()};
}

GroupView view(const Groups& groups) {
  return {groups.labels().data<int32_t>(), groups.permutation().data<int32_t>(), groups.offsets().data<int32_t>()};
}

// Error: a number of clusters (`minimum` or more of them) or of what belongs to them that int32 does not hold.
void check_clusters(const char* operation, int64_t clusters, int64_t minimum, int64_t N) {
  check<UsageError>(clusters >= minimum, operation, ": clusters = ", clusters, ", expected at least ", minimum);
  check<UsageError>(clusters <= INT32_MAX, operation, ": clusters = ", clusters, ", expected at most ", INT32_MAX);
  check(N <= INT32_MAX, operation, ": ", N, " queries, expected at most ", INT32_MAX);
}

// What a backward pass gets: the output and the numbers of each query that the forward pass saved, and the gradient.
void check_saved(const char* operation, const AttentionSize& size, const Tensor& q, const Tensor& out,
                 const NamedTensor& numbers, const NamedTensor& gradient) {
  const Shape shape{size.B, size.N, size.H, size.M};
  check_operands(operation, {{"q", q}, {"the saved output", out}, gradient});
  check_shape(operation, "the saved output", out, shape);
  check_shape(operation, gradient.name, gradient.tensor, shape);
  check_tensor(operation, numbers.name, numbers.tensor, sums_of(q), q.device(), {size.B, size.H, size.N});
}

// Error: not int32 `shape` = [B, H, C, k]; or (on the CPU) a row that does not rise and then hold -1, or a key outside
// [-1, S).
void check_top_keys(const char* operation, const char* argument, const Tensor& topk, const Shape& shape, int64_t S,
                    Device device) {
  check_tensor(operation, argument, topk, DType::int32, device, shape);
  check_indices(operation, "key", topk, -1, S);
  if (topk.device() != Device::cpu) return;
  const int32_t* keys = topk.data<int32_t>();
  for (int64_t i = 1; i < topk.elements(); ++i)
    check(i % topk.size(3) == 0 || keys[i] == -1 || (keys[i - 1] != -1 && keys[i - 1] < keys[i]), operation,
          ": expected top keys to rise and then be -1, got ", keys[i - 1], " before ", keys[i]);
}

}  // namespace

void Groups::check(const char* operation, const Shape& shape, Device device) const {
  check_tensor(operation, "labels", labels_, DType::int32, device, shape);
  cairn::check(version() == version_, operation, ": the groups were changed after they were made");
}

AttentionSize attention_size(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v,
                             const AttentionOptions& options) {
  check_operands(operation, {{"q", q}, {"k", k}, {"v", v}});
  check(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, operation,
        ": expected q [B, N, H, D], k [B, S, H, D], v [B, S, H, M], got ", q.shape(), ", ", k.shape(), ", ", v.shape());
  const AttentionSize size{q.size(0), q.size(2), q.size(1), k.size(1), q.size(3), v.size(3), options.scale};
  check(k.size(0) == size.B && k.size(2) == size.H && k.size(3) == size.D, operation, ": k of shape ", k.shape(),
        " does not match q of shape ", q.shape(), ": expected [", size.B, ", S, ", size.H, ", ", size.D, "]");
  check(v.size(0) == size.B && v.size(2) == size.H && v.size(1) == size.S, operation, ": v of shape ", v.shape(),
        " does not match k of shape ", k.shape(), ": expected [", size.B, ", ", size.S, ", ", size.H, ", M]");
  check(size.N <= INT32_MAX && size.S <= INT32_MAX, operation, ": ", size.N, " queries and ", size.S,
        " keys, expected at most ", INT32_MAX);
  const AttentionMask& mask = options.mask;
  check_lengths(operation, "query_lengths", mask.query_lengths, size.B, size.N, q.device());
  check_lengths(operation, "key_lengths", mask.key_lengths, size.B, size.S, q.device());
  if (mask.allowed.defined()) {
    const Shape full{size.B, size.H, size.N, size.S};
    check_tensor(operation, "the mask", mask.allowed, DType::boolean, q.device());
    check(mask.allowed.rank() <= 4 && broadcast(mask.allowed.shape(), full, operation) == full, operation,
          ": a mask of shape ", mask.allowed.shape(), " does not broadcast to [B, H, N, S] = ", full);
  }
  check(mask.pattern.stride >= 0 && mask.pattern.global >= 0, operation, ": expected a pattern's stride and global ",
        "positions to be at least 0, got ", mask.pattern.stride, " and ", mask.pattern.global);
  check(options.dropout.p >= 0 && options.dropout.p <= 1, operation, ": expected a dropout probability, got ",
        options.dropout.p);
  if (options.dropout.p > 0) check_draw(operation, options.dropout.draw, q.device());
  AttentionSize result = size;
  if (result.scale == 0) result.scale = size.D > 0 ? 1 / std::sqrt(double(size.D)) : 1;
  return result;
}

// ----------------------------------------------------------------------------------------------------- full attention

AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const AttentionSize size = attention_size("attention", q, k, v, options);
  AttentionResult result{Tensor({size.B, size.N, size.H, size.M}, q.dtype(), q.device()),
                         Tensor({size.B, size.H, size.N}, sums_of(q), q.device())};
  CAIRN_RUN("attention", q,
            attention_forward<T>(stream, size, heads<T>(q), heads<T>(k), heads<T>(v), kernel_mask(options.mask, size),
                                 kernel_dropout(options.dropout), heads<T>(result.out),
                                 result.logsumexp.mutable_data<Accum<T>>()));
  return result;
}

AttentionGradient attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                     const AttentionResult& saved, const Tensor& dout) {
  const AttentionSize size = attention_size("attention", q, k, v, options);
  check_saved("attention", size, q, saved.out, {"the saved logsumexp", saved.logsumexp}, {"the gradient", dout});
  AttentionGradient g{like(q), like(k), like(v)};
  Workspace workspace(q.device());
  CAIRN_RUN("attention", q,
            attention_backward<T>(stream, visited(size, elements(g)), heads<T>(q), heads<T>(k), heads<T>(v),
                                  kernel_mask(options.mask, size), kernel_dropout(options.dropout), heads<T>(saved.out),
                                  saved.logsumexp.data<Accum<T>>(), heads<T>(dout), workspace, heads<T>(g.dq),
                                  heads<T>(g.dk), heads<T>(g.dv)));
  return g;
}

// ------------------------------------------------------------------------------------------------- clusters of queries

static void check_bits(const char* operation, int64_t bits) {
  check<UsageError>(bits >= 1 && bits <= 64, operation, ": bits = ", bits, ", expected 1 to 64");
}

Tensor random_planes(int bits, int64_t D, bool bias, const RandomDraw& draw, Device device) {
  check_bits("random_planes", bits);
  check(D >= 0 && D <= INT32_MAX, "random_planes: D = ", D, ", expected 0 to ", INT32_MAX);
  check_draw("random_planes", draw, device);
  Tensor planes({bits, D + 1}, DType::float32, device);
  CAIRN_DISPATCH("random_planes", float, planes,
                 random_planes(current_stream(device), bits, D, bias, draw.view(), planes.mutable_data<float>()));
  return planes;
}

Tensor hash_codes(const Tensor& q, const Tensor& planes) {
  check_operands("hash_codes", {{"q", q}});
  check(q.rank() == 4, "hash_codes: expected q [B, N, H, D], got ", q.shape());
  check_tensor("hash_codes", "planes", planes, DType::float32, q.device());
  check(planes.rank() == 2 && planes.size(1) == q.size(3) + 1, "hash_codes: expected planes [bits, ", q.size(3) + 1,
        "], got ", planes.shape());
  check_bits("hash_codes", planes.size(0));
  const HashSize size{q.size(0), q.size(2), q.size(1), q.size(3), int(planes.size(0))};
  Tensor codes({size.B, size.H, size.N}, DType::uint64, q.device());
  CAIRN_RUN("hash_codes", q,
            hash_codes<T>(stream, size, heads<T>(q), planes.data<float>(), codes.mutable_data<uint64_t>()));
  return codes;
}

Tensor hamming_kmeans(const Tensor& codes, const Tensor& lengths, int64_t clusters, int bits, int iterations,
                      const RandomDraw& draw) {
  check_tensor("hamming_kmeans", "codes", codes, DType::uint64, codes.device());
  check(codes.rank() == 3, "hamming_kmeans: expected codes [B, H, N], got ", codes.shape());
  check_clusters("hamming_kmeans", clusters, 1, codes.size(2));
  check<UsageError>(iterations >= 0, "hamming_kmeans: iterations = ", iterations, ", expected at least 0");
  check_bits("hamming_kmeans", bits);
  check_lengths("hamming_kmeans", "lengths", lengths, codes.size(0), codes.size(2), codes.device());
  check_draw("hamming_kmeans", draw, codes.device());
  Tensor labels(codes.shape(), DType::int32, codes.device());
  Workspace workspace(codes.device());
  const KMeansSize size{codes.size(0), codes.size(1), codes.size(2), clusters, bits, iterations};
  CAIRN_DISPATCH("hamming_kmeans", uint64_t, codes,
                 hamming_kmeans(current_stream(codes.device()), visited(size, labels.elements()),
                                codes.data<uint64_t>(), lengths.defined() ? lengths.data<int32_t>() : nullptr,
                                draw.view(), workspace, labels.mutable_data<int32_t>()));
  return labels;
}

Groups group(const Tensor& labels, int64_t clusters) {
  check_tensor("group", "labels", labels, DType::int32, labels.device());
  check(labels.rank() == 3, "group: expected labels [B, H, N], got ", labels.shape());
  check_clusters("group", clusters, 0, labels.size(2));
  Groups groups;
  groups.labels_ = labels;
  groups.permutation_ = Tensor(labels.shape(), DType::int32, labels.device());
  groups.offsets_ = Tensor(labels.shape().with(-1, clusters + 1), DType::int32, labels.device());
  groups.clusters_ = clusters;
  CAIRN_DISPATCH("group", int32_t, labels,
                 group(current_stream(labels.device()), group_size(groups), labels.data<int32_t>(),
                       groups.permutation_.mutable_data<int32_t>(), groups.offsets_.mutable_data<int32_t>()));
  groups.version_ = groups.version();
  return groups;
}

Tensor Groups::counts() const {
  const auto host = offsets_.to_vector<int32_t>();
  std::vector<int32_t> result;
  for (int64_t i = 0; i < int64_t(host.size()); ++i)
    if ((i + 1) % (clusters_ + 1) != 0) result.push_back(host[size_t(i + 1)] - host[size_t(i)]);
  return Tensor::from(result, offsets_.shape().with(-1, clusters_)).to(offsets_.device());
}

Tensor segment_reduce(Segment kind, const Tensor& x, const Groups& groups) {
  check_operands("segment_reduce", {{"x", x}});
  check(x.rank() == 4, "segment_reduce: expected x [B, N, H, D], got ", x.shape());
  groups.check("segment_reduce", {x.size(0), x.size(2), x.size(1)}, x.device());
  Tensor out(x.shape().with(1, groups.clusters()), x.dtype(), x.device());
  CAIRN_RUN("segment_reduce", x,
            segment_reduce<T>(stream, kind, group_size(groups), x.size(3), view(groups), heads<T>(x), heads<T>(out)));
  return out;
}

Tensor segment_broadcast(Segment kind, const Tensor& x, const Groups& groups) {
  check_operands("segment_broadcast", {{"x", x}});
  check(x.rank() == 4, "segment_broadcast: expected x [B, C, H, D], got ", x.shape());
  check_tensor("segment_broadcast", "labels", groups.labels(), DType::int32, x.device());
  const int64_t N = groups.labels().size(2);
  groups.check("segment_broadcast", {x.size(0), x.size(2), N}, x.device());
  check_shape("segment_broadcast", "x", x, x.shape().with(1, groups.clusters()));
  Tensor out(x.shape().with(1, N), x.dtype(), x.device());
  CAIRN_RUN(
      "segment_broadcast", x,
      segment_broadcast<T>(stream, kind, group_size(groups), x.size(3), view(groups), heads<T>(x), heads<T>(out)));
  return out;
}

// ---------------------------------------------------------------------------------------------- top keys of centroids

CentroidTopK centroid_topk(const Tensor& centroids, const Tensor& k, const Tensor& v, int64_t top, bool with_rest,
                           const AttentionOptions& options, const Tensor& given) {
  const AttentionSize size = attention_size("centroid_topk", centroids, k, v, options);
  check<UsageError>(top >= 1, "centroid_topk: k = ", top, ", expected at least 1");
  const Shape rows{size.B, size.H, size.N};
  CentroidTopK result{Tensor({size.B, size.H, size.N, top}, DType::int32, k.device()),
                      Tensor(rows, sums_of(k), k.device()), Tensor(rows, k.dtype(), k.device()), Tensor()};
  if (given.defined()) {
    check_top_keys("centroid_topk", "the given top keys", given, result.topk.shape(), size.S, k.device());
    result.topk.copy_from(given);
  }
  if (with_rest) result.rest = Tensor({size.B, size.N, size.H, size.M}, k.dtype(), k.device());
  CAIRN_RUN("centroid_topk", k,
            centroid_topk_forward<T>(stream, size, top, !given.defined(), heads<T>(centroids), heads<T>(k), heads<T>(v),
                                     kernel_mask(options.mask, size), kernel_dropout(options.dropout),
                                     result.topk.mutable_data<int32_t>(), result.logsumexp.mutable_data<Accum<T>>(),
                                     result.mass.mutable_data<T>(), with_rest ? heads<T>(result.rest) : HeadView<T>{}));
  return result;
}

AttentionGradient centroid_topk_backward(const Tensor& centroids, const Tensor& k, const Tensor& v,
                                         const AttentionOptions& options, const CentroidTopK& saved,
                                         const Tensor& dmass, const Tensor& drest) {
  const AttentionSize size = attention_size("centroid_topk", centroids, k, v, options);
  const Shape rows{size.B, size.H, size.N};
  check_saved("centroid_topk", size, k, saved.rest, {"the saved logsumexp", saved.logsumexp},
              {"the gradient of rest", drest});
  check_operands("centroid_topk", {{"k", k}, {"the saved mass", saved.mass}, {"the gradient of mass", dmass}});
  check_shape("centroid_topk", "the saved mass", saved.mass, rows);
  check_shape("centroid_topk", "the gradient of mass", dmass, rows);
  check(saved.topk.rank() == 4, "centroid_topk: expected saved top keys [B, H, C, k], got ", saved.topk.shape());
  check_top_keys("centroid_topk", "the saved top keys", saved.topk, {size.B, size.H, size.N, saved.topk.size(3)},
                 size.S, k.device());
  AttentionGradient g{like(centroids), like(k), like(v)};
  Workspace workspace(k.device());
  CAIRN_RUN("centroid_topk", k,
            centroid_topk_backward<T>(
                stream, visited(size, elements(g)), saved.topk.size(3), heads<T>(centroids), heads<T>(k), heads<T>(v),
                kernel_mask(options.mask, size), kernel_dropout(options.dropout), saved.topk.data<int32_t>(),
                saved.logsumexp.data<Accum<T>>(), saved.mass.data<T>(), heads<T>(saved.rest), dmass.data<T>(),
                heads<T>(drest), workspace, heads<T>(g.dq), heads<T>(g.dk), heads<T>(g.dv)));
  return g;
}

static AttentionSize check_topk_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups,
                                          const Tensor& topk, const Tensor& mass, const AttentionOptions& options) {
  const AttentionSize size = attention_size("topk_attention", q, k, v, options);
  groups.check("topk_attention", {size.B, size.H, size.N}, q.device());
  check_tensor("topk_attention", "topk", topk, DType::int32, q.device());
  check(topk.rank() == 4, "topk_attention: expected topk [B, H, C, k], got ", topk.shape());
  check_top_keys("topk_attention", "topk", topk, {size.B, size.H, groups.clusters(), topk.size(3)}, size.S, q.device());
  if (!mass.defined()) return size;
  check_operands("topk_attention", {{"q", q}, {"mass", mass}});
  check_shape("topk_attention", "mass", mass, topk.shape().without(-1));
  return size;
}

Tensor topk_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups, const Tensor& topk,
                      const Tensor& mass, const Tensor& rest, const AttentionOptions& options) {
  const AttentionSize size = check_topk_attention(q, k, v, groups, topk, mass, options);
  check(mass.defined() == rest.defined(), "topk_attention: mass and rest go together");
  if (rest.defined()) {
    check_operands("topk_attention", {{"q", q}, {"rest", rest}});
    check_shape("topk_attention", "rest", rest, {size.B, groups.clusters(), size.H, size.M});
  }
  Tensor out({size.B, size.N, size.H, size.M}, q.dtype(), q.device());
  CAIRN_RUN(
      "topk_attention", q,
      topk_attention_forward<T>(stream, size, groups.clusters(), topk.size(3), heads<T>(q), heads<T>(k), heads<T>(v),
                                view(groups), topk.data<int32_t>(), mass.defined() ? mass.data<T>() : nullptr,
                                optional_heads<T>(rest), kernel_dropout(options.dropout), heads<T>(out)));
  return out;
}

TopKAttentionGradient topk_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups,
                                              const Tensor& topk, const Tensor& mass, const AttentionOptions& options,
                                              const Tensor& dout) {
  const AttentionSize size = check_topk_attention(q, k, v, groups, topk, mass, options);
  check_operands("topk_attention", {{"q", q}, {"the gradient", dout}});
  check_shape("topk_attention", "the gradient", dout, {size.B, size.N, size.H, size.M});
  TopKAttentionGradient g{like(q), like(k), like(v), {}, {}};
  if (mass.defined()) {
    g.dmass = like(mass);
    g.drest = Tensor({size.B, groups.clusters(), size.H, size.M}, q.dtype(), q.device());
  }
  CAIRN_RUN(
      "topk_attention", q,
      topk_attention_backward<T>(stream, size, groups.clusters(), topk.size(3), heads<T>(q), heads<T>(k), heads<T>(v),
                                 view(groups), topk.data<int32_t>(), mass.defined() ? mass.data<T>() : nullptr,
                                 kernel_dropout(options.dropout), heads<T>(dout), heads<T>(g.dq), heads<T>(g.dk),
                                 heads<T>(g.dv), mass.defined() ? g.dmass.mutable_data<T>() : nullptr,
                                 mass.defined() ? heads<T>(g.drest) : HeadView<T>{}));
  return g;
}

// --------------------------------------------------------------------------------------------------- linear attention

static AttentionSize check_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options) {
  check<UsageError>(!options.mask.allowed.defined(),
                    "linear_attention: cannot honor a boolean mask: it has sums over keys, not weights of pairs");
  check<UsageError>(options.mask.pattern.all(), "linear_attention: cannot honor a pattern of positions");
  check<UsageError>(options.scale == 0, "linear_attention: it has no scores to scale, got scale = ", options.scale);
  return attention_size("linear_attention", q, k, v, options);
}

LinearAttentionResult linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const AttentionOptions& options) {
  const AttentionSize size = check_linear_attention(q, k, v, options);
  LinearAttentionResult result{Tensor({size.B, size.N, size.H, size.M}, q.dtype(), q.device()),
                               Tensor({size.B, size.H, size.N}, sums_of(q), q.device())};
  Workspace workspace(q.device());
  CAIRN_RUN("linear_attention", q,
            linear_attention_forward<T>(stream, visited(size, result.denominators.elements()), heads<T>(q), heads<T>(k),
                                        heads<T>(v), kernel_mask(options.mask, size), kernel_dropout(options.dropout),
                                        workspace, heads<T>(result.out), result.denominators.mutable_data<Accum<T>>()));
  return result;
}

AttentionGradient linear_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options, const LinearAttentionResult& saved,
                                            const Tensor& dout) {
  const AttentionSize size = check_linear_attention(q, k, v, options);
  check_saved("linear_attention", size, q, saved.out, {"the saved denominators", saved.denominators},
              {"the gradient", dout});
  AttentionGradient g{like(q), like(k), like(v)};
  Workspace workspace(q.device());
  CAIRN_RUN("linear_attention", q,
            linear_attention_backward<T>(stream, visited(size, elements(g)), heads<T>(q), heads<T>(k), heads<T>(v),
                                         kernel_mask(options.mask, size), kernel_dropout(options.dropout),
                                         heads<T>(saved.out), saved.denominators.data<Accum<T>>(), heads<T>(dout),
                                         workspace, heads<T>(g.dq), heads<T>(g.dk), heads<T>(g.dv)));
  return g;
}

// --------------------------------------------------------------------------------------------- other groups of queries

Tensor position_labels(const Shape& shape, const Tensor& lengths, int64_t clusters, bool shift, Device device) {
  check(shape.rank() == 3, "position_labels: expected a shape [B, H, N], got ", shape);
  check_clusters("position_labels", clusters, 1, shape[2]);
  check_lengths("position_labels", "lengths", lengths, shape[0], shape[2], device);
  Tensor labels(shape, DType::int32, device);
  CAIRN_DISPATCH(
      "position_labels", int32_t, labels,
      position_labels(current_stream(device),
                      visited(GroupSize{shape[0], shape[1], shape[2], clusters}, labels.elements()),
                      lengths.defined() ? lengths.data<int32_t>() : nullptr, shift, labels.mutable_data<int32_t>()));
  return labels;
}

Tensor euclidean_kmeans(const Tensor& q, const Tensor& lengths, int64_t clusters, int iterations,
                        const RandomDraw& draw) {
  check_operands("euclidean_kmeans", {{"q", q}});
  check(q.rank() == 4, "euclidean_kmeans: expected q [B, N, H, D], got ", q.shape());
  check_clusters("euclidean_kmeans", clusters, 1, q.size(1));
  check<UsageError>(iterations >= 0, "euclidean_kmeans: iterations = ", iterations, ", expected at least 0");
  const EuclideanSize size{q.size(0), q.size(2), q.size(1), q.size(3), clusters, iterations};
  check_lengths("euclidean_kmeans", "lengths", lengths, size.B, size.N, q.device());
  check_draw("euclidean_kmeans", draw, q.device());
  Tensor labels({size.B, size.H, size.N}, DType::int32, q.device());
  Workspace workspace(q.device());
  CAIRN_RUN("euclidean_kmeans", q,
            euclidean_kmeans<T>(stream, visited(size, labels.elements()), heads<T>(q),
                                lengths.defined() ? lengths.data<int32_t>() : nullptr, draw.view(), workspace,
                                labels.mutable_data<int32_t>()));
  return labels;
}

// ---------------------------------------------------------------------------------------------------------------- lsh

static Rows rows_of_last_axis(const char* operation, const Tensor& x) {
  check(x.rank() > 0, operation, ": expected rows [..., cols], got a scalar");
  const int64_t cols = x.size(-1);
  return {cols > 0 ? x.elements() / cols : 0, cols};
}

Tensor l2_normalize(const Tensor& x) {
  check_operands("l2_normalize", {{"x", x}});
  const Rows size = rows_of_last_axis("l2_normalize", x);
  Tensor y = like(x);
  CAIRN_RUN("l2_normalize", x, l2_normalize<T>(stream, size, x.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor l2_normalize_backward(const Tensor& x, const Tensor& dy) {
  check_operands("l2_normalize", {{"x", x}, {"the gradient", dy}});
  check_shape("l2_normalize", "the gradient", dy, x.shape());
  const Rows size = rows_of_last_axis("l2_normalize", x);
  Tensor dx = like(x);
  CAIRN_RUN("l2_normalize", x, l2_normalize_backward<T>(stream, size, x.data<T>(), dy.data<T>(), dx.mutable_data<T>()));
  return dx;
}

Tensor random_rotations(int64_t rounds, int64_t columns, int64_t D, const RandomDraw& draw, Device device) {
  check<UsageError>(rounds >= 1, "random_rotations: rounds = ", rounds, ", expected at least 1");
  check<UsageError>(columns >= 1, "random_rotations: columns = ", columns, ", expected at least 1");
  check_draw("random_rotations", draw, device);
  Tensor rotations({rounds, columns, D}, DType::float32, device);
  if (D == 0) return rotations;
  CAIRN_DISPATCH(
      "random_rotations", float, rotations,
      random_rotations(current_stream(device), rounds, columns, D, draw.view(), rotations.mutable_data<float>()));
  return rotations;
}

Tensor hash_buckets(const Tensor& q, const Tensor& rotations, const Tensor& lengths, const BucketCount& count) {
  check_operands("hash_buckets", {{"q", q}});
  check(q.rank() == 4, "hash_buckets: expected q [B, N, H, D], got ", q.shape());
  check<UsageError>(count.given >= 0 && count.given <= INT32_MAX && count.given % 2 == 0, "hash_buckets: ", count.given,
                    " buckets, expected an even number below 2^31");
  check<UsageError>(count.chunk >= 1, "hash_buckets: chunk = ", count.chunk, ", expected at least 1");
  check_tensor("hash_buckets", "rotations", rotations, DType::float32, q.device());
  check(rotations.rank() == 3 && rotations.size(2) == q.size(3) && rotations.size(1) >= count(q.size(1)) / 2,
        "hash_buckets: expected rotations [rounds, ", count(q.size(1)) / 2, " or more, ", q.size(3), "], got ",
        rotations.shape());
  const BucketSize size{q.size(0), q.size(2), q.size(1), q.size(3), rotations.size(0), rotations.size(1), count};
  check_lengths("hash_buckets", "lengths", lengths, size.B, size.N, q.device());
  Tensor buckets({size.B, size.H, size.rounds, size.N}, DType::int32, q.device());
  CAIRN_RUN("hash_buckets", q,
            hash_buckets<T>(stream, size, heads<T>(q), lengths.defined() ? lengths.data<int32_t>() : nullptr,
                            rotations.data<float>(), buckets.mutable_data<int32_t>()));
  return buckets;
}

Groups group_buckets(const Tensor& buckets, int64_t count) {
  check_tensor("group_buckets", "buckets", buckets, DType::int32, buckets.device());
  check(buckets.rank() == 4, "group_buckets: expected buckets [B, H, rounds, N], got ", buckets.shape());
  return group(buckets.reshape({buckets.size(0), buckets.size(1) * buckets.size(2), buckets.size(3)}), count);
}

static BucketRounds kernel_rounds(const AttentionSize& size, const Groups& groups, const BucketOptions& options,
                                  Device device) {
  const auto [rounds, first, end, chunk, bucket_mask, deduplicate, self, wrap] = options;
  check<UsageError>(size.S == size.N, "bucket_attention: ", size.N, " queries and ", size.S, " keys, expected as many");
  check<UsageError>(rounds >= 1 && first >= 0 && first < end && end <= rounds, "bucket_attention: rounds ", first,
                    " up to ", end, " of ", rounds, ", expected one or more of them");
  check<UsageError>(chunk >= 1, "bucket_attention: chunk = ", chunk, ", expected at least 1");
  const Shape rows{size.B, size.H, rounds, size.N};  // an error where H * rounds overflows
  groups.check("bucket_attention", {size.B, size.H * rounds, size.N}, device);
  const int64_t longest = std::min(chunk, std::max<int64_t>(1, size.N));
  return {view(groups), size.N, groups.clusters(), rounds, first, end, longest, bucket_mask, deduplicate, self, wrap};
}

AttentionResult bucket_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups,
                                 const BucketOptions& buckets, const AttentionOptions& options) {
  const AttentionSize size = attention_size("bucket_attention", q, k, v, options);
  const BucketRounds rounds = kernel_rounds(size, groups, buckets, q.device());
  AttentionResult result{Tensor({size.B, size.N, size.H, size.M}, q.dtype(), q.device()),
                         Tensor({size.B, size.H, size.N}, sums_of(q), q.device())};
  CAIRN_RUN("bucket_attention", q,
            bucket_attention_forward<T>(stream, size, rounds, heads<T>(q), heads<T>(k), heads<T>(v),
                                        kernel_mask(options.mask, size), kernel_dropout(options.dropout),
                                        heads<T>(result.out), result.logsumexp.mutable_data<Accum<T>>()));
  return result;
}

AttentionGradient bucket_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Groups& groups,
                                            const BucketOptions& buckets, const AttentionOptions& options,
                                            const AttentionResult& saved, const Tensor& dout) {
  const AttentionSize size = attention_size("bucket_attention", q, k, v, options);
  const BucketRounds rounds = kernel_rounds(size, groups, buckets, q.device());
  check_saved("bucket_attention", size, q, saved.out, {"the saved logsumexp", saved.logsumexp}, {"the gradient", dout});
  AttentionGradient g{like(q), like(k), like(v)};
  CAIRN_RUN("bucket_attention", q,
            bucket_attention_backward<T>(stream, size, rounds, heads<T>(q), heads<T>(k), heads<T>(v),
                                         kernel_mask(options.mask, size), kernel_dropout(options.dropout),
                                         heads<T>(saved.out), saved.logsumexp.data<Accum<T>>(), heads<T>(dout),
                                         heads<T>(g.dq), heads<T>(g.dk), heads<T>(g.dv)));
  return g;
}

}  // namespace cairn

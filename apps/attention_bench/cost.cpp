#include "apps/attention_bench/cost.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "nn/attention/attention.h"

namespace cairn::attention_bench {
namespace {

// Of a number that make_attention accepts.
double value_of(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The numbers of a specification, with the presets of its variant.
struct Numbers {
  AttentionSpec spec;

  explicit Numbers(const std::string& text) : spec(parse_attention(text)) {}
  double count() const { return spec.number.empty() ? 0 : value_of(spec.number); }
  double option(const char* option, double preset) const {
    const auto found = spec.options.find(option);
    return found == spec.options.end() ? preset : value_of(found->second);
  }
};

// Multiply-adds times two of one (query, head): products with `keys` keys and as many values, forward 4 D each;
// backward computes the scores again, and has four products of its own.
double attention_flops(double keys, double D, bool backward) { return (backward ? 14 : 4) * keys * D; }

// Of one (query, head).
double variant_flops(const Problem& p) {
  const Numbers spec(p.attention);
  const std::string name = spec.spec.variant->name;
  const double N = double(p.length), D = double(p.head_size), number = spec.count();
  const auto attend = [&](double keys) { return attention_flops(std::min(keys, N), D, p.backward); };
  const double hash = 2 * spec.option("bits", 63) * D, top = attend(spec.option("topk", 32));
  if (name == "full" || name == "shared-full") return attend(N);
  if (name == "clustered") return hash + attend(number);
  if (name == "i-clustered") return hash + attend(number) + top;
  if (name == "position") return attend(number);
  if (name == "i-position") return attend(number) + top;
  const double lloyd = 2 * D * number * (spec.option("iterations", 10) + 1);
  if (name == "euclidean") return lloyd + attend(number);
  if (name == "i-euclidean") return lloyd + attend(number) + top;
  if (name == "oracle-top") return 2 * N * D + attend(number);
  if (name == "lsh") {
    const double chunk = spec.option("chunk", 32), buckets = spec.option("buckets", 2 * std::ceil(N / (2 * chunk)));
    return number * (D * buckets + attend(2 * chunk));
  }
  if (name == "local") return attend(2 * number + 1);
  if (name == "longformer") return attend(2 * (number + spec.option("global", 1)) + 1);
  if (name == "strided") return attend(2 * number + 1 + N / number);
  if (name == "inducing") return 3 * attend(number);
  if (name == "linear") return attend(D);
  return NAN;
}

}  // namespace

double option_of(const std::string& spec, const char* option, double preset) {
  return Numbers(spec).option(option, preset);
}

Cost cost_of(const Problem& p, int64_t element_bytes) {
  const double tokens = double(p.tokens()), d = double(p.features()), bytes = double(element_bytes);
  if (p.what == What::cluster)  // codes in, labels out; distances are no floating-point operations
    return {0, tokens * double(p.heads) * (8 + 4)};
  Cost cost;
  const double passes = p.backward ? 3 : 1;  // a product backward is two
  cost.flops = tokens * double(p.heads) * variant_flops(p);
  cost.bytes = tokens * d * bytes * (p.backward ? 12 : 4);  // q, k, v, out; and again with their gradients
  if (p.what == What::attention) return cost;
  const double weights = 4 * d * d + 2 * d * double(p.feed_forward);
  cost.flops += tokens * 2 * weights * passes;
  // Each product reads a factor and writes its result: x, q, k, v, the attention's output, two sums and norms, the
  // hidden layer.
  cost.bytes += (tokens * (10 * d + 2 * double(p.feed_forward)) + weights) * bytes * passes;
  return cost;
}

}  // namespace cairn::attention_bench

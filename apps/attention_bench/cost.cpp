#include "apps/attention_bench/cost.h"

#include <algorithm>
#include <cmath>

#include "nn/attention/attention.h"

namespace cairn::attention_bench {
namespace {

// The numbers and options of a specification, as its variant reads them.
struct Spec {
  std::string name, number;
  std::map<std::string, std::string> options;

  explicit Spec(const std::string& text) {
    const std::string head = text.substr(0, text.find(':'));
    for (const AttentionVariant* variant : attention_variants())
      if ((head == variant->name || head.rfind(std::string(variant->name) + "-", 0) == 0) &&
          std::string(variant->name).size() > name.size())
        name = variant->name;
    if (head.size() > name.size()) number = head.substr(name.size() + 1);
    for (size_t at = text.find(':'); at != std::string::npos && at + 1 < text.size();) {
      const size_t end = std::min(text.find(',', at + 1), text.size());
      const std::string item = text.substr(at + 1, end - at - 1);
      options[item.substr(0, item.find('='))] = item.substr(item.find('=') + 1);
      at = end < text.size() ? end : std::string::npos;
    }
  }
  double count() const { return number.empty() ? 0 : std::stod(number); }
  double option(const char* option, double preset) const {
    const auto found = options.find(option);
    return found == options.end() ? preset : std::stod(found->second);
  }
};

// Multiply-adds times two of one (query, head): products with `keys` keys and as many values, forward 4 D each;
// backward computes the scores again, and has four products of its own.
double attention_flops(double keys, double D, bool backward) { return (backward ? 14 : 4) * keys * D; }

// Of one (query, head).
double variant_flops(const Problem& p) {
  const Spec spec(p.attention);
  const double N = double(p.length), D = double(p.head_size), number = spec.count();
  const auto attend = [&](double keys) { return attention_flops(std::min(keys, N), D, p.backward); };
  const double hash = 2 * spec.option("bits", 63) * D, top = attend(spec.option("topk", 32));
  if (spec.name == "full" || spec.name == "shared-full") return attend(N);
  if (spec.name == "clustered") return hash + attend(number);
  if (spec.name == "i-clustered") return hash + attend(number) + top;
  if (spec.name == "position") return attend(number);
  if (spec.name == "i-position") return attend(number) + top;
  const double lloyd = 2 * D * number * (spec.option("iterations", 10) + 1);
  if (spec.name == "euclidean") return lloyd + attend(number);
  if (spec.name == "i-euclidean") return lloyd + attend(number) + top;
  if (spec.name == "oracle-top") return 2 * N * D + attend(number);
  if (spec.name == "lsh") {
    const double chunk = spec.option("chunk", 32), buckets = spec.option("buckets", 2 * std::ceil(N / (2 * chunk)));
    return number * (D * buckets + attend(2 * chunk));
  }
  if (spec.name == "local") return attend(2 * number + 1);
  if (spec.name == "longformer") return attend(2 * (number + spec.option("global", 1)) + 1);
  if (spec.name == "strided") return attend(2 * number + 1 + N / number);
  if (spec.name == "inducing") return 3 * attend(number);
  if (spec.name == "linear") return attend(D);
  return NAN;
}

}  // namespace

double option_of(const std::string& spec, const char* option, double preset) {
  return Spec(spec).option(option, preset);
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

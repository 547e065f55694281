// A variant from outside the library: `sharp-T`, whose scores are T times as large. This file is all it needs; the
// tests cover it like the library's own variants (nn/attention/README.md, "Adding a variant").
#include <cstdlib>

#include "core/parallel.h"
#include "tests/attention/reference.h"

using namespace cairn;  // NOLINT: tests only

namespace {

struct Sharp : Attention {
  int64_t times = 1;

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    return attention(double(times) * q, k, v, options(mask, context));
  }
  double flops(const AttentionWork& work) const override { return work.attend(work.length); }
};

const AttentionVariant sharp{"sharp", "full attention with larger scores",
                             [](SpecReader& spec) -> std::unique_ptr<Attention> {
                               auto variant = std::make_unique<Sharp>();
                               variant->times = spec.number("times");
                               return variant;
                             }};

reference::Matrix sharp_reference(const reference::Problem& p) {
  reference::Problem sharper = p;
  sharper.scale *= double(p.number);
  return reference::full(sharper);
}

[[maybe_unused]] const bool added = [] {
  add_attention_variant(sharp);
  return true;
}();
const reference::AddReference added_reference{
    "sharp", {.weights = sharp_reference, .boolean_mask = true, .causal = true, .cross = true, .equivariant = true}};

// ---- Full attention with one fault, named by CAIRN_BROKEN_VARIANT, which the tests must find. CTest runs the test
// case that has to fail (tests/CMakeLists.txt).
std::string fault() {
  const char* name = std::getenv("CAIRN_BROKEN_VARIANT");
  return name ? name : "";
}

struct Broken : Attention {
  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    const std::string wrong = fault();
    AttentionOptions choice = options(mask, context);
    if (wrong == "lengths") choice.mask.key_lengths = {};
    if (wrong == "mask") choice.mask.allowed = {};
    if (wrong == "causal") choice.mask.causal = false;
    if (wrong == "dropout") choice.dropout = {};
    const Variable out = attention(wrong == "gradient" ? q.detach() : q, k, v, choice);
    if (wrong == "value") return 1.001 * out;
    if (wrong == "threads") return (1 + 1e-3 * threads()) * out;
    if (wrong == "padding") return (1 + 1e-9 * double(k.size(1))) * out;
    if (wrong == "nan") return out + 0 * sum(v);
    if (wrong == "order") return out + reshape(Variable(first_row(out)), {1, out.size(1), 1, 1});
    return out;
  }

  double flops(const AttentionWork&) const override { return 0; }

  // 1 for the first position, 0 for all others.
  static Tensor first_row(const Variable& out) {
    Tensor x = Tensor::zeros({out.size(1)}, out.dtype());
    if (x.elements() > 0) x.slice(0, 1).copy_from(Tensor::full({1}, 1, out.dtype()));
    return x;
  }
};

const AttentionVariant broken{"broken", "has a fault",
                              [](SpecReader&) -> std::unique_ptr<Attention> { return std::make_unique<Broken>(); }};

[[maybe_unused]] const bool broken_added = [] {
  if (fault().empty()) return false;
  add_attention_variant(broken);
  if (fault() == "no reference") return true;
  reference::references()["broken"] = {.weights = reference::full,
                                       .boolean_mask = true,
                                       .causal = true,
                                       .cross = fault() != "cross",
                                       .equivariant = true};
  return true;
}();

}  // namespace

#include <algorithm>
#include <cstdlib>

#include "tests/attention/reference.h"

namespace cairn::reference {
namespace {

// Full attention to those visible keys for which `sees` is true.
Matrix patterned(Problem p, const std::function<bool(int64_t, int64_t)>& sees) {
  p.visible = [sees, visible = p.visible](int64_t i, int64_t j) { return sees(i, j) && visible(i, j); };
  return full(p);
}

}  // namespace

static Matrix local(const Problem& p) {
  const int64_t dilation = p.option("dilation", 1);
  return patterned(
      p, [&](int64_t i, int64_t j) { return (i - j) % dilation == 0 && std::abs(i - j) / dilation <= p.number; });
}

static Matrix longformer(const Problem& p) {
  const int64_t global = p.option("global", 1);
  return patterned(p, [&](int64_t i, int64_t j) { return std::abs(i - j) <= p.number || std::min(i, j) < global; });
}

static Matrix strided(const Problem& p) {
  return patterned(p, [&](int64_t i, int64_t j) { return std::abs(i - j) <= p.number || (i - j) % p.number == 0; });
}

static const AddReference added_local{
    "local",
    {.weights = local,
     .boolean_mask = true,
     .causal = true,
     .more = {"local-1:dilation=3", "local-2:dilation=4", "local-5:dilation=2147483647"}}};
static const AddReference added_longformer{
    "longformer", {.weights = longformer, .boolean_mask = true, .causal = true, .more = {"longformer-1:global=6"}}};
static const AddReference added_strided{
    "strided", {.weights = strided, .boolean_mask = true, .causal = true, .more = {"strided-1", "strided-2147483647"}}};

}  // namespace cairn::reference

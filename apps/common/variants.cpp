#include "apps/common/variants.h"

#include <sstream>

#include "nn/attention/attention.h"

namespace cairn {

std::vector<std::string> split_specs(const std::string& list) {
  std::vector<std::string> specs;
  if (list.empty()) return specs;
  std::istringstream items(list + ",");
  for (std::string item; std::getline(items, item, ',');)
    if (!specs.empty() && item.find('=') != std::string::npos && item.find(':') == std::string::npos)
      specs.back() += "," + item;
    else
      specs.push_back(item);
  return specs;
}

const Text one_variant{"TEXT", false, [](const std::string& spec) { make_attention(spec); }};
const Text several_variants{"TEXT", false, [](const std::string& list) {
                              for (const std::string& spec : split_specs(list)) make_attention(spec);
                            }};

// Tries the variant on two positions. Error (UsageError): it cannot hide the later one.
static void try_causal(const std::string& spec) {
  const Variable x(Tensor::zeros({1, 2, 1, 1}, DType::float32));
  const Generator generator;
  AttentionContext context;
  context.generator = &generator;
  (*make_attention(spec))(x, x, x, {.causal = true}, context);
}

void check_causal(const std::string& spec) try { try_causal(spec); } catch (const UsageError& error) {
  std::string names;
  for (const AttentionVariant* variant : attention_variants())
    for (const char* const number : {"", "-1"}) try {
        try_causal(concat(variant->name, number));
        names += concat(names.empty() ? "" : ", ", variant->name);
      } catch (const UsageError&) {  // it has no number, or needs one, or cannot be causal
      }
  throw UsageError(concat(error.what(), "; these can be causal: ", names));
}

}  // namespace cairn

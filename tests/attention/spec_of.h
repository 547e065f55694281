#pragma once
// Specifications for tests of all attention variants in the list.
#include <string>

#include "nn/attention/attention.h"

namespace cairn {

// A specification of each variant with small numbers, so that clusters are shared and top keys and chunks are a choice.
inline std::string spec_of(const AttentionVariant& variant, int64_t number, int64_t top) {
  SpecReader reader({&variant, "100", {}});
  variant.make(reader);
  std::string spec = variant.name;
  if (!reader.number_asked().empty()) spec += '-' + std::to_string(number);
  for (const auto& option : reader.asked())
    if (option.name == "topk" || option.name == "chunk") spec += ':' + option.name + '=' + std::to_string(top);
  return spec;
}

}  // namespace cairn

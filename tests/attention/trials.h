#pragma once
// The trials that tests of all attention variants run: each variant in the list with its reference, once with small
// numbers, and once for each further specification of the reference.
#include "tests/attention/reference.h"
#include "tests/attention/spec_of.h"
#include "tests/catch.h"

namespace cairn {

struct Trial {
  std::string name, spec;
  reference::Entry entry;

  // With parameters for `heads` heads of `size`, the same ones every time.
  std::unique_ptr<Attention> make(int64_t heads, int64_t size) const {
    auto attention = make_attention(spec);
    Generator generator(17);
    attention->initialize(heads, size, generator);
    return attention;
  }
};

inline std::vector<Trial> trials(int64_t number, int64_t top) {
  std::vector<Trial> result;
  for (const auto* variant : attention_variants()) {
    INFO(variant->name);
    REQUIRE(reference::references().count(variant->name) == 1);
    const reference::Entry& entry = reference::references().at(variant->name);
    result.push_back({variant->name, spec_of(*variant, number, top), entry});
    for (const std::string& spec : entry.more) result.push_back({variant->name, spec, entry});
    for (const std::string& spec : entry.more_cross) {
      result.push_back({variant->name, spec, entry});
      result.back().entry.cross = true;
    }
  }
  return result;
}

}  // namespace cairn

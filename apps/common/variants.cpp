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

}  // namespace cairn

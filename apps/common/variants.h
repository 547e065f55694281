#pragma once
// Settings that are attention variants.
#include <string>
#include <vector>

#include "apps/common/settings.h"

namespace cairn {

// One specification, or several with commas between them. Anything else is a usage error, which says what is wrong.
extern const Text one_variant, several_variants;

// Splits "full,i-clustered-15:topk=16,bits=32" into two specifications: a comma before option=value does not split.
std::vector<std::string> split_specs(const std::string& list);

// Error (UsageError): the variant cannot be causal. The message names those that can.
void check_causal(const std::string& spec);

}  // namespace cairn

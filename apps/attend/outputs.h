#pragma once
// The file that `attend` writes.
#include "apps/attend/run.h"

namespace cairn::attend {

// What a run gives, as a file.
TensorFile output_file(const std::string& spec, const Inputs& inputs, const Outcome& outcome);

}  // namespace cairn::attend

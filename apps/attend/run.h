#pragma once
// Runs one attention variant on given tensors: output, gradients, choices, time, rows of attention weights, and the
// file that `attend` writes.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/attend/inputs.h"
#include "apps/common/settings.h"

namespace cairn::attend {

struct RunOptions {
  DeviceAndDType compute;
  uint64_t seed = 1;
  bool gradients = false;
};

// What a variant computes from these inputs.
class Runner {
 public:
  // Computes all below. Errors: UsageError: the specification is wrong, or the inputs do not fit it; DataError: labels
  // beyond its clusters.
  Runner(const std::string& spec, const Inputs& inputs, const RunOptions& options);

  Tensor out;                                             // [B, N, H, M], of q's element type, as the gradients
  std::vector<std::pair<std::string, Tensor>> gradients;  // by name: of q, k, v and the parameters
  AttentionChoices made;
  double seconds = 0;  // the median of 5 runs, or of fewer that take a second; with gradients if options say so

  // The results as a file.
  TensorFile output(const std::string& spec) const;
  // The attention weights of some queries, whose indices rise: [B, H, rows, S] in float32 on the CPU. Random draws and
  // choices are those of the results. Time: a forward and a backward pass with a column of values per row.
  Tensor weights(const std::vector<int64_t>& rows) const;

 private:
  void run();
  Tensor place(const Tensor& x) const;  // to the device and type of the computation
  Tensor back(const Tensor& x) const;

  const Inputs& inputs_;
  RunOptions options_;
  Generator generator_;
  std::unique_ptr<Attention> attention_;
  AttentionMask mask_;
  AttentionChoices given_;
  Variable q_, k_, v_;
  NamedVariables parameters_;
};

}  // namespace cairn::attend

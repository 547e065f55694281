#pragma once
// One attention variant on given tensors: its output, gradients, choices and time, its rows of attention weights, and
// the file that `attend` writes of it.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/attend/inputs.h"
#include "apps/common/command.h"

namespace cairn::attend {

struct RunOptions {
  Place compute;
  uint64_t seed = 1;
  bool gradients = false;
  int64_t runs = 1;  // of which the median time counts; fewer once they have taken a second
};

struct Outcome {
  Tensor out;                                             // [B, N, H, M], of q's element type, as all the others
  std::vector<std::pair<std::string, Tensor>> gradients;  // of q, k and v, by name, and of the parameters
  AttentionChoices made;
  double seconds = 0;  // of one run, with gradients if asked for
};

// A variant with its parameters, ready to run on these inputs. Errors (UsageError): the specification; the inputs do
// not fit it.
class Runner {
 public:
  Runner(const std::string& spec, const Inputs& inputs, const RunOptions& options);

  // Errors: UsageError: a mask that the variant cannot honor; DataError: labels beyond its clusters.
  Outcome run();
  // The attention weights of some queries, which rise, [B, H, rows, S] in float32 on the CPU. Draws are named, so the
  // choices are those of run(). Time is that of a forward and backward pass with as many columns of values as rows.
  Tensor weights(const std::vector<int64_t>& rows) const;

 private:
  Tensor place(const Tensor& x) const;  // where and in what the variant computes
  Tensor back(const Tensor& x) const;

  const Inputs& inputs_;
  RunOptions options_;
  Generator generator_;
  std::unique_ptr<Attention> attention_;
  AttentionMask mask_;
  AttentionChoices given_;
  AttentionContext context_;
  Variable q_, k_, v_;
  std::vector<NamedParameter> parameters_;
};

// What a run gives, as a file.
TensorFile output_file(const std::string& spec, const Inputs& inputs, const Outcome& outcome);

}  // namespace cairn::attend

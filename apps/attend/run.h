#pragma once
// One attention variant on given tensors: its output, gradients, choices and time, and how far it is from another.
#include "apps/attend/inputs.h"
#include "apps/common/command.h"

namespace cairn::attend {

struct RunOptions {
  Place compute;
  uint64_t seed = 1;
  bool gradients = false;
  int64_t repeat = 1;  // how often to run for the time, whose median counts
};

struct Outcome {
  Tensor out;                     // [B, N, H, M], of q's element type, as all the others
  Tensor grad_q, grad_k, grad_v;  // undefined where there is none
  std::vector<std::pair<std::string, Tensor>> grad_parameters;
  AttentionChoices made;
  double seconds = 0;  // of one run, with gradients if asked for
};

// A variant with its parameters, ready to run on these inputs. Errors (UsageError): the specification; the inputs do
// not fit it.
class Runner {
 public:
  Runner(const std::string& spec, const Inputs& inputs, const RunOptions& options);

  const std::string& spec() const { return attention_->spec(); }
  Outcome run();
  // The output for other values [B, S, H, M'], in q's element type on the CPU, by the same choices as run().
  Tensor apply(const Tensor& values) const;

 private:
  Tensor place(const Tensor& x) const;  // where and in what the variant computes
  Tensor back(const Tensor& x) const;

  const Inputs& inputs_;
  RunOptions options_;
  Generator generator_;
  std::unique_ptr<Attention> attention_;
  AttentionMask mask_;
  AttentionChoices given_;
  Variable q_, k_, v_;
  std::vector<NamedParameter> parameters_;
};

// How far `runner` is from `other`: the mean over queries of the L1 distance of their rows of attention weights (0 to
// 2), and the outputs' distance relative to the size of the other's. NaN where there is nothing to compare.
struct Distance {
  double l1, error;
};
Distance distance(const Inputs& inputs, const Runner& runner, const Tensor& out, const Runner& other,
                  const Tensor& other_out);

// The weights of the first `heads` heads of the first batch element: of each [N][S].
using HeadWeights = std::vector<std::vector<double>>;
HeadWeights dense_weights(const Inputs& inputs, const Runner& runner, int64_t heads);

}  // namespace cairn::attend

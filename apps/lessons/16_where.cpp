// Lesson 16: where the time and the memory of a training step go (apps/lessons/16_where.md).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "core/parallel.h"
#include "core/trace.h"
#include "nn/io/json.h"
#include "nn/optim/adam.h"
#include "nn/optim/sgd.h"
#include "nn/transformer.h"

using namespace cairn;

// Of each name, the nanoseconds of its spans without those of the spans inside them. Events are sorted by their begin,
// an outer span before its inner ones. Spans of two threads are never inside each other.
std::map<std::string, int64_t> own_times(const std::vector<trace::Event>& events) {
  // [lesson 16
  std::map<std::string, int64_t> own;
  std::map<int, std::vector<const trace::Event*>> open;  // of each thread
  for (const trace::Event& event : events) {
    auto& outer = open[event.thread];
    while (!outer.empty() && outer.back()->begin + outer.back()->duration <= event.begin) outer.pop_back();
    if (!outer.empty()) own[outer.back()->name] -= event.duration;
    own[event.name] += event.duration;
    outer.push_back(&event);
  }
  return own;
  // lesson 16]
}

// int32 [...] -> [..., n]: 1 at the word's place, else 0.
Tensor one_hot(const Tensor& words, int64_t n) {
  Shape shape = words.shape();
  shape.push_back(1);
  const Tensor ones = Tensor::full({}, 1), zeros = Tensor::zeros({});
  return where(compare(Compare::equal, words.reshape(shape), arange(n, Device::cpu)), ones, zeros);
}

// The rows of the table [words, features] for words int32 [...]: [..., features].
Variable embedded(const Variable& table, const Tensor& words) {
  // [lesson 16: return matmul(one_hot(words, table.size(0)), table);
  return gather_rows(table, words);
  // lesson 16]
}

// layer(x), of which the tape keeps x alone: the gradient runs the layer once more. x has a gradient.
using Layer = std::function<Variable(const Variable&)>;
Variable recomputed(const Layer& layer, const Variable& x) {
  // [lesson 16
  const Tensor y = layer(x.detach());  // the tape of this pass is freed at once
  return record("recomputed", y, {x}, [layer, x = SavedTensor(x)](const Tensor& g) -> Gradients {
    const EnableGrad enabled;
    const Variable again(x(), true);
    backward(layer(again), g);
    return {again.grad()};
  });
  // lesson 16]
}

struct Model : Module {
  Variable table;
  Encoder encoder;
  Linear output;
  bool recomputes = false;

  Model(int64_t words, Generator& generator)
      : table(normal_parameter({words, 32}, generator)),
        encoder({.layers = 8, .heads = 2, .head_size = 16, .feed_forward = 128, .attention = "full", .dropout = 0.1},
                generator),
        output(32, 8, generator) {}
  void fields(Fields& f) override {
    f("table", table);
    f("encoder", encoder);
    f("output", output);
  }
  // int32 [B, N] -> [B, N, 8]
  Variable operator()(const Tensor& words, const Context& context) const {
    Variable x = embedded(table, words);
    for (uint32_t i = 0; i < 8; ++i) {
      const Layer layer = [this, i, context](const Variable& z) {
        return (*encoder.layers[i])(z, {}, context.at_layer(i));
      };
      x = recomputes ? recomputed(layer, x) : layer(x);
    }
    return output(x);
  }
};

// int32 [B, N]: words, and a class for each.
struct Batch {
  Tensor words, classes;
};

Tensor rounded(const Tensor& x) { return x.cast(DType::bfloat16).cast(DType::float32); }

// One step, which leaves its gradients. The loss, which is returned, and its gradient are those of rounded weights. No
// update is lost to rounding.
double learn(Model& model, const Batch& batch, const Context& context, Optimizer& optimizer) {
  // [lesson 16
  std::vector<Variable> weights = optimizer.parameters();
  std::vector<Tensor> exact;
  for (Variable& weight : weights) {
    exact.push_back(weight.value().clone());
    weight.mutable_value().copy_from(rounded(weight));
  }
  const Variable loss = cross_entropy(model(batch.words, context), batch.classes);
  optimizer.clear_gradients();
  backward(loss);
  for (size_t i = 0; i < weights.size(); ++i) weights[i].mutable_value().copy_from(exact[i]);
  optimizer.step();
  return loss.value().item();
  // lesson 16]
}

#include "tests/lessons/16_where.h"  // the check

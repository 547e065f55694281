#include "apps/copy_task/model.h"

#include <algorithm>
#include <cmath>

#include "apps/common/program.h"
#include "core/ops.h"
#include "core/trace.h"

namespace cairn::copy_task {

Model::Model(const TransformerOptions& options, int64_t n, Generator& generator)
    : embedding(tokens, options.features(), generator),
      encoder(options, generator),
      output(options.features(), classes, generator),
      positions(sinusoidal_positions(n, options.features())) {}

void Model::place(Device device, DType activations) {
  move_to(*this, device);
  positions = positions.to(device).cast(activations);
}

Variable Model::operator()(const Tensor& input, const Context& context) const {
  const Variable x = cast(embedding(input.to(positions.device())), positions.dtype()) + Variable(positions);
  return cast(output(encoder(x, {}, context)), DType::float32);
}

Evaluation evaluate(const Model& model, int64_t length, int64_t sequences, uint64_t seed, uint64_t step, bool may_stop,
                    Communicator& ranks) {
  const trace::Span span("evaluate", "program");
  const NoGrad no_grad;
  RandomStream random(seed, step, Purpose::data, 1);
  Generator generator(~seed, model.positions.device());  // draws of its own: training's stay what they are
  // Of each batch: loss, right answers, answers, and the last two of masked positions.
  constexpr int64_t columns = 5;
  const int64_t batches = (sequences + evaluation_batch - 1) / evaluation_batch;
  Tensor counts = Tensor::zeros({batches, columns}, DType::float64);
  for (int64_t i = 0; i < batches && !(may_stop && interrupted()); ++i) {
    const int64_t done = i * evaluation_batch;
    const Batch data = make_batch(std::min(evaluation_batch, sequences - done), length, random);
    if (i % ranks.size() != ranks.rank()) continue;
    generator.set_step(step * 1000003 + uint64_t(done));
    const Tensor logits = model(data.input, {false, &generator}).value().to(Device::cpu);
    auto* count = counts.mutable_data<double>() + i * columns;
    count[0] = cross_entropy(logits, data.target).loss.item() * double(data.target.elements());
    const Tensor answers = argmax(logits);
    const auto *answer = answers.data<int32_t>(), *target = data.target.data<int32_t>(),
               *input = data.input.data<int32_t>();
    for (int64_t j = 0; j < answers.elements(); ++j) {
      const bool is_masked = input[j] == mask_token, is_right = answer[j] == target[j];
      count[1] += is_right, ++count[2];
      count[3] += is_masked && is_right, count[4] += is_masked;
    }
  }
  ranks.meet();
  ranks.start_sum(counts);  // to each batch's numbers, zeros
  ranks.wait();
  double total[columns] = {};
  for (int64_t i = 0; i < counts.elements(); ++i) total[i % columns] += counts.data<double>()[i];
  const auto [loss, right, all, masked_right, masked] = total;
  if (all == 0) return {NAN, NAN, NAN};
  return {loss / all, right / all, masked > 0 ? masked_right / masked : NAN};
}

}  // namespace cairn::copy_task

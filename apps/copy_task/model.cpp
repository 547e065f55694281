#include "apps/copy_task/model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/variants.h"
#include "core/ops.h"
#include "core/trace.h"
#include "nn/io/json.h"

namespace cairn::copy_task {

using Json = nlohmann::ordered_json;

Model::Model(const TransformerOptions& options, int64_t n_, Generator& generator, bool causal_)
    : embedding(tokens, options.features(), generator),
      encoder(options, generator),
      output(options.features(), classes, generator),
      n(n_),
      causal(causal_) {
  if (causal) name_in_errors("--attention", [&] { check_causal(options.attention); });
}

Variable Model::operator()(const Tensor& input, const Context& context) const {
  const trace::Span span("forward", "program");
  const Variable x = cast(embedding(input.to(embedding.weight.device())), activations);
  return cast(output(encoder(positions(x), {.causal = causal}, context)), DType::float32);
}

std::string Model::full_note() const { return full_attention_note(*encoder.layers[0]->attention.attention, n, n); }

Json as_json(const Metrics& metrics) {
  return {{"loss", finite_or_null(metrics.loss)},
          {"accuracy", finite_or_null(metrics.accuracy)},
          {"masked_accuracy", finite_or_null(metrics.masked_accuracy)}};
}

std::string metrics_text(const Json& json) {
  const Json& masked = json.at("masked_accuracy");  // null if nothing is masked
  return formatted("%-32s  loss %.4f  accuracy %.4f  masked accuracy %s\n",
                   json.at("attention").get<std::string>().c_str(), number_or_nan(json.at("loss")),
                   number_or_nan(json.at("accuracy")),
                   masked.is_null() ? "-" : formatted("%.4f", masked.get<double>()).c_str());
}

Metrics evaluate(const Model& model, int64_t length, int64_t sequences, uint64_t seed, uint64_t step, bool may_stop) {
  const trace::Span span("evaluate", "program");
  const NoGrad no_grad;
  RandomStream random(seed, step, Purpose::data, evaluation_data);
  Generator generator(~seed);  // draws of its own: training's stay what they are
  double loss = 0;
  int64_t right = 0, all = 0, masked_right = 0, masked = 0;
  for (int64_t done = 0; done < sequences && !(may_stop && interrupted()); done += evaluation_batch) {
    const Batch data = make_batch(std::min(evaluation_batch, sequences - done), length, random, model.causal);
    generator.set_step(step * 1000003 + uint64_t(done));
    const Tensor logits = model(data.input, {.generator = &generator}).value().to(Device::cpu);
    loss += cross_entropy(logits, data.target).value().item() * double(data.target.elements());
    const Tensor answers = argmax(logits);
    const auto *answer = answers.data<int32_t>(), *target = data.target.data<int32_t>(),
               *input = data.input.data<int32_t>();
    for (int64_t i = 0; i < answers.elements(); ++i) {
      const bool is_masked = input[i] == mask_token, is_right = answer[i] == target[i];
      right += is_right;
      ++all;
      masked_right += is_masked && is_right;
      masked += is_masked;
    }
  }
  if (all == 0) return {NAN, NAN, NAN};
  return {loss / double(all), double(right) / double(all), masked ? double(masked_right) / double(masked) : NAN};
}

}  // namespace cairn::copy_task

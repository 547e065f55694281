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

Model::Model(const Settings& settings, Generator& generator)
    : embedding(tokens, settings.model.features(), generator),
      encoder(settings.transformer(), generator),
      output(settings.model.features(), classes, generator),
      n(sequence_length(settings.length)),
      causal(settings.causal),
      from_other(settings.from_other) {
  check<UsageError>(!causal || !from_other, "--from-other: not with --causal, which hides the second copy");
  if (causal) name_in_errors("--attention", [&] { check_causal(settings.model.attention); });
  const MultiHeadAttention& first = encoder.layers[0]->attention;
  check<UsageError>(!from_other || first.key, "--from-other: attention '", first.attention->spec(), "' uses the ",
                    "queries as keys, so it cannot read another copy; take full, clustered, i-clustered or ",
                    "lsh-4:keys=own");
}

Variable Model::operator()(const Tensor& input, const Context& context) const {
  const trace::Span span("forward", "program");
  const Variable x = cast(embedding(input.to(embedding.weight.device())), activations);
  const Variable placed = positions(x);
  const Variable y = from_other ? encoder(slice(placed, 1, n / 2, n), {}, context, slice(placed, 1, 0, n / 2))
                                : encoder(placed, {.causal = causal}, context);
  return cast(output(y), DType::float32);
}

std::string Model::full_note() const {
  return full_attention_note(*encoder.layers[0]->attention.attention, answers(), answers());
}

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
    const Tensor answers = argmax(logits), targets = model.answered(data.target), inputs = model.answered(data.input);
    loss += cross_entropy(logits, targets).value().item() * double(targets.elements());
    const auto *answer = answers.data<int32_t>(), *target = targets.data<int32_t>(), *input = inputs.data<int32_t>();
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

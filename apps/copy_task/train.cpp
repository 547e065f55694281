#include "apps/copy_task/train.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "apps/common/program.h"
#include "nn/optim/r_adam.h"

namespace cairn::copy_task {
namespace {

constexpr int64_t evaluation_sequences = 256, final_sequences = 1024;

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Refuses, before anything is allocated, a model that cannot fit: each parameter has a gradient and two moments.
void check_memory(const TransformerOptions& model) {
  const double f = double(model.features()), hidden = double(model.feed_forward);
  const double bytes = 4 * sizeof(float) * double(model.layers) * (4 * f * f + 2 * f * hidden);
  const double available = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGE_SIZE));
  check<DeviceError>(bytes <= available, "out of memory on cpu: the parameters, their gradients and moments need ",
                     std::ceil(bytes / 1e9), " GB, this machine has ", std::floor(available / 1e9),
                     "; reduce --layers, --heads, --head-size or --feed-forward");
}

// Refuses, before training, a variant that could not be evaluated after it.
void check_swaps(Model& model, const TrainOptions& options) {
  for (const std::string& spec : options.also_evaluate)
    model.encoder.swap_attention(spec, options.model.attention_defaults);
  model.encoder.swap_attention(options.model.attention, options.model.attention_defaults);
}

std::string numbers(double loss, const Evaluation& evaluation) {
  char text[96];
  if (std::isnan(evaluation.masked_accuracy))
    std::snprintf(text, sizeof text, "loss %.4f", loss);
  else
    std::snprintf(text, sizeof text, "loss %.4f  masked accuracy %.3f", loss, evaluation.masked_accuracy);
  return text;
}

}  // namespace

TrainResult train(const TrainOptions& options, Progress& progress) {
  const auto start = std::chrono::steady_clock::now();
  reset_peak_memory(Device::cpu);
  options.model.validate();
  check_memory(options.model);
  Generator generator(options.seed);
  Model model(options.model, sequence_length(options.length), generator);
  check_swaps(model, options);
  RAdam optimizer(parameters(model), options.learning_rate);

  TrainResult result;
  result.parameters = parameter_count(model);
  Evaluation latest{NAN, NAN, NAN};
  bool explained = false;
  const auto training_start = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < options.iterations && !interrupted(); ++step) {
    generator.set_step(uint64_t(step));
    Sequence random(options.seed, uint64_t(step), Purpose::data);
    const Batch batch = make_batch(options.batch, options.length, random);

    const Variable loss = cross_entropy(model(batch.input, {true, &generator}), batch.target);
    optimizer.clear_gradients();
    backward(loss);
    optimizer.step();

    const double value = loss.value().item();
    check<DivergedError>(std::isfinite(value), "training diverged: the loss of step ", step + 1, " is ", value,
                         "; try a smaller --lr");
    result.iterations = step + 1;
    if (result.iterations % options.evaluate_every == 0) {
      latest = evaluate(model, options.length, evaluation_sequences, options.seed, uint64_t(step));
      if (options.stop_at > 0 && latest.masked_accuracy >= options.stop_at) {
        progress.update(result.iterations, numbers(value, latest));
        break;
      }
      if (!explained && latest.accuracy > 0.8 && latest.masked_accuracy < 0.3) {
        progress.note(
            "Unmasked symbols are copied by now; masked ones are still guessed, right about 1 time in 8. This plateau "
            "lasts until the attention finds the other copy, often several hundred steps, and then ends quickly.");
        explained = true;
      }
    }
    progress.update(result.iterations, numbers(value, latest));
  }
  progress.finish();
  result.steps_per_second = double(result.iterations) / since(training_start);
  const uint64_t last = uint64_t(options.iterations) + 1;  // sequences that no step has seen
  result.evaluation = evaluate(model, options.length, final_sequences, options.seed, last);
  if (interrupted()) result.evaluation = latest;
  for (const std::string& spec : options.also_evaluate) {
    if (interrupted()) break;
    model.encoder.swap_attention(spec, options.model.attention_defaults);
    result.also.push_back({spec, evaluate(model, options.length, final_sequences, options.seed, last)});
  }
  result.interrupted = interrupted();
  check<DivergedError>(result.interrupted || std::isfinite(result.evaluation.loss),
                       "training diverged: the loss of the trained model is ", result.evaluation.loss,
                       "; try a smaller --lr");
  result.peak_bytes = memory(Device::cpu).peak;
  result.seconds = since(start);
  return result;
}

}  // namespace cairn::copy_task

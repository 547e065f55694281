#include "apps/language_model/model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/variants.h"
#include "core/ops.h"
#include "nn/attention/offset_heads.h"
#include "nn/io/hash.h"

namespace cairn::language_model {

SplitText::SplitText(const std::string& file, int64_t context) : train(read_file(file)) {
  const int64_t size = int64_t(train.size()), least = 10 * (context + 1);
  check<DataError>(size >= least, "--text ", file, ": ", size, " bytes, expected at least ", least,
                   ", ten times the --context and a byte");
  check<DataError>(size <= UINT32_MAX, "--text ", file, ": ", size, " bytes, expected at most 4 GiB");
  held_out = train.substr(train.size() / 10 * 9);
  train.resize(train.size() - held_out.size());
}

DataRecord SplitText::record(const std::string& file) const {
  Xxh128 hash;
  for (const std::string* part : {&train, &held_out}) hash.add(*part);
  return {"data.json", "--text " + file, {{"text", hash.text()}}};
}

Batch::Batch(const std::string& text, const std::vector<int64_t>& begins, int64_t length, Device device) {
  std::vector<int32_t> inputs, targets;
  for (const int64_t begin : begins)
    for (int64_t i = begin; i < begin + length; ++i) {
      inputs.push_back(uint8_t(text[size_t(i)]));
      targets.push_back(uint8_t(text[size_t(i + 1)]));
    }
  input = Tensor::from(inputs, {int64_t(begins.size()), length}).to(device);
  target = Tensor::from(targets, input.shape()).to(device);
}

void Settings::fields(SettingFields& f) {
  f("text", text, Text::file, "the text to learn: any file, read as bytes. Its last tenth is held out",
    Keep::may_change);
  f("attention", model.attention, one_variant, "attention variant that can be causal (listed below)");
  f("context", context, {2, 1 << 20}, "bytes that the model sees at once");
  f("batch", batch, {1, 1 << 20}, "windows of the text per step");
  model_fields(f, model);
  training.fields(f);
  f("quick", quick, "a small model that learns in five minutes; changes these defaults");
  compute.fields(f);
  f.quick({{"context", 256},
           {"batch", 6},
           {"heads", 4},
           {"feed_forward", 512},
           {"lr", 3e-3},
           {"iterations", 4200},
           {"evaluate_every", 100}});
}

static const AttentionMask causal{.causal = true};

Model::Model(const Settings& settings, Generator& generator)
    : embedding(byte_values, settings.model.features(), generator),
      encoder(settings.model, generator),
      output(settings.model.features(), byte_values, generator),
      context(settings.context) {
  name_in_errors("--attention", [&] { set_attention(settings.model.attention); });
  // The first layer's heads begin with one of the latest bytes each.
  MultiHeadAttention& first = *encoder.attentions().front();
  std::vector<int> offsets;
  for (int head = 0; head < settings.model.heads; ++head) offsets.push_back(first.key ? -1 - head : 0);
  start_at_offsets(first, offsets);
}

Variable Model::operator()(const Tensor& input, const Context& given) const {
  const Variable x = cast(embedding(input.to(embedding.weight.device())), activations);
  return cast(output(encoder(positions(x), causal, given)), DType::float32);
}

void Model::set_attention(const std::string& spec) {
  check_causal(spec);
  if (spec != encoder.attentions().front()->attention->spec()) encoder.swap_attention(spec);
}

double bits_per_byte(const Model& model, const std::string& text, int64_t every, bool may_stop) {
  constexpr int64_t at_once = 16;
  const NoGrad no_grad;
  const int64_t n = model.context, targets = int64_t(text.size()) - 1, whole = targets / n;  // windows
  double nats = 0;
  int64_t counted = 0;
  const auto add = [&](const std::vector<int64_t>& begins, int64_t length) {
    if (may_stop && interrupted()) throw Interrupted();
    const Generator generator{uint64_t(begins[0])};
    const Batch batch(text, begins, length, model.embedding.weight.device());
    const Variable mean = cross_entropy(model(batch.input, {.generator = &generator}), batch.target);
    nats += mean.value().item() * double(batch.target.elements());
    counted += batch.target.elements();
  };
  for (int64_t first = 0; first < whole; first += at_once * every) {
    std::vector<int64_t> begins;
    for (int64_t i = first; i < std::min(whole, first + at_once * every); i += every) begins.push_back(i * n);
    add(begins, n);
  }
  if (every == 1 && targets > whole * n) add({whole * n}, targets - whole * n);
  return nats / double(counted) / std::log(2.0);
}

char next_byte(const Model& model, const std::string& text, double temperature, RandomStream& random) {
  const NoGrad no_grad;
  const int64_t n = std::min(int64_t(text.size()), model.context);
  const Batch seen(text.substr(text.size() - size_t(n)) + '\0', {0}, n, model.embedding.weight.device());
  const Generator generator;
  const Tensor last = slice(model(seen.input, {.generator = &generator}), 1, n - 1, n).value().to(Device::cpu);
  if (temperature < 1e-3) return char(argmax(last).data<int32_t>()[0]);
  const std::vector<float> share = softmax(last / temperature).value().to_vector<float>();
  double left = random.uniform();
  size_t byte = 0;
  while (byte + 1 < share.size() && (left -= double(share[byte])) >= 0) ++byte;
  return char(byte);
}

std::string written(const Model& model, std::string text, int64_t bytes) {
  const size_t before = text.size();
  RandomStream random(1, 0, Purpose::data);
  for (int64_t i = 0; i < bytes; ++i) text += next_byte(model, text, 0.7, random);
  return text.substr(before);
}

}  // namespace cairn::language_model

#include "apps/speech/model.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/speech/features.h"
#include "core/ops.h"
#include "core/trace.h"
#include "nn/attention/offset_heads.h"
#include "nn/io/json.h"

namespace cairn::speech {

namespace {

// Half of the heads look back and half ahead: -2, -1, 1, 2 for four heads, or at random distances. Where the queries
// are the keys, all look around their own position.
std::vector<int> offsets_of(const Settings& settings, bool shared_keys, RandomStream& random) {
  const int64_t heads = settings.model.heads;
  if (shared_keys) return std::vector<int>(size_t(heads), 0);
  std::vector<int> offsets;
  for (int64_t head = 0; head < heads; ++head) {
    const bool is_back = head < heads / 2;
    const int distance = settings.init == Settings::Start::far ? 1 + int(random.below(320))
                         : is_back                             ? int(heads / 2 - head)
                                                               : int(head - heads / 2 + 1);
    offsets.push_back(is_back ? -distance : distance);
  }
  return offsets;
}

// At first nearly all positions are blanks, with a probability of about 0.9 among 50 phones. CTC passes through this
// state in any case, and from some random weights it does not get there in 1,000 steps.
constexpr float blank_at_start = 6;

// The output is 0, and so are the gradients.
struct NoAttention : Attention {
  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask&,
                      const AttentionContext&) const override {
    return 0 * (sum(q + k, {3}, true) + v);
  }
  double flops(const AttentionWork&) const override { return 0; }
};

}  // namespace

Model::Model(const Settings& settings, int64_t filterbanks, int64_t classes, Generator& generator)
    : input(filterbanks * (settings.stride + 2 * settings.splice), settings.model.features(), generator),
      encoder(settings.model, generator),
      output(settings.model.features(), classes, generator) {
  output.bias.mutable_value().mutable_data<float>()[0] = blank_at_start;
  if (settings.init == Settings::Start::plain) return;
  RandomStream random(generator.seed(), 0, Purpose::initialize, generator.next_parameter());
  name_in_errors(settings.init == Settings::Start::far ? "--init far" : "--init offset", [&] {
    for (MultiHeadAttention* attention : encoder.attentions())
      start_at_offsets(*attention, offsets_of(settings, attention->key == nullptr, random));
  });
}

Variable Model::operator()(const Batch& batch, int64_t first_position, const Context& context) const {
  const trace::Span span("forward", "program");
  const Variable x = positions(input(batch.input.cast(activations)), first_position);
  AttentionMask mask;
  mask.query_lengths = mask.key_lengths = batch.lengths;
  return cast(output(encoder(x, mask, context)), DType::float32);
}

Variable loss_of(const Variable& logits, const Batch& batch) {
  return mean(ctc_loss(logits, batch.targets, batch.lengths, batch.target_lengths));
}

Json as_json(const Recognition& found) {
  return {{"loss", finite_or_null(found.loss)}, {"phone_error_rate", finite_or_null(found.phone_error_rate)}};
}

std::string metrics_text(const Json& json) {
  const Json &loss = json.at("loss"), &rate = json.at("phone_error_rate");  // null if there are no phones
  return formatted("%-32s  loss %s  phone error rate %s\n", json.at("attention").get<std::string>().c_str(),
                   loss.is_null() ? "-" : formatted("%.4f", loss.get<double>()).c_str(),
                   rate.is_null() ? "-" : formatted("%.2f%%", 100 * rate.get<double>()).c_str());
}

Recognition recognize(const Model& model, const std::vector<Sentence>& sequences, const Settings& settings,
                      bool may_stop) {
  const trace::Span span("evaluate", "program");
  const NoGrad no_grad;
  Generator generator(~uint64_t(settings.compute.seed));  // draws of its own: training's stay what they are
  Recognition result;
  result.answers.resize(sequences.size());
  result.errors.resize(sequences.size());
  const auto classes = size_t(model.output.bias.size(0));
  result.confusions.assign(classes, std::vector<int64_t>(classes));
  double loss = 0, errors = 0, phones = 0;
  for (const std::vector<size_t>& members : cut_batches(sequences, settings.batch_frames)) {
    if (may_stop && interrupted()) throw Interrupted();
    std::vector<Sentence> chosen;
    for (const size_t i : members) chosen.push_back(sequences[i]);
    const Batch batch = make_batch(chosen, settings).to(model.output.bias.device());
    generator.advance();
    const Stopwatch clock;
    const Variable logits = model(batch, 0, {.generator = &generator});
    const Tensor best = argmax(logits.value().to(Device::cpu));  // waits for the model
    result.seconds += clock.seconds();
    loss += loss_of(logits, batch).value().item() * double(members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      std::vector<Spike>& answer = result.answers[members[i]];
      answer = decode(best.data<int32_t>() + int64_t(i) * batch.positions(),
                      position_count(chosen[i].frames(), settings.stride));
      for (const auto& [expected, got] : align(chosen[i].labels, labels_of(answer))) {
        ++result.confusions[size_t(expected)][size_t(got)];
        result.errors[members[i]] += expected != got;
      }
      errors += double(result.errors[members[i]]);
      phones += double(chosen[i].labels.size());
    }
  }
  result.loss = loss / phones;
  result.phone_error_rate = errors / phones;
  return result;
}

void add_no_attention() {
  static const AttentionVariant none{no_attention, "no attention: the output is 0",
                                     [](SpecReader&) { return std::unique_ptr<Attention>(new NoAttention); }};
  add_attention_variant(none);
}

}  // namespace cairn::speech

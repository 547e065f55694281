#include "apps/answers/model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/variants.h"
#include "autograd/ops.h"
#include "core/ops.h"
#include "core/trace.h"
#include "nn/attention/observe.h"
#include "nn/io/bert_folder.h"
#include "nn/io/json.h"

namespace cairn::answers {

// The output learns at ten times the rate of the pretrained weights: Adam's steps do not depend on the size of the
// gradients, and logits are ten times the output of a linear layer that begins with a tenth of the usual weights.
static constexpr double output_scale = 10;

void Settings::fields(SettingFields& f) {
  f("data", data, Text::file, "the questions, written by apps/answers/debian_questions.py", Keep::may_change);
  f("model", model, Text::folder, "folder of a published BERT model");
  f("attention", attention, one_variant, "attention variant (listed below)");
  f("max-tokens", max_tokens, {8, 1 << 20},
    "tokens of a question with its passage, which is cut; at most the model's limit");
  f("answer-tokens", answer_tokens, {1, 1 << 20}, "tokens of the longest answer that is looked for");
  f("batch", batch, {1, 4096}, "questions of a training step");
  f("picture", picture, {0, 1 << 20}, "question of dev whose attention the report shows (the paper's figure 8)",
    Keep::may_change);
  training.fields(f);
  compute.fields(f);
}

Batch::Batch(const std::vector<const Question*>& questions, Device device) {
  const trace::Span span("data", "program");
  const auto n = int64_t(questions.size());
  int64_t positions = 0;
  for (const Question* each : questions) positions = std::max(positions, int64_t(each->tokens.size()));
  tokens = Tensor::zeros({n, positions}, DType::int32);
  lengths = Tensor({n}, DType::int32);
  outside = Tensor::full({n, 1, positions}, -1e9);
  answers = Tensor({n, 2}, DType::int32);
  for (int64_t i = 0; i < n; ++i) {
    const Question& each = *questions[size_t(i)];
    std::copy(each.tokens.begin(), each.tokens.end(), tokens.mutable_data<int32_t>() + i * positions);
    lengths.mutable_data<int32_t>()[i] = int32_t(each.tokens.size());
    float* const row = outside.mutable_data<float>() + i * positions;
    std::fill(row + each.entries.front(), row + each.entries.back(), 0.0F);
    answers.mutable_data<int32_t>()[2 * i] = int32_t(each.begin);
    answers.mutable_data<int32_t>()[2 * i + 1] = int32_t(each.end) - 1;
  }
  for (Tensor* each : {&tokens, &lengths, &outside, &answers}) *each = each->to(device);
}

Model::Model(const Settings& settings, Generator& generator)
    : tokenizer(text_search::read_wordpiece(settings.model)),
      bert(read_bert(settings.model)),
      output(bert->options.features(), 2, generator),
      max_tokens(std::min(settings.max_tokens, bert->options.positions)) {
  check<DataError>(tokenizer.size() <= bert->options.vocabulary, "--model ", settings.model, ": vocab.txt has ",
                   tokenizer.size(), " tokens, but the model has embeddings for ", bert->options.vocabulary);
  for (Variable& each : parameters(output)) each.mutable_value() = affine(each.detach(), 1 / output_scale).value();
  name_in_errors("--attention", [&] { bert->encoder.swap_attention(settings.attention); });
}

Variable Model::operator()(const Batch& batch, const Context& context) const {
  const trace::Span span("forward", "program");
  const Variable logits = output((*bert)(batch.tokens, batch.lengths, context));
  return output_scale * permute(cast(logits, DType::float32), {0, 2, 1}) + Variable(batch.outside);
}

Variable loss_of(const Variable& logits, const Batch& batch) { return cross_entropy(logits, batch.answers); }

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

Score score(const Question& question, const float* begins, const float* ends, int64_t answer_tokens) {
  const int64_t passage_end = question.entries.back();
  int64_t begin = question.entries.front(), last = begin;
  for (int64_t i = begin; i < passage_end; ++i)
    for (int64_t j = i; j < std::min(i + answer_tokens, passage_end); ++j)
      if (begins[i] + ends[j] > begins[begin] + ends[last]) begin = i, last = j;
  const int64_t end = last + 1;
  const int64_t both = std::max<int64_t>(0, std::min(end, question.end) - std::max(begin, question.begin));
  return {double(begin == question.begin && end == question.end),
          double(2 * both) / double(end - begin + question.end - question.begin),
          double(begin >= question.entries[question.right] && begin < question.entries[question.right + 1])};
}

Answers answer(const Model& model, const std::vector<Question>& questions, int64_t answer_tokens, int64_t batch_size,
               int64_t seed, bool may_stop) {
  const trace::Span span("evaluate", "program");
  const NoGrad no_grad;
  Generator generator{~uint64_t(seed)};  // draws of its own: training's stay what they are
  Answers result;
  for (size_t first = 0; first < questions.size(); first += size_t(batch_size)) {
    if (may_stop && interrupted()) throw Interrupted();
    std::vector<const Question*> members;
    for (size_t i = first; i < std::min(questions.size(), first + size_t(batch_size)); ++i)
      members.push_back(&questions[i]);
    const Batch batch(members, model.output.bias.device());
    generator.advance();
    const Stopwatch clock;
    const Variable logits = model(batch, {.generator = &generator});
    const Tensor on_host = logits.value().to(Device::cpu);  // waits for the model
    result.seconds += clock.seconds() / double(questions.size());
    result.loss += loss_of(logits, batch).value().item() * double(members.size()) / double(questions.size());
    const auto* begins = on_host.data<float>();
    for (const Question* each : members) {
      const float* const ends = begins + on_host.size(2);
      const Score found = score(*each, begins, ends, answer_tokens);
      result.exact.push_back(found.exact);
      result.f1.push_back(found.f1);
      result.entry.push_back(found.entry);
      begins = ends + on_host.size(2);
    }
  }
  return result;
}

double same_most_attended(const Model& model, const std::vector<Question>& questions, int64_t seed) {
  const NoGrad no_grad;
  Generator generator{~uint64_t(seed)};
  int64_t same = 0, all = 0;
  for (const Question& question : questions) {
    const Batch batch({&question}, model.output.bias.device());
    generator.advance();
    const int64_t n = batch.tokens.size(1), end = question.entries[0] - 1;  // the question: [CLS] tokens [SEP]
    for (const Observation& seen :
         observe(model.bert->encoder.attentions(), [&] { model(batch, {.generator = &generator}); })) {
      const auto of = argmax(seen.weights).to_vector<int32_t>(), of_full = argmax(seen.full).to_vector<int32_t>();
      for (size_t row = 0; row < of.size(); row += size_t(n))
        for (int64_t i = 1; i < end; ++i, ++all) same += of[row + size_t(i)] == of_full[row + size_t(i)];
    }
  }
  return double(same) / double(all);
}

Json as_json(const Answers& answers) {
  return {{"loss", finite_or_null(answers.loss)},
          {"exact_match", mean(answers.exact)},
          {"f1", mean(answers.f1)},
          {"right_entry", mean(answers.entry)}};
}

}  // namespace cairn::answers

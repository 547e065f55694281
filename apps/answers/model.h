#pragma once
// A pretrained BERT with a linear layer: where in a passage does the answer begin, and where does it end?
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/answers/questions.h"
#include "apps/common/training_options.h"
#include "nn/bert.h"

namespace cairn::answers {

// The settings of a run.
struct Settings {
  std::string data, model;  // the file of the questions; the folder of the pretrained model
  std::string attention = "full";
  int64_t max_tokens = 384, answer_tokens = 32, batch = 8, picture = 0;
  TrainingOptions training{.iterations = 2000,
                           .learning_rate = 2e-4,
                           .optimizer = TrainingOptions::Algorithm::adam,
                           .schedule = TrainingOptions::Rate::linear,
                           .warm_up = 200,
                           .clip = 1,
                           .weight_decay = 0.01,
                           .beta2 = 0.98,
                           .evaluate_every = 500};
  ComputeSettings compute;

  void fields(SettingFields& f);
};

struct Batch {
  Tensor tokens, lengths;  // int32 [questions, positions], [questions]
  Tensor outside;          // float32 [questions, 1, positions]: 0 in the passage, else a large negative number
  Tensor answers;          // int32 [questions, 2]: the first and the last token of the answer

  Batch(const std::vector<const Question*>& questions, Device device);
};

struct Model : Module {
  text_search::WordPiece tokenizer;
  std::unique_ptr<Bert> bert;
  Linear output;
  int64_t max_tokens;  // of a question with its passage

  // The pretrained weights and a random output. Errors: as read_wordpiece, read_bert and Encoder::swap_attention.
  Model(const Settings& settings, Generator& generator);
  void fields(Fields& f) override {
    f("bert", *bert);
    f("output", output);
  }
  // float32 logits [questions, 2, positions] that a token is the first, and the last, of the answer.
  Variable operator()(const Batch& batch, const Context& context) const;
};

// The mean cross entropy of first and last tokens, over the positions of the passage.
Variable loss_of(const Variable& logits, const Batch& batch);

// How right the likeliest answer is, from 0 to 1.
struct Score {
  double exact, f1, entry;  // as in Answers
};
// The likeliest answer has the largest sum of its first token's logit and its last one's, in the passage, and at most
// `answer_tokens` tokens. `begins` and `ends` have a logit for each token.
Score score(const Question& question, const float* begins, const float* ends, int64_t answer_tokens);

// What a model answers: a number from 0 to 1 for each question.
struct Answers {
  std::vector<double> exact;     // is the answer the right one?
  std::vector<double> f1;        // of the positions of the answer and the right one
  std::vector<double> entry;     // does the answer begin in the right entry?
  double loss = 0, seconds = 0;  // of a question: in nats; of the model alone
};
// The model's likeliest answers. The seed draws the random numbers of the attention. Throws Interrupted if the user has
// asked to stop and `may_stop`.
Answers answer(const Model& model, const std::vector<Question>& questions, int64_t answer_tokens, int64_t batch,
               int64_t seed, bool may_stop);
// Of the questions' own tokens, in all layers and heads: how many give their largest weight to the token that full
// attention would, with the same queries and keys (the paper's appendix C.4). From 0 to 1.
double same_most_attended(const Model& model, const std::vector<Question>& questions, int64_t seed);
double mean(const std::vector<double>& values);
// The means: loss, exact_match, f1, right_entry.
Json as_json(const Answers& answers);

}  // namespace cairn::answers

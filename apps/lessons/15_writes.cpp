// Lesson 15: a model that writes, character by character (apps/lessons/15_writes.md). The check is at the end of this
// file.
#include <cairn/cairn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace cairn;

// int32 [count, length]: characters, and for each the one that comes after it.
struct Batch {
  Tensor input, target;
};

// Windows of the text, from places by chance. Each window that is in the text, with the character after it, is as
// likely.
Batch windows(const std::string& text, int64_t count, int64_t length, RandomStream& random) {
  // [lesson 15
  std::vector<int> input, target;
  for (int64_t i = 0; i < count; ++i) {
    const size_t begin = random.below(uint32_t(text.size() - size_t(length)));
    for (size_t at = begin; at < begin + size_t(length); ++at) {
      input.push_back(uint8_t(text[at]));
      target.push_back(uint8_t(text[at + 1]));
    }
  }
  return {Tensor::from(input, {count, length}), Tensor::from(target, {count, length})};
  // lesson 15]
}

struct Writer : Module {
  Embedding embedding;
  SinusoidalPositions add_positions;
  Encoder encoder;
  Linear output;

  Writer(const TransformerOptions& options, Generator& generator)
      : embedding(256, options.features(), generator),
        encoder(options, generator),
        output(options.features(), 256, generator) {}
  void fields(Fields& f) override {
    f("embedding", embedding);
    f("encoder", encoder);
    f("output", output);
  }

  // int32 [B, N] -> [B, N, 256]: at each position a score for each character that may come next.
  Variable operator()(const Tensor& input, const Context& context) const {
    // [lesson 15
    AttentionMask mask;
    mask.causal = true;
    return output(encoder(add_positions(embedding(input)), mask, context));
    // lesson 15]
  }
};

// One step of training, which leaves its gradients. Returns the batch's mean loss before it, in nats a character.
double learn(Writer& model, const Batch& batch, const Context& context, Optimizer& optimizer) {
  // [lesson 15
  const Variable loss = cross_entropy(model(batch.input, context), batch.target);
  optimizer.clear_gradients();
  backward(loss);
  optimizer.step();
  return loss.value().item();
  // lesson 15]
}

// Character i has the share e^(scores[i] / temperature) of the interval [0, 1), one after another. Returns the one in
// whose share `uniform` lies; at temperature 0 the one with the largest score.
size_t drawn(const std::vector<float>& scores, double temperature, double uniform) {
  // [lesson 15
  const float largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> shares;
  double sum = 0;
  for (const float score : scores) {
    const double below = double(score) - double(largest);
    sum += shares.emplace_back(temperature > 0 ? std::exp(below / temperature) : below == 0);
  }
  size_t i = 0;
  for (double left = uniform * sum; i + 1 < scores.size() && left >= shares[i]; ++i) left -= shares[i];
  return i;
  // lesson 15]
}

// The prompt, and `count` characters more, of which each is drawn by what the last `length` characters say.
std::string written(const Writer& model, std::string text, int64_t count, int64_t length, double temperature,
                    RandomStream& random) {
  const NoGrad no_grad;
  const Generator generator;
  while (count-- > 0) {
    // [lesson 15
    const std::string last = text.substr(text.size() - std::min(text.size(), size_t(length)));
    std::vector<int> bytes;
    for (const char c : last) bytes.push_back(uint8_t(c));
    const Tensor input = Tensor::from(bytes, {1, int64_t(bytes.size())});
    const Tensor scores = model(input, {.generator = &generator});
    const std::vector<float> of_next =
        scores.reshape({-1, 256}).slice(input.elements() - 1, input.elements()).to_vector<float>();
    text += char(drawn(of_next, temperature, random.uniform()));
    // lesson 15]
  }
  return text;
}

// ---- training

struct Training {
  int64_t count, length;
  double rate;

  // Until enough steps are done, or so much time has gone by; returns the mean loss of the last 50 steps.
  double run(Writer& model, Generator& generator, const std::string& text, int64_t steps, double seconds) const {
    Adam optimizer(parameters(model), rate, {.beta2 = 0.99});
    optimizer.set_max_gradient_norm(1);
    RandomStream random(1, 0, Purpose::data);
    const auto start = std::chrono::steady_clock::now();
    double done = 0, mean = 0;  // the part that is done
    for (int64_t step = 0; done < 1; ++step) {
      generator.set_step(uint64_t(step));
      optimizer.set_learning_rate(rate * std::min({1.0, double(step + 1) / 50, 1.02 - done}));
      const double loss = learn(model, windows(text, count, length, random), {true, &generator}, optimizer);
      mean += (loss - mean) / double(std::min<int64_t>(step + 1, 50));
      const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - start;
      if (seconds > 0 && step % 100 == 99)
        std::printf("step %4d, %4.0f s, loss %.2f\n", int(step + 1), gone.count(), mean);
      done = seconds > 0 ? gone.count() / seconds : double(step + 1) / double(steps);
    }
    return mean;
  }
};

TransformerOptions options_for(int64_t layers, int64_t head_size) {
  return {.layers = layers,
          .heads = 4,
          .head_size = head_size,
          .feed_forward = 8 * head_size,
          .attention = "full",
          .norm = Norm::pre,
          .final_norm = true};
}

#include "tests/lessons/15_writes.h"  // the check

// Without arguments, the check. With SECONDS FILE..., it learns these files for so long, and writes.
int main(int argc, char** argv) try {
  if (argc == 1) {
    for (const auto part : {check_windows, check_model, check_learning, check_drawing, check_writing, check_training})
      part();
    return 0;
  }
  std::string text;
  for (int i = 2; i < argc; ++i) text += read_file(argv[i]);
  const auto blanks = [](char a, char b) { return a == ' ' && b == ' '; };  // tables and pictures have many
  text.erase(std::unique(text.begin(), text.end(), blanks), text.end());
  const Training training{8, 64, 5e-3};
  check(text.size() > 1000, "expected SECONDS FILE..., with at least 1000 characters in the files");
  Generator generator(1);
  Writer model(options_for(2, 16), generator);
  training.run(model, generator, text, 0, std::atof(argv[1]));
  RandomStream random(1, 0, Purpose::data);
  for (const double temperature : {0.4, 0.7, 1.0})
    std::printf("\n---- temperature %.1f\n%s\n", temperature,
                written(model, "The ", 400, training.length, temperature, random).c_str());
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 1;
}

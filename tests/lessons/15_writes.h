#pragma once
// The check of lesson 15, which apps/lessons/15_writes.cpp includes at its end.
#include <set>

const std::vector<std::vector<std::string>> words = {
    {"the ", "a ", "one ", "every "},      {"old ", "red ", "quick ", "small "},
    {"fox ", "bird ", "child ", "stone "}, {"sees ", "hears ", "follows ", "forgets "},
    {"the ", "a ", "no ", "this "},        {"river. ", "song. ", "moon. ", "door. "}};

void check_windows() {
  std::string text;
  for (int c = 100; c < 200; ++c) text += char(c);
  RandomStream random(1, 0, Purpose::data);
  std::set<int> begins;
  const int64_t last = int64_t(text.size()) - 9;  // the last window with a character after it
  const Batch batch = windows(text, 2000, 8, random);
  check(batch.input.shape() == Shape{2000, 8} && batch.target.shape() == Shape{2000, 8}, "windows: the shapes are ",
        batch.input.shape(), " and ", batch.target.shape(), ", expected [2000, 8]");
  const std::vector<int> input = batch.input.to_vector<int>(), target = batch.target.to_vector<int>();
  for (size_t i = 0; i < input.size(); ++i) {
    check(i % 8 == 0 || input[i] == input[i - 1] + 1, "windows: characters of a window do not follow each other");
    check(input[i] < 199, "windows: of 2000 windows, one ends where the text ends: no character comes after it");
    check(target[i] == input[i] + 1, "windows: after character ", input[i], " comes ", input[i] + 1,
          " in the text, and the target is ", target[i]);
    if (i % 8 == 0) begins.insert(input[i] - 100);
  }
  check(int64_t(begins.size()) == last + 1, "windows: of 2000 windows, the first begins at ", *begins.begin(),
        " and the last at ", *begins.rbegin(), ", in ", begins.size(), " places; expected all of 0 to ", last);
}

void check_model() {
  Generator generator(1);
  const Writer model(options_for(2, 4), generator);
  const auto scores = [&](const std::string& text) {
    return model(Tensor::from(std::vector<int>(text.begin(), text.end()), {1, int64_t(text.size())}),
                 {.generator = &generator})
        .value();
  };
  const auto differ = [](const Tensor& x, const Tensor& y, int64_t i, int64_t j) {
    const float *a = x.data<float>() + 256 * i, *b = y.data<float>() + 256 * j;
    return !std::equal(a, a + 256, b, [](float u, float v) { return std::abs(u - v) < 1e-4; });
  };
  const Tensor a = scores("abcdefgh"), b = scores("abcdeXgh"), same = scores("aaaaaaaa");
  check(a.shape() == Shape{1, 8, 256}, "model: the shape is ", a.shape(), ", expected [1, 8, 256]");
  for (int64_t i = 0; i < 5; ++i)
    check(!differ(a, b, i, i), "model: position ", i, " sees character 5, which comes later");
  for (int64_t i = 5; i < 8; ++i) check(differ(a, b, i, i), "model: position ", i, " does not see character 5");
  check(differ(same, same, 3, 7), "model: in \"aaaaaaaa\", positions 3 and 7 have the same scores");
}

void check_learning() {
  Generator generator(1);
  Writer model(options_for(1, 4), generator);
  Adam optimizer(parameters(model), 0);
  RandomStream random(2, 0, Purpose::data);
  const Batch batch = windows("a text that is long enough for some windows", 3, 8, random);
  const Context context{true, &generator};
  const Variable expected = cross_entropy(model(batch.input, context), batch.target);
  backward(expected);
  const std::vector<float> gradient = model.output.bias.grad().to_vector<float>();
  optimizer.clear_gradients();
  const double loss = learn(model, batch, context, optimizer);
  check(std::abs(loss - expected.value().item()) < 1e-4, "learn: the loss is ", loss, ", expected ",
        expected.value().item());
  check(model.output.bias.grad().defined(), "learn: after the step, the weights have no gradient");
  const std::vector<float> once = model.output.bias.grad().to_vector<float>();
  for (size_t c = 0; c < 256; ++c)
    check(std::abs(once[c] - gradient[c]) < 1e-5, "learn: bias ", c, " has the gradient ", once[c], ", expected ",
          gradient[c]);
  learn(model, batch, context, optimizer);
  check(model.output.bias.grad().to_vector<float>() == once,
        "learn: a second step with the same batch has another gradient");
  const std::vector<float> before = model.output.weight.value().to_vector<float>();
  optimizer.set_learning_rate(0.1);
  const double moved = learn(model, batch, context, optimizer);
  check(std::abs(moved - loss) < 1e-4, "learn: the loss is ", moved, ", expected that before the step, ", loss);
  check(model.output.weight.value().to_vector<float>() != before, "learn: no weight has changed");
}

void check_drawing() {
  const std::vector<float> scores = {1000, 1001.5f, 998, 1001};
  for (const double temperature : {1.0, 0.5, 2.0, 0.0}) {
    double shares[4] = {}, sum = 0;
    for (size_t i = 0; i < 4; ++i)
      sum += shares[i] = temperature > 0 ? std::exp((scores[i] - 1001.5) / temperature) : i == 1;
    int counts[4] = {};
    for (int i = 0; i < 1000; ++i) {
      const size_t character = drawn(scores, temperature, (i + 0.5) / 1000);
      check(character < 4, "drawn: character ", character, " of 4");
      ++counts[character];
    }
    for (size_t i = 0; i < 4; ++i)
      check(std::abs(counts[i] - 1000 * shares[i] / sum) <= 1.5, "drawn: at temperature ", temperature, ", character ",
            i, " came ", counts[i], " times of 1000, expected ", std::lround(1000 * shares[i] / sum));
  }
}

// A model without training gives nearly equal scores, so a little change of them brings other characters.
void check_writing() {
  Generator generator(1);
  const Writer model(options_for(1, 4), generator);
  for (const double temperature : {0.0, 0.7}) {
    RandomStream stream(4, 0, Purpose::data), same(4, 0, Purpose::data), other(5, 0, Purpose::data);
    const std::string prompt = "the \xc3\xa9t\xc3\xa9", text = written(model, prompt, 40, 12, temperature, stream);
    check(text.size() == prompt.size() + 40 && text.substr(0, prompt.size()) == prompt,
          "written: expected the prompt and 40 characters more");
    check(temperature == 0 || written(model, prompt, 40, 12, temperature, other) != text,
          "written: the same text with other random numbers");
    for (size_t at = prompt.size(); at < text.size(); ++at) {
      std::vector<int> last;
      for (size_t i = at - std::min<size_t>(at, 12); i < at; ++i) last.push_back(uint8_t(text[i]));
      const Variable of_all = model(Tensor::from(last, {1, int64_t(last.size())}), {.generator = &generator});
      const std::vector<float> scores = of_all.value().to_vector<float>();
      const size_t expected = drawn({scores.end() - 256, scores.end()}, temperature, same.uniform());
      check(uint8_t(text[at]) == expected, "written: at temperature ", temperature, ", length 12, character ", at,
            " has the byte ", int(uint8_t(text[at])), ", expected ", expected);
    }
  }
}

void check_training() {
  std::string text;
  RandomStream random(3, 0, Purpose::data);
  for (int sentence = 0; sentence < 2000; ++sentence)
    for (const auto& choices : words) text += choices[random.below(4)];
  Generator generator(1);
  Writer model(options_for(2, 8), generator);
  const double loss = Training{16, 32, 1e-2}.run(model, generator, text, 250, 0);
  check(loss < 0.7, "learn: after 250 steps the loss is ", loss, ", expected less than 0.7");
  std::printf("your model, after 250 steps: %s\n", written(model, "the ", 200, 32, 0.7, random).c_str());
}

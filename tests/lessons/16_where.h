#pragma once
// The check of lesson 16, which apps/lessons/16_where.cpp includes at its end.
std::string said;  // is printed if nothing is wrong
std::string largest_three(const std::vector<trace::Event>& events) {
  std::vector<std::pair<int64_t, std::string>> spans;
  for (const auto& [name, time] : own_times(events)) spans.push_back({time, name});
  std::sort(spans.rbegin(), spans.rend());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(3, spans.size()); ++i)
    text += concat(i ? ", " : "", spans[i].second, ' ', double(spans[i].first / 10'000) / 100, " ms");
  return text;
}

struct Measured {
  std::string spans;
  size_t kernels = 0;
  double megabytes = 0;  // the peak, above what there was
};
Measured measured(const std::function<void()>& work) {
  const int64_t before = memory(Device::cpu).live;
  reset_peak_memory(Device::cpu);
  trace::start();
  work();
  const std::vector<trace::Event> events = trace::stop().events;
  return {largest_three(events), events.size(), double(memory(Device::cpu).peak - before) / 1e6};
}

Batch some_words(int64_t sequences, int64_t length, uint32_t words) {
  RandomStream random(1, 0, Purpose::data);
  std::vector<int> drawn, classes;
  for (int64_t i = 0; i < sequences * length; ++i) {
    drawn.push_back(int(random.below(words)));
    classes.push_back(drawn.back() % 8);
  }
  return {Tensor::from(drawn, {sequences, length}), Tensor::from(classes, {sequences, length})};
}

// Error: the numbers are not the expected ones. `what` begins the message.
void compare_numbers(const std::string& what, const Tensor& found, const Tensor& expected, double tolerance = 1e-5) {
  check(found.defined(), what, " is missing");
  check(found.shape() == expected.shape(), what, " has the shape ", found.shape(), ", expected ", expected.shape());
  for (int64_t i = 0; i < found.elements(); ++i) {
    const float is = found.data<float>()[i], should = expected.data<float>()[i];
    check(std::abs(is - should) <= tolerance * (1 + std::abs(should)), what, " is ", is, ", expected ", should,
          ", at place ", i);
  }
}

void check_own_times() {
  const std::map<std::string, int64_t> expected = {
      {"backward", 20}, {"exp", 25}, {"forward", 15}, {"softmax", 45}, {"step", 20}};
  std::map<std::string, int64_t> own = own_times({{"step", "", "", 0, 100, 0},
                                                  {"forward", "", "", 10, 40, 0},
                                                  {"exp", "", "", 15, 25, 1},
                                                  {"softmax", "", "", 20, 10, 0},
                                                  {"softmax", "", "", 30, 15, 0},
                                                  {"backward", "", "", 50, 40, 0},
                                                  {"softmax", "", "", 60, 20, 0}});
  for (const auto& [name, time] : expected)
    check(own[name] == time, "own_times: in the page's picture, ", name, " has ", own[name], ", expected ", time);
}

void check_embedded() {
  Generator generator(1);
  const Model model(4096, generator);
  const Batch batch = some_words(8, 128, 4096);
  const Variable one(model.table.value(), true), other(model.table.value(), true);
  const Variable expected = matmul(one_hot(batch.words, 4096), one);
  compare_numbers("embedded: a number", embedded(other, batch.words), expected);
  check(embedded(other, batch.words).requires_grad(), "embedded: the table gets no gradient");
  backward(sum(square(expected)));
  const Measured step = measured([&] {
    backward(cross_entropy(model(batch.words, {true, &generator}), batch.classes));
  });
  const Measured alone = measured([&] { backward(sum(square(embedded(other, batch.words)))); });
  compare_numbers("embedded: the gradient of the table", other.grad(), one.grad(), 1e-4);
  check(alone.megabytes < 4, "embedded: ", alone.megabytes,
        " MB to read 1024 rows, expected less than 4; in a step: ", step.spans);
  check(alone.kernels < 50, "embedded: ", alone.kernels, " spans to read 1024 rows, expected a few");
  said += concat("the largest spans of a step: ", step.spans, '\n');
}

void check_recomputed() {
  Generator generator(1);
  Model model(256, generator);
  const Batch batch = some_words(8, 128, 256);
  const auto step = [&] { backward(cross_entropy(model(batch.words, {true, &generator}), batch.classes)); };
  const Measured kept = measured(step);
  std::vector<Tensor> expected;
  for (Variable& weight : parameters(model)) expected.push_back(std::exchange(weight.mutable_grad(), {}));
  model.recomputes = true;
  const Measured again = measured(step);
  const NamedVariables named = named_parameters(model);
  for (size_t i = 0; i < named.size(); ++i)
    compare_numbers("recomputed: the gradient of " + named[i].first, named[i].second.grad(), expected[i]);
  check(again.megabytes < kept.megabytes / 2, "recomputed: the peak is ", again.megabytes, " MB, and ", kept.megabytes,
        " without it; expected at most half");
  said += concat("the peak of a step: ", kept.megabytes, " MB; with layers recomputed: ", again.megabytes, " MB\n");
  const Variable x(Tensor::full({2}, 3), true), y = x * 1;
  const Variable loss = sum(recomputed([](const Variable& z) { return square(z); }, y));
  Tensor(y).mutable_data<float>()[0] = 4;
  try {
    backward(loss);
  } catch (const Error&) {
    return;
  }
  throw Error("recomputed: x changed after the forward pass, and the gradient is that of another x");
}

// The loss after 300 steps with weights that are rounded where they are used; and with updates that are rounded, too.
double last_loss(bool rounds_updates) {
  const Batch batch = some_words(1, 64, 64);
  Generator generator(1);
  Model model(64, generator);
  Adam optimizer(parameters(model), 1e-4);
  double loss = 0;
  for (int step = 0; step < 300; ++step) {
    loss = learn(model, batch, {}, optimizer);
    for (Variable weight : parameters(model))
      if (rounds_updates) weight.mutable_value().copy_from(rounded(weight));
  }
  return loss;
}

void check_learn() {
  const Batch batch = some_words(1, 64, 64);
  Generator generator(1), same(1);
  Model model(64, generator), other(64, same);
  for (Variable weight : parameters(other)) weight.mutable_value().copy_from(rounded(weight));
  const Variable expected = cross_entropy(other(batch.words, {}), batch.classes);
  backward(expected);
  Sgd optimizer(parameters(model), 0);
  learn(model, batch, {}, optimizer);  // a first step that changes nothing
  optimizer.set_learning_rate(0.01);
  const double loss = learn(model, batch, {}, optimizer), of_rounded = expected.value().item();
  check(std::abs(loss - of_rounded) < 1e-6, "learn: the loss is ", loss, ", expected that of rounded weights, ",
        of_rounded);
  Generator at_first(1);
  Model before(64, at_first);
  const NamedVariables named = named_parameters(model);
  for (size_t i = 0; i < named.size(); ++i) {
    const auto& [name, weight] = named[i];
    const Tensor gradient = parameters(other)[i].grad();
    compare_numbers("learn: the gradient of " + name, weight.grad(), gradient);
    compare_numbers("learn: after a step, " + name, weight, parameters(before)[i] - 0.01 * Variable(gradient), 1e-6);
  }
  said += concat("the loss after 300 steps in bfloat16: ", last_loss(false),
                 "; with updates in bfloat16, too: ", last_loss(true), '\n');
}

// Without arguments, the check. With a file that --trace wrote, its largest spans.
int main(int argc, char** argv) try {
  set_threads(1);
  std::set<std::string> names;
  std::vector<trace::Event> events;
  if (argc > 1)
    for (const auto& event : nlohmann::ordered_json(read_json(argv[1]).at("traceEvents"))) {
      const auto time = [&](const char* key) { return std::llround(1000 * event.at(key).get<double>()); };
      const std::string& name = *names.insert(event.at("name")).first;
      events.push_back({name.c_str(), "", "", time("ts"), time("dur"), event.at("tid")});
    }
  if (argc > 1) return std::printf("%s\n", largest_three(events).c_str()) < 0;
  for (const auto part : {check_own_times, check_embedded, check_recomputed, check_learn}) part();
  std::printf("%s", said.c_str());
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 1;
}

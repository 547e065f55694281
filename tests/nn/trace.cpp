#include "core/trace.h"

#include "nn/optim/sgd.h"
#include "nn/transformer.h"
#include "tests/ops/ops_test.h"

TEST_CASE("layers, attention, feed forward and the optimizer's step are spans", "[nn][trace]") {
  Generator generator(1);
  TransformerOptions options;
  options.layers = 2, options.heads = 2, options.head_size = 3, options.feed_forward = 5;
  options.attention = "i-clustered-2:topk=2";
  Encoder encoder(options, generator);
  Sgd optimizer(parameters(encoder), 0.1);
  const Variable x(random_tensor({1, 5, 6}, DType::float32));

  trace::start();
  const Variable loss = sum(encoder(x, {}, {.training = true, .generator = &generator}));
  backward(loss);
  optimizer.step();
  std::vector<std::string> modules;
  for (const trace::Event& event : trace::stop().events)
    if (event.category == std::string("module"))
      modules.push_back(concat(event.name, event.detail.empty() ? "" : " ", event.detail));
  const std::string attention = "attention i-clustered-2:topk=2";
  CHECK(modules == std::vector<std::string>{"encoder layer 0", attention, "feed forward", "encoder layer 1", attention,
                                            "feed forward", "optimizer step"});
}

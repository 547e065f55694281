#include <cstdio>

#include "nn/optim/r_adam.h"
#include "nn/transformer.h"
using namespace cairn;

int main() {
  Generator generator(1);
  TransformerOptions options;
  options.layers = 1, options.heads = 2, options.head_size = 8, options.feed_forward = 32;
  options.attention = "i-clustered-3:topk=4";
  Encoder encoder(options, generator);
  Linear output(options.features(), 1, generator);
  RAdam optimizer(parameters({&encoder, &output}), 1e-2);
  Sequence random(1, 0, Purpose::data);
  const Variable input(random_normal({4, 12, options.features()}, random));
  for (; generator.step() < 20; generator.advance()) {
    const Variable loss = mean(square(output(encoder(input, {}, {true, &generator})) - 0.5));
    optimizer.clear_gradients(), backward(loss), optimizer.step();
    if (generator.step() % 19 == 0) std::printf("loss %.4f\n", loss.value().item());
  }
}

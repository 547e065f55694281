#include <nlohmann/json.hpp>

#include "nn/io/checkpoint.h"
#include "nn/layers.h"
#include "nn/optim/r_adam.h"
#include "tests/io/io_test.h"

using namespace cairn;

TEST_CASE("what is saved from a device is restored on either", "[gpu]") {
  const TemporaryFolder run;
  Generator generator(1);
  Linear model(3, 2, generator);
  const auto weight = model.weight.value().to_vector<float>(), bias = model.bias.value().to_vector<float>();
  move_to(model, Device::cuda);
  const RAdam optimizer(parameters(model), 0.25);
  optimizer.moments()[0].tensor.copy_from(Tensor::full(model.weight.shape(), 3));
  save_checkpoint(run.path(), model, optimizer, nlohmann::ordered_json::object());

  for (Device device : {Device::cpu, Device::cuda}) {
    Linear back(3, 2, generator);
    move_to(back, device);
    RAdam back_optimizer(parameters(back), 1);
    restore(*find_checkpoint(run.path()), back, &back_optimizer);
    CHECK(back.weight.device() == device);
    CHECK(back.weight.value().to_vector<float>() == weight);
    CHECK(back.bias.value().to_vector<float>() == bias);
    CHECK(back_optimizer.moments()[0].tensor.to_vector<float>() == std::vector<float>(6, 3));
    CHECK(back_optimizer.state().learning_rate == 0.25);
  }
}

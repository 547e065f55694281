// Time on the device, of a whole computation and of each operation.
#include "core/timing.h"

#include <nlohmann/json.hpp>
#include <string>

#include "autograd/ops.h"
#include "core/trace.h"
#include "nn/io/file.h"
#include "nn/io/json.h"
#include "tests/apps/process.h"
#include "tests/catch.h"
#include "tests/io/io_test.h"

using namespace cairn;

TEST_CASE("each operation is timed by its name and waited for", "[gpu]") {
  const Tensor x = Tensor::full({30, 40}, 1, DType::float32, Device::cuda);
  Variable y;
  const auto seconds = operation_seconds(Device::cuda, [&] { y = matmul(softmax(softmax(x)), x.reshape({40, 30})); });
  REQUIRE(seconds.size() == 2);
  CHECK(seconds.at("softmax") > 0);
  CHECK(seconds.at("matmul") > 0);
  CHECK(y.value().to_vector<float>().size() == 900);

  // An error also ends the recording.
  CHECK_THROWS_AS(operation_seconds(Device::cuda, [&] { throw UsageError("no"); }), UsageError);
  CHECK(!trace::recording());
  CHECK(operation_seconds(Device::cuda, [] {}).empty());
}

TEST_CASE("work is timed on its device", "[gpu]") {
  const Tensor x = Tensor::full({1000}, 1, DType::float32, Device::cuda);
  Tensor y;
  CHECK(seconds_of(Device::cuda, [&] { y = affine(x, 2).value(); }) >= 0);
  CHECK(y.to_vector<float>() == std::vector<float>(1000, 2));
}

static const std::string small = "--device cuda --json --quiet --heads 2 --head-size 8 --repeat 2 --seconds 0 ";

TEST_CASE("attention-bench measures on CUDA", "[gpu][program]") {
  for (const std::string what : {"attention", "layer", "cluster"}) {
    const auto run =
        run_process("attention-bench", "run --length 40 --batch 2 --attention i-clustered-4:topk=3 --what " + what +
                                           " --precision bf16 " + small);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const Json json = Json::parse(last_line(run.out));
    CHECK(json.at("median_seconds").get<double>() > 0);
    CHECK(json.at("peak_bytes").get<int64_t>() > 0);
    CHECK(json.at("repetitions") == 2);
    CHECK(json.at("stages").size() >= (what == "cluster" ? 1 : 2));
    double stages = 0;
    for (const auto& [name, seconds] : json.at("stages").items()) stages += seconds.get<double>();
    CHECK(stages > 0);
  }
}

#if CAIRN_CUDA_HOST  // the environment sets the size of its memory
TEST_CASE("attention-bench tries what fits with the batch that fits", "[gpu][program]") {
  const TemporaryFolder folder;
  const auto figure =
      run_process("attention-bench",
                  "figure --lengths 16,32 --batch max --what layer --feed-forward 16 --attention full,clustered-4 " +
                      small + "--out " + folder.path().string(),
                  "CAIRN_HOST_CUDA_MEMORY=1500000 ");
  INFO(figure.err);
  REQUIRE(figure.exit_code == 0);
  const Json json = Json::parse(last_line(figure.out));
  REQUIRE(json.at("points").size() == 4);
  for (const Json& point : json.at("points")) {
    CHECK(point.at("batch").get<int64_t>() > 1);
    CHECK(point.at("median_seconds").get<double>() > 0);
  }
  CHECK(read_file(folder.path() / "report.html").find("clustered-4") != std::string::npos);
}
#endif

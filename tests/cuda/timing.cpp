// Time of the device: of work as a whole, and kernel by kernel.
#include "core/timing.h"

#include <nlohmann/json.hpp>
#include <string>

#include "core/captured_step.h"
#include "core/kernels/timing.h"
#include "core/ops.h"
#include "nn/io/file.h"
#include "tests/apps/process.h"
#include "tests/catch.h"
#include "tests/io/io_test.h"

using namespace cairn;
using Json = nlohmann::ordered_json;

TEST_CASE("each launch of a kernel is timed once, by its name", "[gpu]") {
  const Tensor x = Tensor::full({30, 40}, 1, DType::float32, Device::cuda);
  Tensor y;
  const auto launches = gpu::kernel_times(current_stream(Device::cuda), [&] {
    y = softmax(x);
    y = softmax(y);
    y = matmul(y, x.reshape({40, 30}));
  });
  REQUIRE(launches.size() == 3);
  for (const auto& launch : launches) CHECK(launch.seconds >= 0);
#if CAIRN_CUDA_HOST
  CHECK(launches[0].name.substr(0, 11) == "softmax.cu:");
#else
  CHECK(launches[0].name == "softmax/softmax_short");
#endif
  CHECK(launches[1].name == launches[0].name);
  CHECK(launches[2].name == "gemm/cublas");

  const auto seconds = kernel_seconds(Device::cuda, [&] { y = softmax(softmax(x)); });
  REQUIRE(seconds.size() == 1);
  CHECK(seconds.begin()->first == launches[0].name);

  // An error ends the noting of launches too.
  CHECK_THROWS_AS(kernel_seconds(Device::cuda, [&] { throw UsageError("no"); }), UsageError);
  CHECK(kernel_seconds(Device::cuda, [] {}).empty());
  CHECK(y.to_vector<float>().size() == 1200);
}

TEST_CASE("work is timed on its device, ordinary and replayed", "[gpu]") {
  const Tensor x = Tensor::full({1000}, 1, DType::float32, Device::cuda);
  Tensor y;
  CHECK(seconds_of(Device::cuda, [&] { y = affine(x, 2); }) >= 0);
  CapturedStep doubles(
      Device::cuda, [&] { y = affine(x, 3); }, 1);
  doubles();
  doubles();
  CHECK(seconds_of(Device::cuda, [&] { doubles(); }) >= 0);
  CHECK(doubles.replays() == 2);
  CHECK(y.to_vector<float>() == std::vector<float>(1000, 3));
}

TEST_CASE("attention-bench measures on CUDA", "[gpu][program]") {
  const std::string small = "--device cuda --json --quiet --heads 2 --head-size 8 --repeat 2 --seconds 0 ";
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
    CHECK(json.at("stages").size() >= (what == "cluster" ? 1 : 2));  // k-means may be one launch
    double stages = 0;
    for (const auto& [name, seconds] : json.at("stages").items()) stages += seconds.get<double>();
    CHECK(stages > 0);
  }
  // What fits is tried with the batch that fits; --what layer, and lengths of its own.
  const TemporaryFolder folder;
  const auto figure =
      run_process("attention-bench",
                  "figure --lengths 16,32 --batch max --what layer --feed-forward 16 --attention full,clustered-4 " +
                      small + "--out " + folder.path().string(),
                  "CAIRN_HOST_CUDA_MEMORY=4000000 ");
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

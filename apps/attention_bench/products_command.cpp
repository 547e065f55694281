// attention-bench products: measures the matrix products of a transformer layer.
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/attention_bench/settings.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "core/ops.h"
#include "core/timing.h"
#include "nn/purpose.h"

namespace cairn::attention_bench {
namespace {

using Json = nlohmann::ordered_json;

struct ProductsCommand : Command {
  ProductsCommand()
      : Command(
            "products", "Measure the matrix products of a transformer layer",
            "A layer has weights of three shapes. For each, this measures x W^T + b for tokens x, and the gradient\n"
            "of W. The time is the median of the repetitions.\n\nExample:\n"
            "  attention-bench products --features 384 --feed-forward 1536") {}

  void fields(SettingFields& f) override {
    f("tokens", tokens, {1, int64_t(1) << 24}, "rows of x");
    f("features", features, {1, 1 << 16}, "features of the layer");
    f("feed-forward", feed_forward, {1, 1 << 20}, "hidden features of the layer's feed-forward network");
    f("repeat", repeat, {1, 1'000'000}, "repetitions of each product");
    compute.fields(f);
  }

  void run(Communicator&) override {
    place = compute.apply();
    catch_interrupts(quiet);
    Json results = Json::array();
    std::string text = formatted("%-24s %10s %9s\n", "product", "median ms", "GFLOP/s");
    const std::pair<int64_t, int64_t> weights[] = {
        {features, features}, {features, feed_forward}, {feed_forward, features}};
    for (const auto& sizes : weights) {
      const int64_t in = sizes.first, out = sizes.second;
      RandomStream random(uint64_t(compute.seed), 0, Purpose::data);
      const auto normal = [&](const Shape& shape) {
        return random_normal(shape, random).cast(place.activations).to(place.device);
      };
      const Tensor x = normal({tokens, in}), weight = normal({out, in}), bias = normal({out}),
                   dy = normal({tokens, out});
      const auto measure = [&](const std::string& pass, const std::function<Tensor()>& product) {
        const double seconds = median_seconds(product), flops = 2 * double(tokens) * double(in) * double(out);
        const std::string name = concat(pass, "-", in, "-", out);
        results.push_back({{"product", name}, {"median_seconds", seconds}, {"gflops", flops / seconds * 1e-9}});
        text += formatted("%-24s %10.3f %9.0f\n", name.c_str(), seconds * 1e3, flops / seconds * 1e-9);
      };
      measure("forward", [&] { return linear(x, weight, bias); });
      measure("gradient", [&] { return matmul(dy, x, true, false); });
    }
    tell({{"products", results}}, text);
  }

  double median_seconds(const std::function<Tensor()>& product) const {
    Tensor result = product();  // loads the kernel, warms the caches
    std::vector<double> seconds;
    for (int64_t i = 0; i < repeat; ++i) {
      if (interrupted()) throw Interrupted();
      seconds.push_back(seconds_of(place.device, [&] { result = product(); }));
    }
    return quantile(seconds, 0.5);
  }

  int64_t tokens = 16384, features = 384, feed_forward = 1536, repeat = 15;
  ComputeSettings compute;
  Place place;
};

}  // namespace

std::unique_ptr<Command> make_products() { return std::make_unique<ProductsCommand>(); }

}  // namespace cairn::attention_bench

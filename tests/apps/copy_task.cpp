#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/copy_task/train.h"
#include "tests/apps/process.h"
#include "tests/catch.h"

using namespace cairn;             // NOLINT: tests only
using namespace cairn::copy_task;  // NOLINT: tests only

TEST_CASE("a sequence is 0w0w, and what is masked in one copy stands in the other", "[copy-task]") {
  for (int64_t length : {1, 2, 3, 4, 31, 63, 100}) {
    RandomStream random(1, uint64_t(length), Purpose::data);
    const Batch batch = make_batch(50, length, random);
    const int64_t n = sequence_length(length), half = length + 1;
    REQUIRE(batch.input.shape() == Shape{50, n});
    std::set<std::vector<int32_t>> distinct;
    for (int64_t b = 0; b < 50; ++b) {
      const int32_t *input = batch.input.data<int32_t>() + b * n, *target = batch.target.data<int32_t>() + b * n;
      int64_t masked[2] = {};
      for (int64_t i = 0; i < n; ++i) {
        INFO("length " << length << ", sequence " << b << ", position " << i);
        REQUIRE(target[i] == target[(i + half) % n]);
        if (i % half == 0)
          REQUIRE(target[i] == separator);
        else
          REQUIRE((target[i] >= 1 && target[i] <= symbols));
        if (input[i] == mask_token) {
          ++masked[i / half];
          REQUIRE(i % half != 0);
          REQUIRE(input[(i + half) % n] == target[i]);
        } else {
          REQUIRE(input[i] == target[i]);
        }
      }
      // round(0.2 length) in each half.
      CHECK(masked[0] == std::lround(0.2 * double(length)));
      CHECK(masked[1] == masked[0]);
      distinct.insert(std::vector<int32_t>(input, input + n));
    }
    if (length >= 31) CHECK(distinct.size() == 50);
  }
}

TEST_CASE("every symbol and every masked position is equally likely", "[copy-task]") {
  constexpr int64_t length = 10, count = 20000;
  RandomStream random(3, 0, Purpose::data);
  const Batch batch = make_batch(count, length, random);
  std::vector<double> symbol(classes), masked(sequence_length(length));
  for (int64_t i = 0; i < batch.input.elements(); ++i) {
    symbol[size_t(batch.target.data<int32_t>()[i])] += 1;
    masked[size_t(i % sequence_length(length))] += batch.input.data<int32_t>()[i] == mask_token;
  }
  // Expectations with five standard deviations.
  for (int s = 1; s <= symbols; ++s)
    CHECK(std::abs(symbol[size_t(s)] - 2.0 * count * length / 10) < 5 * 2 * std::sqrt(count * length * 0.1 * 0.9));
  for (int64_t i = 0; i < sequence_length(length); ++i)
    if (i % (length + 1) != 0) CHECK(std::abs(masked[size_t(i)] - 0.2 * count) < 5 * std::sqrt(count * 0.2 * 0.8));
}

TEST_CASE("evaluation counts right answers, masked ones apart", "[copy-task]") {
  TransformerOptions options;
  options.layers = 1, options.heads = 1, options.head_size = 4, options.feed_forward = 4;
  Generator generator(1);
  Model model(options, sequence_length(5), generator);
  // A model that always answers 3.
  model.output.weight.mutable_value() = Tensor::zeros(model.output.weight.shape());
  std::vector<float> bias(classes, 0.0f);
  bias[3] = 5;
  model.output.bias.mutable_value() = Tensor::from(bias, {classes});
  const Metrics e = evaluate(model, 5, 100, 7, 0);
  RandomStream random(7, 0, Purpose::data, evaluation_data);
  int64_t right = 0, masked = 0, masked_right = 0;
  for (int64_t done = 0; done < 100; done += evaluation_batch) {
    const Batch batch = make_batch(std::min(evaluation_batch, 100 - done), 5, random);
    for (int64_t i = 0; i < batch.input.elements(); ++i) {
      const bool is_right = batch.target.data<int32_t>()[i] == 3, is_masked = batch.input.data<int32_t>()[i] == 11;
      right += is_right, masked += is_masked, masked_right += is_right && is_masked;
    }
  }
  CHECK(e.accuracy == double(right) / (100 * 12));
  CHECK(e.masked_accuracy == double(masked_right) / double(masked));
  CHECK(e.loss > 0);
  const Model shorter(options, sequence_length(2), generator);
  CHECK(std::isnan(evaluate(shorter, 2, 10, 7, 0).masked_accuracy));  // round(0.4) = 0 masked
}

TEST_CASE("the program's JSON result carries what it promises", "[copy-task]") {
  // Nothing masked: null, not NaN. No step: the untrained model is evaluated.
  const auto result = run_process("copy-task", "train --length 1 --layers 1 --iterations 0 --json --quiet");
  REQUIRE(result.exit_code == 0);
  CHECK(result.err.empty());
  const auto json = nlohmann::json::parse(result.out);
  CHECK(json["masked_accuracy"].is_null());
  CHECK(json["attention"] == "i-clustered-15");
  for (const char* key : {"sequences", "length", "seed", "iterations", "loss", "accuracy", "seconds",
                          "steps_per_second", "peak_bytes", "parameters"})
    CHECK(json[key].is_number());
}

#if !CAIRN_HAS_CUDA
TEST_CASE("a program built without CUDA says so", "[copy-task][fault]") {
  const auto result = run_process("copy-task", "train --device cuda --quiet");
  CHECK(result.exit_code == 4);
  CHECK_THAT(result.err,
             Catch::Matchers::ContainsSubstring("error: --device cuda: this program was built without CUDA"));
}
#endif

TEST_CASE("what the quick copy task reaches is written down for every attention variant", "[copy-task]") {
  std::ifstream list(CAIRN_SOURCE_DIR "/apps/copy_task/variants.tsv");
  REQUIRE(list.is_open());
  std::multiset<std::string> listed;
  for (std::string line; std::getline(list, line);) {
    if (line.empty() || line[0] == '#') continue;
    INFO(line);
    std::vector<std::string> fields(1);
    for (char c : line) c == '\t' ? void(fields.emplace_back()) : fields.back().push_back(c);
    REQUIRE(fields.size() == 5);  // specification, least, most, found, why
    CHECK(make_attention(fields[0])->spec() == fields[0]);
    const double minimum = std::stod(fields[1]), maximum = std::stod(fields[2]), found = std::stod(fields[3]);
    CHECK((0 <= minimum && minimum <= found && found <= maximum && maximum <= 1));
    listed.insert(parse_attention(fields[0]).variant->name);
  }
  std::ifstream readme(CAIRN_SOURCE_DIR "/nn/attention/README.md");
  const std::string table{std::istreambuf_iterator<char>(readme), {}};
  for (const auto* variant : attention_variants()) {
    INFO(variant->name);
    if (variant->name == std::string("sharp") || variant->name == std::string("replayed")) continue;  // of these tests
    CHECK(listed.count(variant->name) == 1);
    CHECK_THAT(table, Catch::Matchers::ContainsSubstring("`" + std::string(variant->name)));
  }
}

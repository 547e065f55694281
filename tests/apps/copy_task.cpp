#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "apps/copy_task/model.h"
#include "nn/io/hash.h"
#include "tests/apps/process.h"
#include "tests/io/io_test.h"

using namespace cairn;             // NOLINT: tests only
using namespace cairn::copy_task;  // NOLINT: tests only
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a sequence is 0w0w, and a symbol masked in one copy is visible in the other", "[copy-task]") {
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
      // Each half has round(0.2 length) masked symbols.
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
  // Within five standard deviations of the expected counts.
  for (int s = 1; s <= symbols; ++s)
    CHECK(std::abs(symbol[size_t(s)] - 2.0 * count * length / 10) < 5 * 2 * std::sqrt(count * length * 0.1 * 0.9));
  for (int64_t i = 0; i < sequence_length(length); ++i)
    if (i % (length + 1) != 0) CHECK(std::abs(masked[size_t(i)] - 0.2 * count) < 5 * std::sqrt(count * 0.2 * 0.8));
}

TEST_CASE("evaluation counts right answers, and those of masked symbols separately", "[copy-task]") {
  Settings settings;
  settings.length = 5;
  TransformerOptions& options = settings.model;
  options.layers = 1, options.heads = 1, options.head_size = 4, options.feed_forward = 4;
  Generator generator(1);
  Model model(settings, generator);
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
  settings.length = 2;
  const Model shorter(settings, generator);
  CHECK(std::isnan(evaluate(shorter, 2, 10, 7, 0).masked_accuracy));  // round(0.4) = 0 masked
}

// Of sequences 0w0w with w of 5 symbols, the second copy is answered: 6 positions.
TEST_CASE("from the other copy: a position sees its own token and the first copy alone", "[copy-task]") {
  Settings settings;
  settings.length = 5;
  settings.from_other = true;
  TransformerOptions& options = settings.model;
  options.layers = 2, options.heads = 2, options.head_size = 4, options.feed_forward = 8, options.attention = "full";
  Generator generator(1);
  const Model model(settings, generator);
  RandomStream random(3, 0, Purpose::data);
  const Tensor input = make_batch(1, 5, random).input;
  const auto changed_answers = [&](int64_t changed) {  // positions whose logits another token there changes
    Tensor other = Tensor::from(input.to_vector<int32_t>(), input.shape());
    other.mutable_data<int32_t>()[changed] = 1 + input.data<int32_t>()[changed] % symbols;
    const Tensor before = model(input, {.generator = &generator}), after = model(other, {.generator = &generator});
    REQUIRE(before.shape() == Shape{1, 6, classes});
    std::vector<int64_t> found;
    for (int64_t i = 0; i < 6; ++i)
      if (!std::equal(before.data<float>() + i * classes, before.data<float>() + (i + 1) * classes,
                      after.data<float>() + i * classes))
        found.push_back(i);
    return found;
  };
  CHECK(changed_answers(2) == std::vector<int64_t>{0, 1, 2, 3, 4, 5});
  CHECK(changed_answers(6 + 3) == std::vector<int64_t>{3});
  CHECK(model.answered(input).to_vector<int32_t>() == slice(input, 1, 6, 12).value().to_vector<int32_t>());
}

#if !CAIRN_HAS_CUDA
TEST_CASE("a program built without CUDA says so", "[copy-task][fault]") {
  const auto result = run_process("copy-task", "train --device cuda --quiet");
  CHECK(result.exit_code == 4);
  CHECK_THAT(result.err, ContainsSubstring("error: --device cuda: this program was built without CUDA"));
}
#endif

TEST_CASE("a run that continues on another machine notes that it is not bit-exact", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const std::filesystem::path json = folder / "run/checkpoint/checkpoint.json",
                              checksums = folder / "run/checkpoint/checksums";
  const std::string train =
      concat("train --quiet --device cpu --layers 1 --length 3 --out ", folder / "run", " --iterations ");
  REQUIRE(run_process("copy-task", train + "1").exit_code == 0);
  CHECK(run_process("copy-task", train + "2 --resume").err == "");  // on the same machine
  // The checkpoint names other vector instructions, and its hash is valid.
  std::string text = bytes_of_file(json);
  const std::string hashes = bytes_of_file(checksums);
  text.replace(text.find("\"vectors\": \"") + 12, 0, "other ");
  put_file(json, text);
  put_file(checksums, xxh128(text) + hashes.substr(hashes.find(' ')));
  const auto elsewhere = run_process("copy-task", train + "3 --resume");
  CHECK(elsewhere.exit_code == 0);
  CHECK_THAT(elsewhere.err,
             ContainsSubstring("was trained on the CPU with other ") && ContainsSubstring("rounds differently"));
}

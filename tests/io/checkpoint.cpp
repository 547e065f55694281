#include "nn/io/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/storage.h"
#include "nn/io/hash.h"
#include "nn/layers.h"
#include "nn/optim/adam.h"
#include "nn/optim/sgd.h"
#include "nn/transformer.h"
#include "tests/io/io_test.h"

using namespace cairn;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

// Optimizers with two moments per parameter, one, and none.
static std::unique_ptr<Optimizer> make_optimizer(int moments, Module& model) {
  if (moments == 2) return std::make_unique<RAdam>(parameters(model), 0.1);
  return std::make_unique<Sgd>(parameters(model), 0.1, SgdOptions{moments == 1 ? 0.9 : 0, 0});
}

static void steps(Optimizer& optimizer, uint64_t begin, uint64_t end) {
  for (uint64_t step = begin; step < end; ++step) {
    for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
      Variable x = optimizer.parameters()[i];
      RandomStream sequence(step, 0, Purpose::data, uint32_t(i));
      x.mutable_grad() = random_normal(x.shape(), sequence).cast(x.dtype());
    }
    optimizer.step();
  }
}

// Every bit of a model and its optimizer, by the names in the checkpoint.
static std::string bits(Module& model, const Optimizer* optimizer) {
  std::string all;
  const auto add = [&all](const Tensor& tensor) {
    all.append(concat(name(tensor.dtype()), tensor.shape()));
    all.append(static_cast<const char*>(tensor.raw()), tensor.bytes());
  };
  for (const auto& [name, parameter] : named_parameters(model)) all += name, add(parameter.value());
  if (!optimizer) return all;
  for (const auto& [name, moment] : optimizer->moments()) all += name, add(moment);
  const OptimizerState state = optimizer->state();
  return all.append(reinterpret_cast<const char*>(&state), sizeof(state));
}

// A small model with its optimizer, equal for the same seed and step.
struct Small {
  explicit Small(uint64_t seed = 1, uint64_t steps_taken = 0) : generator(seed), linear(2, 1, generator) {
    optimizer = std::make_unique<RAdam>(parameters(linear), 0.1);
    steps(*optimizer, 0, steps_taken);
  }
  std::string bits() { return ::bits(linear, optimizer.get()); }
  void save(const fs::path& run, int step) { save_checkpoint(run, linear, *optimizer, {{"step", step}}); }

  Generator generator;
  Linear linear;
  std::unique_ptr<Optimizer> optimizer;
};

// Saves steps 1 to `last`.
static void save_steps(const fs::path& run, int last) {
  for (int step = 1; step <= last; ++step) Small(1, uint64_t(step)).save(run, step);
}
// The step of the checkpoint that is read; checks its tensors.
static int step_of(const FoundCheckpoint& found) {
  const int step = found.about->at("step").get<int>();
  Small model(99);
  restore(found, model.linear, model.optimizer.get());
  CHECK(model.bits() == Small(1, uint64_t(step)).bits());
  return step;
}
// 0: no checkpoint.
static int found_step(const fs::path& run) {
  const auto found = find_checkpoint(run);
  return found ? step_of(*found) : 0;
}
using Names = std::vector<std::string>;
static Names names_in(const fs::path& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}
static const Names file_names = {"checkpoint.json", "checksums", "optimizer.safetensors", "weights.safetensors"};

TEST_CASE("training continues from a checkpoint bit for bit", "[io][checkpoint]") {
  TransformerOptions options;
  options.layers = 2, options.heads = 2, options.head_size = 3, options.feed_forward = 5;
  for (int moments = 0; moments <= 2; ++moments) {
    const TemporaryFolder run;
    Generator generator(1), other_generator(2), third_generator(3);
    Encoder model(options, generator), resumed(options, other_generator), weights_alone(options, third_generator);
    for (Encoder* each : {&model, &resumed, &weights_alone})
      convert_to(*each, moments == 1 ? DType::float64 : DType::float32);
    const auto optimizer = make_optimizer(moments, model);
    steps(*optimizer, 0, 7);
    Variable first = optimizer->parameters()[0];
    first.mutable_grad() = Tensor::full(first.shape(), INFINITY, first.dtype());
    optimizer->step();
    REQUIRE(optimizer->state().skipped_in_a_row == 1);  // and the norm is infinite
    const Json about{{"step", 7}, {"text", "\xc3\xa9\n"}, {"rate", 0.1}, {"list", {1, 2}}, {"none", nullptr}};
    save_checkpoint(run.path(), model, *optimizer, about);

    const auto found = find_checkpoint(run.path());
    REQUIRE(found);
    CHECK(found->folder == run / "checkpoint");
    CHECK(found->damage.empty());
    CHECK(*found->about == about);
    const auto resumed_optimizer = make_optimizer(moments, resumed);
    restore(*found, resumed, resumed_optimizer.get());
    CHECK(bits(resumed, resumed_optimizer.get()) == bits(model, optimizer.get()));
    steps(*optimizer, 7, 10);
    steps(*resumed_optimizer, 7, 10);
    CHECK(bits(resumed, resumed_optimizer.get()) == bits(model, optimizer.get()));

    restore(*found, weights_alone, nullptr);
    CHECK(bits(weights_alone, nullptr) != bits(model, nullptr));
    restore(*found, model, nullptr);
    CHECK(bits(weights_alone, nullptr) == bits(model, nullptr));
  }
}

TEST_CASE("the last two checkpoints are kept", "[io][checkpoint]") {
  const TemporaryFolder folder;
  const fs::path run = folder / "deep/run";  // is created
  CHECK_FALSE(find_checkpoint(run));
  save_steps(run, 1);
  CHECK(names_in(run) == Names{"checkpoint"});
  CHECK(names_in(run / "checkpoint") == file_names);
  if (std::system("command -v xxh128sum >/dev/null") == 0) {
    const std::string command = "cd '" + (run / "checkpoint").string() + "' && xxh128sum --check checksums >/dev/null";
    CHECK(std::system(command.c_str()) == 0);
  }
  save_steps(run, 3);
  CHECK(names_in(run) == Names{"checkpoint", "checkpoint.previous"});
  CHECK(found_step(run) == 3);
  // As if a save had stopped between its two renames.
  fs::remove_all(run / "checkpoint.previous");
  fs::rename(run / "checkpoint", run / "checkpoint.previous");
  fs::create_directory(run / "checkpoint.new");
  const auto found = find_checkpoint(run);
  REQUIRE(found);
  CHECK(found->folder == run / "checkpoint.previous");
  CHECK(found->damage.empty());
  Small(1, 4).save(run, 4);
  CHECK(names_in(run) == Names{"checkpoint", "checkpoint.previous"});
  CHECK(found_step(run) == 4);
  fs::remove_all(run / "checkpoint");
  CHECK(found_step(run) == 3);
}

TEST_CASE("a checkpoint.json of another form is refused, although its hash is right", "[io][checkpoint]") {
  const TemporaryFolder run;
  save_steps(run.path(), 1);
  const fs::path json = run / "checkpoint/checkpoint.json", checksums = run / "checkpoint/checksums";
  for (const std::string text : {"{}", "[]", "1", R"({"step":1})"}) {
    const std::string before = bytes_of_file(checksums);
    put_file(json, text);
    put_file(checksums, xxh128(text) + before.substr(before.find(' ')));
    CHECK_THAT(data_error([&] { find_checkpoint(run.path()); }), ContainsSubstring("not that of a checkpoint"));
  }
}

// Sanitizers are slow and need no test of every byte.
#if CAIRN_SANITIZED
constexpr size_t damage_every = 7;
#else
constexpr size_t damage_every = 1;
#endif

TEST_CASE("damage at any byte of any file is detected, and the previous checkpoint is used", "[io][checkpoint]") {
  const TemporaryFolder run;
  save_steps(run.path(), 2);
  const auto expect_previous = [&] {
    const auto found = find_checkpoint(run.path());
    REQUIRE(found);
    CHECK(found->folder == run / "checkpoint.previous");
    CHECK(found->about->at("step") == 1);
    CHECK_THAT(found->damage, ContainsSubstring((run / "checkpoint").string() + '/'));
  };
  for (const std::string& name : file_names) {
    const fs::path path = run.path() / "checkpoint" / name;
    const std::string good = bytes_of_file(path);
    for (size_t at = 0; at < good.size(); at += damage_every) {
      INFO(name << ", byte " << at);
      std::string bad = good;
      bad[at] = char(bad[at] ^ (1 << at % 8));
      for (const std::string& bytes : {bad, good.substr(0, at)}) {
        put_file(path, bytes);
        expect_previous();
      }
    }
    put_file(path, good);
    CHECK(found_step(run.path()) == 2);
  }
}

TEST_CASE("a checkpoint that does not fit is rejected and changes nothing", "[io][checkpoint]") {
  const TemporaryFolder run;
  save_steps(run.path(), 3);
  Small model(5, 2);
  const std::string before = model.bits();
  // Replaces the tensor of this name in one of the two files, or removes it (undefined).
  struct Wrong {
    const char* file;
    const char* name;
    Tensor tensor;
    const char* message;
  };
  const char *const weights = "weights.safetensors", *const optimizer = "optimizer.safetensors";
  const Wrong table[] = {
      {weights, "bias", {}, "weights.safetensors: no tensor \"bias\""},
      {weights, "biass", Tensor({1}), "tensor \"biass\" is not part of what is being restored; did you mean \"bias\"?"},
      {weights, "weight", Tensor({2, 2}), "\"weight\": expected float32 of shape [1, 2], got float32 of shape [2, 2]"},
      {weights, "bias", Tensor({1}, DType::float64), "expected float32 of shape [1], got float64 of"},
      {optimizer, "second.1", {}, "optimizer.safetensors: no tensor \"second.1\"; did you mean"},
      {optimizer, "state.step", Tensor({}, DType::int32), "\"state.step\": expected int64"},
      {optimizer, "state.skipped", Tensor::full({}, -1, DType::int64), "a state with negative counts"},
  };
  for (const Wrong& wrong : table) {
    INFO(wrong.message);
    const fs::path path = run / "checkpoint" / wrong.file, checksums = run / "checkpoint/checksums";
    const std::string good = bytes_of_file(path), hashes = bytes_of_file(checksums);
    TensorFile file = read_safetensors(path);
    std::erase_if(file.tensors, [&](const auto& each) { return each.first == wrong.name; });
    if (wrong.tensor.defined()) file.tensors.emplace_back(wrong.name, wrong.tensor);
    write_safetensors(path, file);
    std::string changed = hashes;
    put_file(checksums, changed.replace(hashes.find(xxh128(good)), 32, xxh128(bytes_of_file(path))));
    const auto found = find_checkpoint(run.path());
    put_file(checksums, hashes);
    CHECK_THAT(data_error([&] { restore(*found, model.linear, model.optimizer.get()); }),
               ContainsSubstring(wrong.message));
    put_file(path, good);
    CHECK(model.bits() == before);
  }
  Sgd plain(parameters(model.linear), 1);  // another optimizer
  const auto found = find_checkpoint(run.path());
  CHECK_THAT(data_error([&] { restore(*found, model.linear, &plain); }),
             ContainsSubstring("\"first.0\" is not part of"));
  CHECK(model.bits() == before);
}

TEST_CASE("weights are read into their places, not into memory beside them", "[io][checkpoint]") {
  const TemporaryFolder run;
  Generator generator(1);
  Linear model(4096, 2048, generator);  // 32 MB
  const auto optimizer = make_optimizer(1, model);
  save_checkpoint(run.path(), model, *optimizer, {});
  const std::string before = bits(model, optimizer.get());
  for (Variable& each : parameters(model)) each.mutable_value().mutable_data<float>()[0] = 0;
  const int64_t live = memory(Device::cpu).live;
  reset_peak_memory(Device::cpu);
  restore(*find_checkpoint(run.path()), model, optimizer.get());
  CHECK(bits(model, optimizer.get()) == before);
  load(run / "checkpoint/weights.safetensors", model);
  CHECK(double(memory(Device::cpu).peak - live) < 0.2 * double(model.weight.value().bytes()));
}

TEST_CASE("a failed save keeps the checkpoint before it", "[io][checkpoint]") {
  const TemporaryFolder run;
  save_steps(run.path(), 2);
  put_file(run / "file", "");
  Small weight, moment, good;
  weight.linear.weight.mutable_value().mutable_data<float>()[1] = INFINITY;
  for (auto& [name, tensor] : moment.optimizer->moments())
    if (name == "second.1") tensor.mutable_data<float>()[0] = NAN;
  CHECK_THROWS_AS(weight.save(run.path(), 3), DivergedError);
  CHECK_THROWS_WITH(weight.save(run.path(), 3),
                    ContainsSubstring("training diverged: tensor \"weight\": element [0, 1] is infinite; lower"));
  CHECK_THROWS_WITH(moment.save(run.path(), 3), ContainsSubstring("tensor \"second.1\": element [0] is NaN"));
  for (const fs::path& path : {run / "file", run / "file/run", fs::path("/proc/run")})
    CHECK_THROWS_WITH(good.save(path, 3),
                      ContainsSubstring(path) && ContainsSubstring("cannot be made, moved or removed: "));
  CHECK(names_in(run.path()) == Names{"checkpoint", "checkpoint.previous", "file"});
  CHECK(found_step(run.path()) == 2);
  CHECK_FALSE(find_checkpoint(run / "file"));
}

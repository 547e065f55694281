// The program attend: what other programs compute, what it refuses, and how.
#include "apps/attend/inputs.h"

#include <sys/stat.h>

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "nn/attention/observe.h"
#include "tests/apps/markup.h"
#include "tests/apps/process.h"
#include "tests/ops/ops_test.h"

namespace {

using namespace cairn::attend;
namespace fs = std::filesystem;

// A folder that goes with the test.
struct Folder {
  fs::path path = fs::temp_directory_path() / concat("cairn-attend-", getpid());
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, std::vector<std::pair<std::string, Tensor>> tensors) {
  write_safetensors(path, {std::move(tensors), {}, path});
}

std::vector<std::pair<std::string, Tensor>> tensors_of(const Shape& q, int64_t S, DType dtype = DType::float32) {
  return {{"q", random_tensor(q, dtype, 1)},
          {"k", random_tensor(q.with(1, S), dtype, 2)},
          {"v", random_tensor(q.with(1, S), dtype, 3)}};
}

}  // namespace

TEST_CASE("attend reproduces PyTorch's outputs and gradients on its tensors and labels", "[attend][golden]") {
  const Folder folder;
  int compared = 0;
  for (const std::string name : {"self", "lengths", "cross", "cross_lengths"}) {
    const TensorFile golden = read_safetensors(concat(CAIRN_SOURCE_DIR "/tests/golden/attend/", name, ".safetensors"));
    for (DType dtype : {DType::float64, DType::float32}) {
      TensorFile in = golden;
      for (auto& [key, x] : in.tensors)
        if (x.dtype() == DType::float64) x = x.cast(dtype);
      write_safetensors(folder / "in", in);
      for (const std::string spec : {"full", "shared-full", "oracle-top-3", "clustered-4", "i-clustered-4:topk=3"}) {
        if (!golden.find(spec + "/out")) continue;  // shared-full has no cross attention
        INFO(name << ' ' << spec << ' ' << cairn::name(dtype));
        const auto run = run_process(
            "attend", concat("--quiet --grad --attention ", spec, " --in ", folder / "in", " --out ", folder / "out"));
        INFO(run.err);
        REQUIRE(run.exit_code == 0);
        const TensorFile out = read_safetensors(folder / "out");
        CHECK((out.find("grad_k") != nullptr) == (spec != "shared-full"));
        for (const char* part : {"out", "grad_q", "grad_k", "grad_v"}) {
          if (!golden.find(spec + "/" + part)) continue;
          INFO(part);
          CHECK(out.at(part).dtype() == dtype);
          CHECK(difference(out.at(part), golden.at(spec + "/" + part)) <= (dtype == DType::float64 ? 1e-10 : 1e-5));
          ++compared;
        }
      }
    }
  }
  CHECK(compared == 2 * (2 * 19 + 2 * 16));
}

TEST_CASE("attend writes what a clustered variant chose", "[attend]") {
  const Folder folder;
  auto tensors = tensors_of({2, 9, 3, 4}, 5);
  tensors.emplace_back("query_lengths", int32s({9, 6}));
  write(folder / "in", tensors);
  const auto run = run_process("attend", concat("--quiet --attention i-clustered-20:topk=8,bits=5 --in ", folder / "in",
                                                " --out ", folder / "out"));
  REQUIRE(run.exit_code == 0);
  const TensorFile out = read_safetensors(folder / "out");
  CHECK(out.at("codes").dtype() == DType::int64);
  CHECK(out.at("codes").shape() == Shape{2, 3, 9});
  for (const int64_t code : out.at("codes").to_vector<int64_t>()) CHECK((code >= 0 && code < 32));
  REQUIRE(out.at("counts").shape() == Shape{2, 3, 20});
  REQUIRE(out.at("topk").shape() == Shape{2, 3, 20, 8});
  REQUIRE(out.at("mass").shape() == Shape{2, 3, 20});
  const auto labels = out.at("labels").to_vector<int32_t>(), counts = out.at("counts").to_vector<int32_t>(),
             topk = out.at("topk").to_vector<int32_t>();
  const auto mass = out.at("mass").to_vector<float>();
  for (int64_t batch_head = 0; batch_head < 6; ++batch_head)
    for (int64_t c = 0; c < 20; ++c) {
      int32_t members = 0;
      for (int64_t i = 0; i < 9; ++i) members += labels[size_t(batch_head * 9 + i)] == c;
      CHECK(counts[size_t(batch_head * 20 + c)] == members);
      // All five keys, or, of a cluster without members, none.
      for (int64_t j = 0; j < 8; ++j)
        CHECK(topk[size_t((batch_head * 20 + c) * 8 + j)] == (members > 0 && j < 5 ? j : -1));
      CHECK(mass[size_t(batch_head * 20 + c)] == Approx(members > 0 ? 1 : 0));
    }
  for (int64_t h = 0; h < 3; ++h)
    for (int64_t i = 6; i < 9; ++i) CHECK(labels[size_t((3 + h) * 9 + i)] == -1);
}

TEST_CASE("attend: planes and labels fix the choices, the seed names them", "[attend]") {
  const Folder folder;
  const auto out_of = [&](const std::string& options, const std::string& in = "in") {
    const auto run =
        run_process("attend", concat("--quiet ", options, " --in ", folder / in, " --out ", folder / "out"));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return read_safetensors(folder / "out");
  };
  auto tensors = tensors_of({1, 40, 2, 4}, 40);
  write(folder / "in", tensors);
  const auto labels = [&](const std::string& options, const std::string& in = "in") {
    return out_of(options, in).at("labels").to_vector<int32_t>();
  };
  const auto first = labels("--attention clustered-6");
  CHECK(labels("--attention clustered-6 --threads 1") == first);
  CHECK(labels("--attention clustered-6 --seed 9") != first);
  Generator generator(1);
  tensors.emplace_back("planes", random_planes(63, 4, true, generator.draw(0, Purpose::planes), Device::cpu));
  write(folder / "planes", tensors);
  CHECK(labels("--attention clustered-6", "planes") == first);
  tensors.back().second = random_planes(3, 4, true, generator.draw(0, Purpose::planes), Device::cpu);
  write(folder / "planes", tensors);
  for (const int64_t code : out_of("--attention clustered-6", "planes").at("codes").to_vector<int64_t>())
    CHECK(code < 8);
  tensors.back() = {"labels", Tensor::from(std::vector<int32_t>(80, 5), {1, 2, 40})};
  write(folder / "labels", tensors);
  CHECK(labels("--attention clustered-6", "labels") == std::vector<int32_t>(80, 5));
}

TEST_CASE("attend computes whatever has a result", "[attend]") {
  const Folder folder;
  const auto good = [&](const std::string& spec, std::vector<std::pair<std::string, Tensor>> tensors) {
    write(folder / "in", std::move(tensors));
    const auto run = run_process(
        "attend", concat("--quiet --grad --attention ", spec, " --in ", folder / "in", " --out ", folder / "out"));
    INFO(spec << ' ' << run.err);
    CHECK(run.exit_code == 0);
    return read_safetensors(folder / "out");
  };
  for (const std::string spec : {"full", "clustered-5", "i-clustered-5", "oracle-top-2"}) {
    CHECK(good(spec, tensors_of({2, 0, 2, 3}, 4)).at("out").shape() == Shape{2, 0, 2, 3});
    for (double x : as_double(good(spec, tensors_of({2, 4, 2, 3}, 0)).at("out"))) CHECK(x == 0);
    auto tensors = tensors_of({1, 6, 1, 3}, 6);
    tensors[1].second.mutable_data<float>()[4] = NAN;
    tensors[2].second.mutable_data<float>()[7] = INFINITY;
    CHECK(good(spec, tensors).at("out").shape() == Shape{1, 6, 1, 3});
  }
  auto tensors = tensors_of({1, 6, 1, 3}, 6);
  tensors.erase(tensors.begin() + 1);  // k
  CHECK(good("shared-full", tensors).find("grad_k") == nullptr);
  // A mask of bytes; a query that may attend to nothing has zeros.
  Tensor mask = Tensor::full({6, 6}, 1, DType::uint8);
  std::fill_n(mask.mutable_data<uint8_t>() + 12, 6, uint8_t(0));
  tensors.emplace_back("mask", mask);
  const auto out = as_double(good("shared-full", tensors).at("out"));
  for (size_t i = 6; i < 9; ++i) CHECK(out[i] == 0);
  CHECK(out[0] != 0);
}

TEST_CASE("attend says in one line what is wrong", "[attend]") {
  const Folder folder;
  const auto fails = [&](int code, const std::string& text, const std::string& arguments,
                         std::vector<std::pair<std::string, Tensor>> tensors = tensors_of({1, 6, 2, 3}, 6)) {
    write(folder / "in", std::move(tensors));
    const std::string in = arguments.find("--in") == std::string::npos ? concat(" --in ", folder / "in") : "";
    const auto run = run_process("attend", "--quiet " + arguments + in);
    INFO(arguments << ": " << run.err);
    CHECK(run.exit_code == code);
    CHECK_THAT(run.err, Catch::Matchers::StartsWith("attend: error: "));
    CHECK_THAT(run.err, Catch::Matchers::ContainsSubstring(text));
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
    CHECK(run.out.empty());
  };
  const auto with = [](const std::string& name, const Tensor& x, Shape q = {1, 6, 2, 3}) {
    auto tensors = tensors_of(q, 6);
    for (auto& [key, value] : tensors)
      if (key == name) {
        value = x;
        return tensors;
      }
    tensors.emplace_back(name, x);
    return tensors;
  };
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  fails(2, "no regular file", concat("--attention full --out ", folder / "pipe"));
  CHECK(fs::is_fifo(folder / "pipe"));
  fails(2, "expected a batch element with heads", concat("--attention full --picture ", folder / "p"),
        tensors_of({0, 6, 2, 3}, 6));
  if (backends() == "cpu") fails(4, "CUDA", "--attention full --device cuda");
  const Tensor f32 = random_tensor({1, 6, 2, 3}, DType::float32);
  fails(3, "no tensor \"v\"", "--attention full", {{"q", f32}, {"k", f32}});
  fails(2, "needs keys", "--attention full", {{"q", f32}, {"v", f32}});
  fails(2, "q must be floating, got int32", "--attention full", with("q", random_integers({1, 6, 2, 3}, 0, 3)));
  fails(2, "k is float64, q is float32", "--attention full", with("k", random_tensor({1, 6, 2, 3})));
  fails(2, "expected q of shape [B, N, H, D], got [6, 2, 3]", "--attention full",
        with("q", random_tensor({6, 2, 3}, DType::float32)));
  fails(2, "expected k of shape [1, S, 2, 3]", "--attention full",
        with("k", random_tensor({1, 6, 2, 4}, DType::float32)));
  fails(2, "expected v of shape [1, 6, 2, M]", "--attention full",
        with("v", random_tensor({2, 6, 2, 4}, DType::float32)));
  fails(2, "expected key_lengths of shape [1], got [2]", "--attention full", with("key_lengths", int32s({1, 2})));
  fails(3, "expected numbers from 0 to 6, got 7", "--attention full", with("key_lengths", int32s({7})));
  fails(3, "got -1", "--attention full", with("query_lengths", int32s({-1})));
  fails(2, "expected query_lengths to be int32, got float32", "--attention full",
        with("query_lengths", random_tensor({1}, DType::float32)));
  fails(2, "mask: shapes [5, 6] and [1, 2, 6, 6] do not broadcast", "--attention full",
        with("mask", Tensor::full({5, 6}, 1, DType::boolean)));
  fails(2, "expected mask to be bool, got float32", "--attention full", with("mask", f32));
  fails(2, "cannot honor", "--attention clustered-3", with("mask", Tensor::full({6, 6}, 1, DType::boolean)));
  fails(2, "expected grad_out of shape [1, 6, 2, 3]", "--attention full --grad",
        with("grad_out", random_tensor({1, 6, 2}, DType::float32)));
  fails(2, "expected planes of shape [bits, D + 1]", "--attention clustered-3",
        with("planes", random_tensor({5, 3}, DType::float32)));
  fails(2, "expected labels of shape [1, 2, 6]", "--attention clustered-3", with("labels", int32s({1, 2})));
  fails(3, (folder / "in") + ": tensor 'labels': expected numbers from -1 to 2", "--attention clustered-3",
        with("labels", Tensor::from(std::vector<int32_t>(12, 3), {1, 2, 6})));
  fails(2, "no variant can work on these tensors", concat("--attention local-2,lsh-2 --picture ", folder / "p"),
        {{"q", f32},
         {"k", random_tensor({1, 5, 2, 3}, DType::float32)},
         {"v", random_tensor({1, 5, 2, 3}, DType::float32)}});
  CHECK_FALSE(fs::exists(folder / "p"));
  fails(3, "got -2", "--attention clustered-3", with("labels", Tensor::from(std::vector<int32_t>(12, -2), {1, 2, 6})));
}

TEST_CASE("attend computes with NaN, which stays within its head", "[attend]") {
  const Folder folder;
  const auto run = [&](const std::vector<std::pair<std::string, Tensor>>& tensors) {
    write(folder / "in", tensors);
    const auto done = run_process("attend", concat("--attention full --in ", folder / "in", " --out ", folder / "out"));
    CHECK(done.exit_code == 0);
    CHECK(done.err == concat(folder / "in", ": q [1, 6, 2, 3], k [1, 6, 2, 3], v [1, 6, 2, 3]\n"));
    return as_double(read_safetensors(folder / "out").at("out"));
  };
  auto tensors = tensors_of({1, 6, 2, 3}, 6);
  const auto before = run(tensors);
  tensors[1].second.mutable_data<float>()[4 * 6 + 3 + 2] = NAN;  // a key of the second head
  const auto after = run(tensors);
  for (size_t i = 0; i < after.size(); ++i) {
    const bool second_head = i / 3 % 2 == 1;
    CHECK(std::isnan(after[i]) == second_head);
    if (!second_head) CHECK(after[i] == before[i]);
  }
}

TEST_CASE("attend draws every head of the first batch element", "[attend]") {
  const Folder folder;
  for (const int64_t heads : {1, 2, 18}) {
    write(folder / "in", tensors_of({2, 6, heads, 3}, 6));
    const auto run = run_process(
        "attend", concat("--attention full,clustered-2 --in ", folder / "in", " --picture ", folder / "p.svg"));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const bool warned = run.err.find("more heads (18) than positions (6)") != std::string::npos;
    CHECK(warned == (heads == 18));
    const std::string picture = content_of(folder / "p.svg");
    CHECK(markup_error(picture).empty());
    for (const std::string spec : {"full", "clustered-2"})
      for (int64_t h = 1; h <= heads; ++h)
        CHECK_THAT(picture, Catch::Matchers::ContainsSubstring(
                                concat("Attention weights of ", spec, heads > 1 ? concat(", head ", h) : "", "<")));
  }
}

TEST_CASE("attend looks at a sample of many rows, and draws pictures of limited size", "[attend]") {
  const Folder folder;
  Tensor q = random_tensor({1, 5000, 1, 2}, DType::float32), lengths = int32s({3000});
  write(folder / "in", {{"q", q}, {"k", q}, {"v", q}, {"query_lengths", lengths}});
  const auto run = run_process("attend", concat("--json --compare full --attention full,clustered-1,linear --in ",
                                                folder / "in", " --picture ", folder / "p.svg --repeat 1"));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK_THAT(run.err, Catch::Matchers::ContainsSubstring("a sample of 512 of the 5000 queries"));
  CHECK(fs::file_size(folder / "p.svg") < 500'000);
  // Against the mean over all rows, by its definition. clustered-1: the attention of the mean query.
  const auto results = nlohmann::json::parse(last_line(run.out)).at("results");
  const auto rows = as_double(q);
  double mean[2] = {}, l1 = 0;
  for (size_t i = 0; i < 3000; ++i) mean[0] += rows[2 * i] / 3000, mean[1] += rows[2 * i + 1] / 3000;
  const auto weights_of = [&](double a, double b) {
    std::vector<double> weights;
    double sum = 0;
    for (size_t s = 0; s < 5000; ++s) {
      weights.push_back(std::exp((a * rows[2 * s] + b * rows[2 * s + 1]) / std::sqrt(2)));
      sum += weights.back();
    }
    for (double& weight : weights) weight /= sum;
    return weights;
  };
  const auto shared = weights_of(mean[0], mean[1]);
  for (size_t i = 0; i < 3000; i += 10) {
    const auto own = weights_of(rows[2 * i], rows[2 * i + 1]);
    for (size_t s = 0; s < 5000; ++s) l1 += std::abs(own[s] - shared[s]) / 300;
  }
  CHECK(results.at(0).at("l1").get<double>() == 0);
  CHECK(results.at(1).at("l1").get<double>() == Approx(l1).epsilon(0.1));
}

TEST_CASE("attend takes a mask of a tail of keys for key lengths, with every variant", "[attend]") {
  const Folder folder;
  const auto out_of = [&](const std::string& spec, const char* name, const Tensor& x) {
    auto tensors = tensors_of({2, 6, 1, 3}, 6);
    tensors.emplace_back(name, x);
    write(folder / "in", tensors);
    const auto run =
        run_process("attend", concat("--attention ", spec, " --in ", folder / "in", " --out ", folder / "out"));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    CHECK((run.err.find("taken as key_lengths") != std::string::npos) == (name == std::string("mask")));
    return as_double(read_safetensors(folder / "out").at("out"));
  };
  const Tensor mask = Tensor::from(std::vector<uint8_t>{1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0}, {2, 1, 1, 6});
  for (const char* spec : {"full", "clustered-3", "i-clustered-3:topk=2", "linear", "lsh-2"})
    CHECK(out_of(spec, "mask", mask) == out_of(spec, "key_lengths", int32s({4, 2})));
  CHECK(out_of("clustered-3", "mask", mask.slice(0, 1).reshape({6})) ==
        out_of("clustered-3", "key_lengths", int32s({4, 4})));
}

TEST_CASE("attend computes bfloat16 in float32 on the CPU", "[attend]") {
  const Folder folder;
  std::vector<Tensor> outs;
  for (const DType dtype : {DType::bfloat16, DType::float32}) {
    auto tensors = tensors_of({1, 6, 2, 3}, 6);
    for (auto& [name, x] : tensors) x = x.cast(DType::bfloat16).cast(dtype);
    write(folder / "in", tensors);
    const auto run =
        run_process("attend", concat("--attention full --device cpu --in ", folder / "in", " --out ", folder / "out"));
    REQUIRE(run.exit_code == 0);
    CHECK((run.err.find("bfloat16 is computed in float32") != std::string::npos) == (dtype == DType::bfloat16));
    outs.push_back(read_safetensors(folder / "out").at("out"));
    CHECK(outs.back().dtype() == DType::float32);
  }
  CHECK(as_double(outs[0]) == as_double(outs[1]));
}

TEST_CASE("attend passes over variants that do not fit, and writes behind links", "[attend]") {
  const Folder folder;
  auto tensors = tensors_of({1, 6, 2, 3}, 6);
  tensors.emplace_back("labels", Tensor::from(std::vector<int32_t>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}, {1, 2, 6}));
  tensors.emplace_back("key_length", int32s({3}));
  write(folder / "in", tensors);
  const auto run = run_process(
      "attend", concat("--quiet --json --compare full --attention full,clustered-3,clustered-6 --in ", folder / "in"));
  REQUIRE(run.exit_code == 0);
  CHECK_THAT(run.err, Catch::Matchers::ContainsSubstring("key_length") &&
                          Catch::Matchers::ContainsSubstring("did you mean 'key_lengths'"));
  const auto results = nlohmann::json::parse(last_line(run.out)).at("results");
  CHECK(results.at(1).at("problem").get<std::string>().find("expected numbers from -1 to 2") != std::string::npos);
  CHECK(results.at(2).count("problem") == 0);

  write(folder / "target", tensors_of({1, 1, 1, 1}, 1));
  fs::create_symlink(folder / "target", folder / "link");
  REQUIRE(run_process("attend", concat("--quiet --attention full --in ", folder / "in", " --out ", folder / "link"))
              .exit_code == 0);
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(read_safetensors(folder / "target").at("out").shape() == Shape{1, 6, 2, 3});
}

TEST_CASE("attend --causal is a triangular mask, for variants that can honor it", "[attend]") {
  const Folder folder;
  auto tensors = tensors_of({2, 6, 2, 3}, 6, DType::float64);
  write(folder / "in", tensors);
  std::vector<uint8_t> lower;
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j) lower.push_back(j <= i);
  tensors.emplace_back("mask", Tensor::from(lower, {6, 6}));
  write(folder / "masked", tensors);
  const auto out_of = [&](const std::string& arguments) {
    const auto run = run_process("attend", concat("--quiet --out ", folder / "out ", arguments));
    INFO(arguments << ": " << run.err);
    REQUIRE(run.exit_code == 0);
    return read_safetensors(folder / "out").at("out");
  };
  const Tensor causal = out_of(concat("--attention full --causal --in ", folder / "in"));
  CHECK(difference(causal, as_double(out_of(concat("--attention full --in ", folder / "masked")))) <=
        tolerance::float64);
  CHECK(difference(causal, as_double(out_of(concat("--attention full --in ", folder / "in")))) > 0.01);
  out_of(concat("--attention linear --causal --in ", folder / "in"));
}

TEST_CASE("attend takes the tensors of a trained model", "[attend]") {
  const Folder folder;
  REQUIRE(run_process("copy-task",
                      concat("train --quiet --length 3 --iterations 1 --layers 2 --heads 2 --out ", folder / "run"))
              .exit_code == 0);
  REQUIRE(
      run_process("copy-task", concat("show --quiet --run ", folder / "run", " --layer 1 --tensors ", folder / "in"))
          .exit_code == 0);
  CHECK(read_safetensors(folder / "in").at("v").shape() == Shape{1, 8, 2, 32});
  CHECK(run_process("attend", concat("--quiet --attention full --in ", folder / "in")).exit_code == 0);
}

TEST_CASE("attend --compare tells the error and the time of every variant", "[attend]") {
  const Folder folder;
  REQUIRE(run_process("attend", concat("--quiet --example ", folder / "in", " --length 40")).exit_code == 0);
  const auto run = run_process(
      "attend", concat("--json --repeat 1 --compare full --in ", folder / "in", " --picture ", folder / "p.svg"));
  REQUIRE(run.exit_code == 0);
  const auto json = nlohmann::json::parse(last_line(run.out));
  const auto others = std::ranges::count_if(attention_variants(), [](const AttentionVariant* variant) {
    return variant->name == std::string("sharp") || variant->name == std::string("replayed");  // of these tests
  });
  REQUIRE(json.at("results").size() == attention_variants().size() - size_t(others));
  // The distance, by its definition.
  const Inputs in = read_inputs(read_safetensors(folder / "in"));
  const auto weights = [&](const std::string& spec) {
    const auto attention = make_attention(spec);
    const Generator generator(1);
    Generator parameters(1);
    attention->initialize(in.heads(), in.q.size(3), parameters);
    AttentionContext context;
    context.generator = &generator;
    return as_double(attention_weights(*attention, in.q, in.k, in.mask, context));
  };
  const auto full = weights("full");
  for (const auto& result : json.at("results")) {
    const std::string spec = result.at("attention");
    INFO(spec);
    REQUIRE(result.count("problem") == 0);
    const auto own = weights(spec);
    double l1 = 0;
    for (size_t i = 0; i < own.size(); ++i) l1 += std::abs(own[i] - full[i]);
    CHECK(result.at("l1").get<double>() == Approx(l1 / (4 * 40)).margin(1e-4));
    CHECK((result.at("error").get<double>() == 0) == (spec == "full"));
    CHECK(result.at("seconds").get<double>() > 0);
  }
  const std::string picture = content_of(folder / "p.svg");
  CHECK(markup_error(picture).empty());
  for (const auto& result : json.at("results"))
    CHECK_THAT(picture, Catch::Matchers::ContainsSubstring(result.at("attention").get<std::string>()));
}

#if !CAIRN_SANITIZED  // which need more memory than any limit here
TEST_CASE("a file of tensors asks for no memory before it is one", "[attend][fault]") {
  const Folder folder;
  const auto refused = [&](int kilobytes, const std::string& message) {
    const auto run = run_process("attend", concat("--quiet --threads 1 --attention full --in ", folder / "in"),
                                 concat("ulimit -d ", kilobytes, "; "));
    INFO(run.err);
    CHECK(run.exit_code == 3);
    CHECK_THAT(run.err, Catch::Matchers::ContainsSubstring(message));
  };
  const auto put = [&](uint64_t header, const std::string& bytes, uint64_t size) {
    std::ofstream file(folder / "in", std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(&header), sizeof(header));
    file << bytes;
    file.close();
    fs::resize_file(folder / "in", size);
  };
  constexpr int program = 40'000;  // kilobytes that it takes anyway
  // Twenty gigabytes of nothing.
  put(0, "", 20'000'000'000);
  refused(program, "not a safetensors file");
  put(99'000'000, "{", 20'000'000'000);
  refused(program, "a header of 99000000 bytes, expected at most 16777216");
  put(16'000'000, "no header", 20'000'000'000);
  refused(program + 16'000, "not a safetensors file");
}
#endif

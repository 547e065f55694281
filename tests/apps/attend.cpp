// The program attend: its results match PyTorch's, and it rejects wrong input with one clear line.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/attend/inputs.h"
#include "nn/attention/observe.h"
#include "tests/apps/process.h"
#include "tests/io/io_test.h"
#include "tests/ops/ops_test.h"

namespace {

using namespace cairn::attend;
using Catch::Matchers::ContainsSubstring;
using Tensors = std::map<std::string, Tensor>;

TensorFile file_of(const Tensors& tensors) { return {{tensors.begin(), tensors.end()}, {}, ""}; }

// Runs the program in a folder that is removed after the test.
struct Program {
  TemporaryFolder folder;
  std::string file(const std::string& name) const { return (folder / name).string(); }

  ProcessResult run(const std::string& options, const Tensors& tensors) const {
    write_safetensors(file("in"), file_of(tensors));
    return run_process("attend", concat(options, " --in ", file("in")));
  }
  // The tensors that it writes.
  TensorFile out(const std::string& options, const Tensors& tensors) const {
    const ProcessResult result = run(concat("--quiet --out ", file("out "), options), tensors);
    INFO(options << ": " << result.err);
    REQUIRE(result.exit_code == 0);
    return read_safetensors(file("out"));
  }
};

// q of this shape, k and v of S positions; `others` replaces some of these or adds tensors.
Tensors tensors_of(const Shape& q, int64_t S, const Tensors& others = {}, DType dtype = DType::float32) {
  Tensors tensors = others;
  tensors.emplace("q", random_tensor(q, dtype, 1));
  tensors.emplace("k", random_tensor(q.with(1, S), dtype, 2));
  tensors.emplace("v", random_tensor(q.with(1, S), dtype, 3));
  return tensors;
}

double l1_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum;
}

// A variant's attention weights by their definition, [B, H, N, S].
std::vector<double> weights(const std::string& spec, const Inputs& in) {
  const auto attention = make_attention(spec);
  const Generator generator(1);
  Generator parameters(1);
  attention->initialize(in.heads(), in.q.size(3), parameters);
  AttentionContext context;
  context.generator = &generator;
  return as_double(attention_weights(*attention, in.q, in.k, in.mask, context));
}

std::vector<int64_t> whole_numbers(const Tensor& x) { return x.cast(DType::int64).to_vector<int64_t>(); }

}  // namespace

TEST_CASE("attend reproduces PyTorch's outputs and gradients on its tensors and labels", "[attend][golden]") {
  const Program program;
  int compared = 0;
  for (const std::string name : {"self", "lengths", "cross", "cross_lengths"}) {
    const TensorFile golden = read_safetensors(concat(CAIRN_SOURCE_DIR "/tests/golden/attend/", name, ".safetensors"));
    for (const DType dtype : {DType::float64, DType::float32}) {
      Tensors in(golden.tensors.begin(), golden.tensors.end());
      for (auto& [key, x] : in)
        if (x.dtype() == DType::float64) x = x.cast(dtype);
      for (const std::string spec : {"full", "shared-full", "oracle-top-3", "clustered-4", "i-clustered-4:topk=3"}) {
        if (!golden.find(spec + "/out")) continue;  // shared-full has no cross attention
        INFO(name << ' ' << spec << ' ' << cairn::name(dtype));
        const TensorFile out = program.out("--grad --attention " + spec, in);
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

TEST_CASE("attend writes the choices of a clustered variant", "[attend]") {
  const Program program;
  const TensorFile out = program.out("--attention i-clustered-20:topk=8,bits=5",
                                     tensors_of({2, 9, 3, 4}, 5, {{"query_lengths", int32s({9, 6})}}));
  CHECK(out.at("codes").dtype() == DType::int64);
  CHECK(out.at("codes").shape() == Shape{2, 3, 9});
  for (const int64_t code : whole_numbers(out.at("codes"))) CHECK((code >= 0 && code < 32));
  REQUIRE(out.at("counts").shape() == Shape{2, 3, 20});
  REQUIRE(out.at("topk").shape() == Shape{2, 3, 20, 8});
  REQUIRE(out.at("mass").shape() == Shape{2, 3, 20});
  const auto labels = whole_numbers(out.at("labels")), counts = whole_numbers(out.at("counts")),
             topk = whole_numbers(out.at("topk"));
  const auto mass = as_double(out.at("mass"));
  for (int64_t batch_head = 0; batch_head < 6; ++batch_head)
    for (int64_t c = 0; c < 20; ++c) {
      const auto begin = labels.begin() + batch_head * 9;
      const auto members = std::count(begin, begin + 9, c);
      CHECK(counts[size_t(batch_head * 20 + c)] == members);
      // All five keys, or none for a cluster without members.
      for (int64_t j = 0; j < 8; ++j)
        CHECK(topk[size_t((batch_head * 20 + c) * 8 + j)] == (members > 0 && j < 5 ? j : -1));
      CHECK(mass[size_t(batch_head * 20 + c)] == Approx(members > 0 ? 1 : 0));
    }
  for (int64_t h = 0; h < 3; ++h)
    for (int64_t i = 6; i < 9; ++i) CHECK(labels[size_t((3 + h) * 9 + i)] == -1);
}

TEST_CASE("attend: planes and labels fix the choices, else the seed does", "[attend]") {
  const Program program;
  const auto labels = [&](const std::string& options, const Tensors& others = {}) {
    return whole_numbers(
        program.out("--attention clustered-6" + options, tensors_of({1, 40, 2, 4}, 40, others)).at("labels"));
  };
  Generator generator(1);
  const auto planes = [&](int bits) {
    return random_planes(bits, 4, true, generator.draw(0, Purpose::planes), Device::cpu);
  };
  const auto first = labels("");
  CHECK(labels(" --threads 1") == first);
  CHECK(labels(" --seed 9") != first);
  CHECK(labels("", {{"planes", planes(63)}}) == first);
  CHECK(labels("", {{"labels", Tensor::full({1, 2, 40}, 5, DType::int32)}}) == std::vector<int64_t>(80, 5));
  // More clusters than queries: a label is any cluster's number.
  const auto out_of = [&](int32_t label) {
    const Tensor all = Tensor::full({1, 2, 40}, label, DType::int32);
    const auto out = program.out("--grad --attention i-clustered-60", tensors_of({1, 40, 2, 4}, 40, {{"labels", all}}));
    CHECK(out.at("counts").to_vector<int32_t>()[size_t(label)] == 40);
    return std::pair(as_double(out.at("out")), as_double(out.at("grad_k")));
  };
  CHECK(out_of(59) == out_of(0));
  const TensorFile few = program.out("--attention clustered-6", tensors_of({1, 40, 2, 4}, 40, {{"planes", planes(3)}}));
  for (const int64_t code : whole_numbers(few.at("codes"))) CHECK(code < 8);
  // With equal points, every query gets the same result.
  const Tensor alike =
      program.out("--attention inducing-3", tensors_of({1, 40, 2, 4}, 40, {{"points", Tensor::zeros({2, 3, 4})}}))
          .at("out");
  CHECK(difference(slice(alike, 1, 0, 39).value(), slice(alike, 1, 1, 40).value()) <= tolerance::float32);
}

TEST_CASE("attend computes odd but valid input", "[attend]") {
  const Program program;
  for (const std::string spec : {"full", "clustered-5", "i-clustered-5", "oracle-top-2"}) {
    const auto out = [&](const Tensors& tensors) {
      return program.out("--grad --attention " + spec, tensors).at("out");
    };
    CHECK(out(tensors_of({2, 0, 2, 3}, 4)).shape() == Shape{2, 0, 2, 3});
    for (const double x : as_double(out(tensors_of({2, 4, 2, 3}, 0)))) CHECK(x == 0);
    // NaN and infinity are allowed, and stay within their head.
    Tensors tensors = tensors_of({1, 6, 2, 3}, 6);
    const auto before = as_double(out(tensors));
    tensors["k"].mutable_data<float>()[4 * 6 + 3 + 2] = NAN;  // a key of the second head
    tensors["v"].mutable_data<float>()[4 * 6 + 3 + 2] = INFINITY;
    const auto after = as_double(out(tensors));
    for (size_t i = 0; i < after.size(); ++i) {
      if (i / 3 % 2 == 0) CHECK(after[i] == before[i]);
      if (i / 3 % 2 == 1 && spec == "full") CHECK(std::isnan(after[i]));
    }
  }
  Tensors without_keys = tensors_of({1, 6, 1, 3}, 6);
  without_keys.erase("k");
  CHECK(program.out("--grad --attention shared-full", without_keys).find("grad_k") == nullptr);
}

TEST_CASE("attend gives the same result for equivalent inputs", "[attend]") {
  const Program program;
  const Shape shape{2, 6, 1, 3};
  const Tensor tail = Tensor::from(std::vector<uint8_t>{1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0}, {2, 1, 1, 6});
  std::vector<uint8_t> triangle;
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j) triangle.push_back(j <= i);
  Tensors rounded = tensors_of(shape, 6), brief = rounded;
  for (auto& [name, x] : rounded) {
    brief[name] = x.cast(DType::bfloat16);
    x = brief[name].cast(DType::float32);
  }
  struct Case {
    std::string options, others_options;
    Tensors tensors, others;
    std::string note;
  };
  std::vector<Case> cases = {
      {"--attention clustered-3", "", tensors_of(shape, 6, {{"mask", tail.slice(0, 1).reshape({6})}}),
       tensors_of(shape, 6, {{"key_lengths", int32s({4, 4})}}), "read as key_lengths"},
      {"--attention full --device cpu", "", brief, rounded, "the results are float32"},
      {"--attention full", "--causal", tensors_of(shape, 6, {{"mask", Tensor::from(triangle, {6, 6})}}),
       tensors_of(shape, 6), "mask [6, 6]"}};
  for (const std::string spec : {"full", "clustered-3", "i-clustered-3:topk=2", "linear", "lsh-2"})
    cases.push_back({"--attention " + spec, "", tensors_of(shape, 6, {{"mask", tail}}),
                     tensors_of(shape, 6, {{"key_lengths", int32s({4, 2})}}), "read as key_lengths"});
  for (const Case& each : cases) {
    INFO(each.options << ' ' << each.others_options << ' ' << each.note);
    const Tensor plain = program.out(each.options, tensors_of(shape, 6)).at("out");
    const Tensor out = program.out(each.options, each.tensors).at("out");
    CHECK(out.dtype() == DType::float32);
    CHECK(difference(out, program.out(each.options + " " + each.others_options, each.others).at("out")) <=
          tolerance::float32);
    CHECK(difference(out, plain) > 1e-4);
    CHECK_THAT(program.run(each.options, each.tensors).err, ContainsSubstring(each.note));
  }
}

TEST_CASE("attend reports an error in one line", "[attend]") {
  const Program program;
  const Shape shape{1, 6, 2, 3};
  const auto floats = [](const Shape& of) { return random_tensor(of, DType::float32); };
  const auto with = [&](const std::string& name, const Tensor& x) { return tensors_of(shape, 6, {{name, x}}); };
  const auto labels = [](int32_t label) { return Tensor::full({1, 2, 6}, label, DType::int32); };
  const Tensor q = floats(shape);
  struct Case {
    int code;
    std::string message, options;
    Tensors tensors;
  };
  std::vector<Case> cases = {
      {3, "no tensor \"v\"", "full", {{"q", q}, {"k", q}}},
      {2, "needs keys", "full", {{"q", q}, {"v", q}}},
      {2, "q must be floating, got int32", "full", with("q", random_integers(shape, 0, 3))},
      {2, "k is float64, q is float32", "full", with("k", random_tensor(shape))},
      {2, "expected q of shape [B, N, H, D], got [6, 2, 3]", "full", with("q", floats({6, 2, 3}))},
      {2, "expected k of shape [1, S, 2, 3]", "full", with("k", floats({1, 6, 2, 4}))},
      {2, "expected v of shape [1, 6, 2, M]", "full", with("v", floats({2, 6, 2, 4}))},
      {2, "expected key_lengths of shape [1], got [2]", "full", with("key_lengths", int32s({1, 2}))},
      {3, "expected numbers from 0 to 6, got 7", "full", with("key_lengths", int32s({7}))},
      {3, "got -1", "full", with("query_lengths", int32s({-1}))},
      {2, "expected query_lengths to be int32, got float32", "full", with("query_lengths", floats({1}))},
      {2, "mask: shapes [5, 6] and [1, 2, 6, 6] do not broadcast", "full",
       with("mask", Tensor::full({5, 6}, 1, DType::boolean))},
      {2, "expected mask to be bool, got float32", "full", with("mask", q)},
      {2, "cannot honor", "clustered-3", with("mask", Tensor::full({6, 6}, 1, DType::boolean))},
      {2, "expected grad_out of shape [1, 6, 2, 3]", "full --grad", with("grad_out", floats({1, 6, 2}))},
      {2, "expected planes of shape [bits, D + 1]", "clustered-3", with("planes", floats({5, 3}))},
      {2, "expected labels of shape [1, 2, 6]", "clustered-3", with("labels", int32s({1, 2}))},
      {3, program.file("in") + ": tensor 'labels': expected numbers from -1 to 2", "clustered-3",
       with("labels", labels(3))},
      {3, "got -2", "clustered-3", with("labels", labels(-2))},
      {2, "tensor 'points': expected [2, 4, 3]", "inducing-4", with("points", floats({2, 5, 3}))}};
  if (backends() == "cpu") cases.push_back({4, "CUDA", "full --device cuda", tensors_of(shape, 6)});
  for (const Case& each : cases) {
    const ProcessResult run = program.run("--quiet --attention " + each.options, each.tensors);
    INFO(each.options << ": " << run.err);
    CHECK(run.exit_code == each.code);
    CHECK_THAT(run.err, Catch::Matchers::StartsWith("attend: error: ") && ContainsSubstring(each.message));
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
    CHECK(run.out.empty());
  }
}

TEST_CASE("attend samples many rows, and draws pictures of limited size", "[attend]") {
  const Program program;
  Tensors tensors = tensors_of({1, 5000, 1, 2}, 20, {{"query_lengths", int32s({3000})}});
  float* const q = tensors["q"].mutable_data<float>();
  for (int i = 0; i < 10000; ++i) q[i] *= float(i) / 2000;  // later queries have sharper attention
  const auto run = program.run("--json --attention full,clustered-2,linear --picture " + program.file("p"), tensors);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK_THAT(run.err, ContainsSubstring("a sample of 512 of the 5000 queries"));
  CHECK(bytes_of_file(program.file("p")).size() < 500'000);
  const Inputs in = read_inputs(file_of(tensors));
  const auto results = nlohmann::json::parse(last_line(run.out)).at("results");
  REQUIRE(results.size() == 3);
  for (const auto& result : results) {
    const std::string spec = result.at("attention");
    INFO(spec);
    const double mean = l1_distance(weights(spec, in), weights("full", in)) / 3000;  // over all rows
    CHECK(result.at("l1").get<double>() == Approx(mean).epsilon(0.1).margin(1e-5));
    CHECK((mean > 0.1) == (spec != "full"));
  }
}

TEST_CASE("attend --compare reports the error and the time of every variant", "[attend]") {
  const Program program;
  const TensorFile example = example_file(520, 1);
  const auto others = std::ranges::count_if(attention_variants(), [](const AttentionVariant* variant) {
    return variant->name == std::string("sharp") || variant->name == std::string("replayed");  // of these tests
  });
  for (const bool causal : {false, true}) {
    const auto run = run_process("attend", concat("--example 520 --json --compare full ", causal ? "--causal" : "",
                                                  " --picture ", program.file("p")));
    REQUIRE(run.exit_code == 0);
    const auto results = nlohmann::json::parse(last_line(run.out)).at("results");
    REQUIRE(results.size() == attention_variants().size() - size_t(others));
    Inputs in = read_inputs(example);
    in.mask.causal = causal;
    const std::string picture = bytes_of_file(program.file("p"));
    CHECK(markup_error(picture).empty());
    for (const auto& result : results) {
      const std::string spec = result.at("attention");
      INFO(spec);
      if (causal && result.count("problem") == 1) continue;  // it does not support a causal mask
      const double mean = l1_distance(weights(spec, in), weights("full", in)) / (4 * 520);
      CHECK(result.at("l1").get<double>() == Approx(mean).margin(1e-4));
      CHECK((result.at("error").get<double>() == 0) == (spec == "full"));
      CHECK(result.at("seconds").get<double>() > 0);
      CHECK_THAT(picture, ContainsSubstring(spec));
    }
  }
}

TEST_CASE("attend skips variants that do not fit, and names unknown tensors", "[attend]") {
  const Program program;
  std::vector<int32_t> labels;
  for (int32_t i = 0; i < 12; ++i) labels.push_back(i % 6);
  const auto run = program.run(
      "--quiet --json --compare full --attention clustered-3,clustered-6",
      tensors_of({1, 6, 2, 3}, 6, {{"labels", Tensor::from(labels, {1, 2, 6})}, {"key_length", int32s({3})}}));
  REQUIRE(run.exit_code == 0);
  CHECK_THAT(run.err, ContainsSubstring("unknown tensor \"key_length\" (did you mean 'key_lengths'?)"));
  const auto results = nlohmann::json::parse(last_line(run.out)).at("results");
  CHECK_THAT(results.at(0).at("problem").get<std::string>(), ContainsSubstring("expected numbers from -1 to 2"));
  CHECK(results.at(1).count("problem") == 0);
}

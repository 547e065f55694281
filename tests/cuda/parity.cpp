// One list of cases holds every CUDA kernel that an operation calls to the CPU's: a case is a function of a Bench,
// which makes the same inputs on either device, and returns the results. The CPU's are held to references by tests/ops.
#include <functional>

#include "autograd/ops.h"
#include "core/ops.h"
#include "nn/optim/adam.h"
#include "nn/optim/r_adam.h"
#include "nn/optim/sgd.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/tolerances.h"

using namespace cairn;
using namespace cairn::test;

namespace {

// Where a case runs, and in which element type. Inputs are rounded to bfloat16 if any run of the case is in it.
struct Bench {
  Device device = Device::cpu;
  DType dtype = DType::float32;
  bool rounded = false;

  Tensor place(Tensor x) const {
    if (rounded) x = x.cast(DType::bfloat16);
    return x.cast(dtype).to(device);
  }
  // Normal numbers.
  Tensor normal(const Shape& shape, uint64_t seed = 1) const {
    Sequence sequence(seed, 0, Purpose::test);
    return place(random_normal(shape, sequence));
  }
  Tensor uniform(const Shape& shape, double low, double high, uint64_t seed = 1) const {
    Sequence sequence(seed, 0, Purpose::test);
    return place(random_uniform(shape, low, high, sequence));
  }
  // int32 in [low, high].
  Tensor integers(const Shape& shape, int low, int high, uint64_t seed = 1) const {
    Sequence sequence(seed, 0, Purpose::test);
    Tensor x(shape, DType::int32);
    int32_t* data = x.mutable_data<int32_t>();
    for (int64_t i = 0; i < x.elements(); ++i) data[i] = low + int32_t(sequence.below(uint32_t(high - low + 1)));
    return x.to(device);
  }
  Variable variable(const Tensor& x) const { return Variable(x, true); }
};

using Results = std::vector<Tensor>;
struct Case {
  std::string name;
  std::function<Results(const Bench&)> run;
  bool exact = false;  // in float32; whole numbers always are
};

// y and the gradients of `inputs`, for a gradient of y of random numbers.
Results with_gradients(const Bench& bench, const Variable& y, const std::vector<Variable>& inputs) {
  backward(y, bench.normal(y.shape(), 99));
  Results results{y.value()};
  for (const Variable& x : inputs) results.push_back(x.grad());
  return results;
}

std::string label(const char* what, const Shape& shape) { return std::string(what) + " " + to_string(shape); }

void add_elementwise(std::vector<Case>& cases) {
  for (const int64_t n : {0, 1, 7, 257, 4099})
    for (const Unary op : {Unary::negate, Unary::exp, Unary::log, Unary::sqrt, Unary::square, Unary::relu, Unary::gelu})
      cases.push_back({label(name(op), {n}), [=](const Bench& bench) -> Results {
                         const bool positive = op == Unary::log || op == Unary::sqrt;
                         const Tensor x = bench.uniform({n}, positive ? 0.25 : -3, 3), dy = bench.normal({n}, 2);
                         return {unary(op, x), unary_backward(op, x, dy)};
                       }});
  const std::pair<Shape, Shape> broadcasts[] = {
      {{0}, {0}},
      {{}, {}},
      {{1031}, {1031}},
      {{1031}, {}},
      {{}, {1031}},
      {{5, 0}, {5, 1}},
      {{67, 13}, {13}},
      {{67, 1}, {1, 13}},
      {{3, 1, 5, 1, 2}, {4, 1, 7, 1}},
      {{2, 3, 4, 5}, {2, 3, 4, 5}},
      {{2, 3, 4, 5}, {3, 1, 1}},
      {{2, 1, 3, 1, 2, 1}, {1, 2, 1, 3, 1, 2}},
  };
  for (const auto& [a, b] : broadcasts)
    for (const Binary op : {Binary::add, Binary::subtract, Binary::multiply, Binary::divide})
      cases.push_back({label(name(op), a) + " and " + to_string(b), [=, a = a, b = b](const Bench& bench) -> Results {
                         return {binary(op, bench.normal(a), bench.uniform(b, 0.5, 2, 2))};
                       }});
  for (const int64_t n : {0, 1, 1031})
    cases.push_back({label("affine and accumulate", {n}), [=](const Bench& bench) -> Results {
                       Tensor y = bench.normal({n}, 2);
                       accumulate(y, bench.normal({n}), -0.75);
                       return {affine(bench.normal({n}), 1.5, -0.25), y};
                     }});
  cases.push_back({"addresses that no pack of elements starts at", [](const Bench& bench) -> Results {
                     const Tensor x = bench.normal({1000});
                     Tensor y = bench.normal({1001}, 2);
                     Tensor part = y.slice(1, 1001);
                     accumulate(part, x, 0.5);
                     return {unary(Unary::square, y.slice(3, 778)), y};
                   }});
  // 4096 blocks of 256 threads, each of which has four elements.
  cases.push_back(
      {"more elements than the threads of the largest grid take at once", [](const Bench& bench) -> Results {
         return {affine(broadcast_to(bench.normal({4297}), {2003, 4297}), 2)};
       }});
  cases.push_back(
      {"more elements than the threads of the largest grid of a broadcast", [](const Bench& bench) -> Results {
         return {broadcast_to(bench.normal({2003, 1}), {2003, 2099})};
       }});
  for (const auto& [from, to] : std::vector<std::pair<Shape, Shape>>{
           {{}, {5}}, {{1}, {0}}, {{3, 1}, {3, 131}}, {{131}, {3, 131}}, {{3, 1, 2, 1}, {3, 5, 2, 7}}})
    cases.push_back(
        {label("broadcast_to", to) + " from " + to_string(from),
         [from = from, to = to](const Bench& bench) -> Results { return {broadcast_to(bench.normal(from), to)}; },
         true});
  cases.push_back({"arithmetic with gradients", [](const Bench& bench) {
                     const Variable a = bench.variable(bench.normal({5, 13})),
                                    b = bench.variable(bench.uniform({5, 13}, 0.5, 2, 2));
                     return with_gradients(bench, 2 * (a / b) + a * b - gelu(a) + 0.5, {a, b});
                   }});
  for (const DType from : {DType::float32, DType::bfloat16, DType::int32, DType::int64, DType::uint64, DType::uint8,
                           DType::boolean, DType::float64})
    for (const int64_t n : {0, 1, 1031})
      cases.push_back({label(std::string("cast of ").append(name(from)).c_str(), {n}),
                       [=](const Bench& bench) -> Results {
                         const Tensor x = bench.integers({n}, 0, 200).to(Device::cpu).cast(from).to(bench.device);
                         Results results;
                         for (const DType to : {DType::float32, DType::float64, DType::bfloat16, DType::int32,
                                                DType::int64, DType::uint64, DType::uint8, DType::boolean})
                           results.push_back(x.cast(to));
                         return results;
                       },
                       true});
}

void add_reduce(std::vector<Case>& cases) {
  const std::tuple<Shape, int> sizes[] = {{{0}, 0},       {{1}, 0},           {{31}, 0},          {{1025}, 0},
                                          {{7, 1024}, 1}, {{5, 1031}, 1},     {{0, 3}, 0},        {{3, 0}, 1},
                                          {{3, 0, 2}, 1}, {{5, 1}, 1},        {{2, 3, 5}, 1},     {{2, 513, 33}, 1},
                                          {{1537, 2}, 0}, {{2, 40000}, 1},    {{67, 13}, 1},      {{67, 13}, 0},
                                          {{1, 97}, 0},   {{3, 2, 1, 67}, 2}, {{2, 16385, 1}, 1}, {{3, 52429}, 1}};
  for (const auto& [shape, axis] : sizes)
    for (const Reduce op : {Reduce::sum, Reduce::max})
      cases.push_back({label(op == Reduce::sum ? "sum" : "max", shape) + " over axis " + std::to_string(axis),
                       [op, shape = shape, axis = axis](const Bench& bench) -> Results {
                         return {reduce(op, bench.uniform(shape, -0.25, 0.3), axis)};
                       },
                       op == Reduce::max});
  cases.push_back({"sums of all elements, and of those that were stretched", [](const Bench& bench) -> Results {
                     const Tensor x = bench.uniform({3, 5, 41}, -0.5, 0.5);
                     return {sum_all(x), sum_to(x, {41}), sum_to(x, {5, 1}), sum_to(x, {3, 1, 1})};
                   }});
  cases.push_back({"a maximum with NaN and infinities", [](const Bench& bench) -> Results {
                     Results results;
                     for (const int64_t n : {5, 70, 1500, 20000}) {
                       std::vector<float> x(size_t(6 * n), -1);
                       x[size_t(n - 1)] = NAN;
                       x[size_t(n)] = INFINITY;
                       x[size_t(2 * n)] = NAN, x[size_t(2 * n + 1)] = INFINITY;
                       std::fill_n(x.begin() + 3 * n, n, -INFINITY);
                       const Tensor rows = bench.place(Tensor::from(x, {6, n}));
                       results.push_back(reduce(Reduce::max, rows, 1));
                       results.push_back(reduce(Reduce::sum, rows, 1));
                       results.push_back(reduce(Reduce::max, rows, 0));
                     }
                     return results;
                   }});
  cases.push_back({"reductions with gradients", [](const Bench& bench) {
                     const Variable x = bench.variable(bench.uniform({7, 33}, -0.5, 0.5)),
                                    bias = bench.variable(bench.normal({33}, 2));
                     return with_gradients(bench, sum(x * bias, 0) + mean(x) + broadcast_to(bias, {33}), {x, bias});
                   }});
}

void add_rows(std::vector<Case>& cases) {
  // rows, columns, rows of the table
  const int64_t sizes[][3] = {{0, 4, 3},    {4, 0, 3},    {4, 3, 0},     {1, 1, 1},     {5, 7, 3},   {33, 8, 2},
                              {67, 13, 11}, {3, 131, 40}, {130, 260, 5}, {257, 64, 97}, {1031, 4, 1}};
  for (const auto& [rows, cols, table] : sizes)
    for (const int64_t skip : {0, 1})  // elements before the first: packs need an aligned address
      cases.push_back({label("rows of a table", {rows, cols, table}) + (skip ? ", not aligned" : ""),
                       [=, rows = rows, cols = cols, table = table](const Bench& bench) -> Results {
                         // Outside, too: kernels pass over that (the CPU's operation allows -1 alone).
                         const Tensor index = bench.integers({rows}, -1, int(table) - 1);
                         const auto shifted = [&](const Shape& shape, uint64_t seed) {
                           const int64_t n = shape.elements();
                           return bench.uniform({n + skip}, -0.25, 0.25, seed).slice(skip, n + skip).reshape(shape);
                         };
                         return {gather_rows(shifted({table, cols}, 1), index),
                                 scatter_add_rows(shifted({rows, cols}, 2), index, table)};
                       }});
  cases.push_back({"rows of a table with gradients", [](const Bench& bench) {
                     const Variable table = bench.variable(bench.normal({5, 12}));
                     const Tensor index = bench.integers({3, 11}, -1, 4);
                     const Variable x = gather_rows(table, index);
                     return with_gradients(bench, x + scatter_add_rows(table, bench.integers({5}, -1, 0, 3), 1),
                                           {table});
                   }});
}

void add_dropout(std::vector<Case>& cases) {
  for (const int64_t n : {0, 1, 3, 4, 1031, 4100})
    for (const double p : {0.0, 0.1, 0.5, 1.0})
      for (const int64_t skip : {0, 1})
        cases.push_back({label("dropout", {n}) + " with p = " + std::to_string(p) + (skip ? ", not aligned" : ""),
                         [=](const Bench& bench) -> Results {
                           const RandomDraw draw = Generator(7, bench.device).draw(3, Purpose::test);
                           const Tensor x = bench.uniform({n + skip}, 1, 2).slice(skip, n + skip);
                           const Tensor y = dropout(x, p, draw);
                           return {y, y.cast(DType::boolean)};
                         },
                         true});
  cases.push_back(
      {"dropout of more elements than the threads of the largest grid take at once", [](const Bench& bench) -> Results {
         Generator generator(8, bench.device);
         generator.set_step(5);
         const Tensor x = bench.place(Tensor::full({(1 << 22) + 4099}, 1));
         return {dropout(x, 0.25, generator.draw(0, Purpose::test)).cast(DType::boolean)};
       }});
  cases.push_back({"dropout with gradients", [](const Bench& bench) {
                     const Generator generator(9, bench.device);
                     const Variable x = bench.variable(bench.normal({7, 13}));
                     return with_gradients(bench, dropout(x, 0.3, generator.draw(1, Purpose::test)), {x});
                   }});
}

// Rows of no, of one, of a few and of more elements than a warp keeps in registers.
const Shape row_shapes[] = {{0, 5},    {1, 1},  {3, 1},     {5, 2},    {7, 31},        {3, 5, 32},
                            {33, 33},  {2, 64}, {9, 129},   {3, 257},  {2, 1023},      {3, 1024},
                            {3, 1025}, {67, 7}, {1031, 13}, {2, 2053}, {2, 3, 2, 4099}};

void add_layer_norm(std::vector<Case>& cases) {
  for (const Shape& shape : row_shapes)
    cases.push_back({label("layer_norm", shape), [shape](const Bench& bench) -> Results {
                       const Tensor x = bench.uniform(shape, -1, 3), dy = bench.uniform(shape, -0.1, 0.1, 2);
                       const Tensor weight = bench.uniform({shape[-1]}, 0.5, 1.5, 3),
                                    bias = bench.normal({shape[-1]}, 4);
                       const LayerNorm forward = layer_norm(x, weight, bias, 1e-2);
                       const LayerNormGradient g = layer_norm_backward(x, weight, forward, dy);
                       return {forward.y, forward.mean, forward.rstd, g.dx, g.dweight, g.dbias};
                     }});
  cases.push_back({"layer_norm of rows of nothing", [](const Bench& bench) -> Results {
                     const Tensor x = bench.normal({3, 0}), weight = bench.normal({0});
                     const LayerNorm forward = layer_norm(x, weight, weight, 1e-5);
                     const LayerNormGradient g = layer_norm_backward(x, weight, forward, x);
                     return {forward.y, g.dx, g.dweight, g.dbias};
                   }});
  cases.push_back({"layer_norm far from 0", [](const Bench& bench) -> Results {
                     const Tensor x = affine(bench.integers({5, 67}, -4, 4).cast(bench.dtype), 0.5, 64);
                     return {layer_norm(x, bench.normal({67}), bench.normal({67}, 2), 1e-5).y};
                   }});
  cases.push_back({"layer_norm with gradients", [](const Bench& bench) {
                     const Variable x = bench.variable(bench.uniform({7, 67}, -1, 2)),
                                    weight = bench.variable(bench.normal({67}, 2)),
                                    bias = bench.variable(bench.normal({67}, 3));
                     return with_gradients(bench, layer_norm(x, weight, bias), {x, weight, bias});
                   }});
}

void add_cross_entropy(std::vector<Case>& cases) {
  for (const Shape& shape : row_shapes)
    for (const int lowest : {-3, 0})
      cases.push_back({label("cross_entropy", shape) + (lowest < 0 ? ", some rows ignored" : ""),
                       [shape, lowest](const Bench& bench) -> Results {
                         const Tensor logits = bench.uniform(shape, -3, 3);
                         const Tensor targets = bench.integers(shape.without(-1), lowest, int(shape[-1]) - 1);
                         const CrossEntropy forward = cross_entropy(logits, targets);
                         const Tensor dloss = bench.place(Tensor::full({}, 1.5));
                         return {forward.loss, forward.logsumexp, forward.count,
                                 cross_entropy_backward(logits, targets, forward, dloss)};
                       }});
  cases.push_back({"cross_entropy of masked columns, of NaN and infinity", [](const Bench& bench) -> Results {
                     Results results;
                     for (const int64_t cols : {5, 70, 1300}) {
                       std::vector<float> x(size_t(5 * cols), 0.5f);
                       std::fill_n(x.begin() + 1, cols - 1, -INFINITY);
                       std::fill_n(x.begin() + cols, cols, -INFINITY);
                       x[size_t(2 * cols + cols - 1)] = NAN;
                       x[size_t(3 * cols)] = INFINITY;
                       const Tensor logits = bench.place(Tensor::from(x, {5, cols}));
                       for (const std::vector<int32_t>& rows :
                            {std::vector<int32_t>{0, -1, -1, -1, 3}, {-1, -1, -1, -1, -1}, {1, 2, 3, 0, 3}}) {
                         const Tensor targets = Tensor::from(rows, {5}).to(bench.device);
                         const CrossEntropy forward = cross_entropy(logits, targets);
                         const Tensor dloss = bench.place(Tensor::full({}, 1));
                         results.insert(results.end(), {forward.loss, forward.logsumexp, forward.count,
                                                        cross_entropy_backward(logits, targets, forward, dloss)});
                       }
                     }
                     return results;
                   }});
  cases.push_back({"cross_entropy with gradients", [](const Bench& bench) {
                     const Variable x = bench.variable(bench.normal({3, 7, 13}));
                     return with_gradients(bench, cross_entropy(x, bench.integers({3, 7}, -1, 12)), {x});
                   }});
}

// Three steps from the count `taken`: an ordinary one, one that is skipped, one that is clipped. The values and the
// moments after each, and the state. Parameter 2 gets no gradient in the first.
using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<Variable>&)>;
Results steps(const Bench& bench, const Make& make, int64_t taken, const std::vector<int64_t>& sizes) {
  std::vector<Variable> parameters;
  for (const int64_t n : sizes) parameters.push_back(bench.variable(bench.normal({n}, uint64_t(n))));
  // A view of memory that no pack of elements starts at.
  parameters.push_back(bench.variable(bench.normal({1032}).slice(1, 1032)));
  const auto optimizer = make(parameters);
  OptimizerState state = optimizer->state();
  state.step = taken;
  optimizer->set_state(state);

  Results results;
  for (uint64_t step = 0; step < 3; ++step) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad() =
          step == 0 && i == 2 ? Tensor() : bench.normal(parameters[i].shape(), 10 * i + step);
      if (step == 1 && i == 1)
        parameters[i].mutable_grad() = bench.place(Tensor::full(parameters[i].shape(), INFINITY));
    }
    optimizer->set_max_gradient_norm(step == 2 ? 2 : 0);
    optimizer->step();
    for (const Variable& x : parameters) results.push_back(x.value().clone());
    for (const auto& moment : optimizer->moments()) results.push_back(moment.tensor.clone());
    state = optimizer->state();
    results.push_back(Tensor::from<int64_t>({state.step, state.skip, state.skipped, state.skipped_in_a_row}, {4}));
    results.push_back(Tensor::from<double>({state.gradient_norm, state.gradient_scale, state.learning_rate}, {3}));
  }
  return results;
}

void add_optimizers(std::vector<Case>& cases) {
  const AdamOptions options{0.9, 0.99, 1e-6, 0.1};
  const std::pair<const char*, Make> optimizers[] = {
      {"R-Adam", [=](const auto& x) { return std::make_unique<RAdam>(x, 0.01, options); }},
      {"Adam", [=](const auto& x) { return std::make_unique<Adam>(x, 0.01, options); }},
      {"SGD",
       [](const auto& x) {
         return std::make_unique<Sgd>(x, 0.1, SgdOptions{0, 0.1});
       }},
      {"SGD with momentum",
       [](const auto& x) {
         return std::make_unique<Sgd>(x, 0.1, SgdOptions{0.9, 0});
       }},
  };
  for (const auto& [name, make] : optimizers) {
    for (const int64_t taken : {0, 100})  // R-Adam is rectified from the sixth step on
      cases.push_back({concat(name, ", ", taken, " steps taken"), [=, make = make](const Bench& bench) {
                         return steps(bench, make, taken, {7, 1, 5, 0, 257, 4096, 4099, 13003});
                       }});
    cases.push_back({concat(name, ", more elements than the grid takes at once"), [make = make](const Bench& bench) {
                       return steps(bench, make, 9, {3, 1, 2, 1500001, 700001});
                     }});
  }
  cases.push_back({"an optimiser of hundreds of parameters", [make = optimizers[0].second](const Bench& bench) {
                     std::vector<int64_t> sizes;
                     for (int64_t n = 0; n < 700; ++n) sizes.push_back(n % 13 + 1);
                     return steps(bench, make, 9, sizes);
                   }});
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_elementwise(cases);
  add_reduce(cases);
  add_rows(cases);
  add_dropout(cases);
  add_layer_norm(cases);
  add_cross_entropy(cases);
  add_optimizers(cases);
  return cases;
}

void check_same(const Results& a, const Results& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO("result " << i);
    REQUIRE(a[i].shape() == b[i].shape());
    const bool whole = !is_floating(a[i].dtype());
    const auto values = [](const Tensor& x) { return x.to(Device::cpu).cast(DType::float64).to_vector<double>(); };
    CHECK(difference(values(a[i]), values(b[i])) <= (whole ? 0 : tolerance));
  }
}

}  // namespace

TEST_CASE("every operation on CUDA computes what it computes on the CPU", "[gpu]") {
  for (const Case& test : all_cases()) {
    INFO(test.name);
    check_same(test.run({Device::cuda, DType::float32}), test.run({Device::cpu, DType::float32}),
               test.exact ? 0 : tolerance::float32);
  }
}

TEST_CASE("every operation on CUDA computes in bfloat16 what the CPU does in float32", "[gpu]") {
  for (const Case& test : all_cases()) {
    INFO(test.name);
    check_same(test.run({Device::cuda, DType::bfloat16, true}), test.run({Device::cpu, DType::float32, true}),
               tolerance::bfloat16);
  }
}

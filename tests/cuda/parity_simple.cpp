// Cases of parity.h: what works element by element and row by row.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "tests/cuda/parity.h"

namespace cairn::test {

void add_elementwise(std::vector<Case>& cases) {
  for (const int64_t n : {0, 1, 7, 257, 4099})
    for (const Unary op : {Unary::negate, Unary::exp, Unary::log, Unary::sqrt, Unary::square, Unary::relu, Unary::gelu})
      cases.push_back({label(name(op), {n}), [=](const Bench& bench) -> Results {
                         const bool positive = op == Unary::log || op == Unary::sqrt;
                         const Tensor x = bench.uniform({n}, positive ? 0.25 : -3, 3), dy = bench.normal({n}, 2);
                         return {{"y", unary(op, x)}, {"dx", unary_backward(op, x, dy)}};
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
                         return {{"y", binary(op, bench.normal(a), bench.uniform(b, 0.5, 2, 2))}};
                       }});
  for (const int64_t n : {0, 1, 1031})
    cases.push_back({label("affine and accumulate", {n}), [=](const Bench& bench) -> Results {
                       Tensor y = bench.normal({n}, 2);
                       accumulate(y, bench.normal({n}), -0.75);
                       return {{"affine", affine(bench.normal({n}), 1.5, -0.25)}, {"sum", y}};
                     }});
  cases.push_back({"addresses that no pack of elements starts at", [](const Bench& bench) -> Results {
                     const Tensor x = bench.normal({1000});
                     Tensor y = bench.normal({1001}, 2);
                     Tensor part = y.slice(1, 1001);
                     accumulate(part, x, 0.5);
                     return {{"square", unary(Unary::square, y.slice(3, 778))}, {"sum", y}};
                   }});
  // 4096 blocks of 256 threads, each of which has four elements.
  cases.push_back(
      {"more elements than the threads of the largest grid take at once", [](const Bench& bench) -> Results {
         return {{"y", affine(broadcast_to(bench.normal({4297}), {2003, 4297}), 2)}};
       }});
  cases.push_back(
      {"more elements than the threads of the largest grid of a broadcast", [](const Bench& bench) -> Results {
         return {{"y", broadcast_to(bench.normal({2003, 1}), {2003, 2099})}};
       }});
  for (const auto& [from, to] : std::vector<std::pair<Shape, Shape>>{
           {{}, {5}}, {{1}, {0}}, {{3, 1}, {3, 131}}, {{131}, {3, 131}}, {{3, 1, 2, 1}, {3, 5, 2, 7}}})
    cases.push_back({label("broadcast_to", to) + " from " + to_string(from),
                     [from = from, to = to](const Bench& bench) -> Results {
                       return {{"y", broadcast_to(bench.normal(from), to)}};
                     },
                     true});
  cases.push_back({"arithmetic with gradients", [](const Bench& bench) {
                     const Variable a = bench.variable(bench.normal({5, 13})),
                                    b = bench.variable(bench.uniform({5, 13}, 0.5, 2, 2));
                     return with_gradients(bench, 2 * (a / b) + a * b - gelu(a) + 0.5, {{"a", a}, {"b", b}});
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
                           results.push_back({concat("as ", name(to)), x.cast(to)});
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
                         return {{"y", reduce(op, bench.uniform(shape, -0.25, 0.3), axis)}};
                       },
                       op == Reduce::max});
  cases.push_back({"sums of all elements, and of those that were stretched", [](const Bench& bench) -> Results {
                     const Tensor x = bench.uniform({3, 5, 41}, -0.5, 0.5);
                     return {{"of all", sum_all(x)},
                             {"to [41]", sum_to(x, {41})},
                             {"to [5, 1]", sum_to(x, {5, 1})},
                             {"to [3, 1, 1]", sum_to(x, {3, 1, 1})}};
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
                       results.push_back({concat("max of ", n), reduce(Reduce::max, rows, 1)});
                       results.push_back({concat("sum of ", n), reduce(Reduce::sum, rows, 1)});
                       results.push_back({concat("max over axis 0 of ", n), reduce(Reduce::max, rows, 0)});
                     }
                     return results;
                   }});
  cases.push_back({"reductions with gradients", [](const Bench& bench) {
                     const Variable x = bench.variable(bench.uniform({7, 33}, -0.5, 0.5)),
                                    bias = bench.variable(bench.normal({33}, 2));
                     return with_gradients(bench, sum(x * bias, 0) + mean(x) + broadcast_to(bias, {33}),
                                           {{"x", x}, {"bias", bias}});
                   }});
}

void add_gather_rows(std::vector<Case>& cases) {
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
                         return {{"gathered", gather_rows(shifted({table, cols}, 1), index)},
                                 {"scattered", scatter_add_rows(shifted({rows, cols}, 2), index, table)}};
                       }});
  cases.push_back({"rows of a table with gradients", [](const Bench& bench) {
                     const Variable table = bench.variable(bench.normal({5, 12}));
                     const Tensor index = bench.integers({3, 11}, -1, 4);
                     const Variable x = gather_rows(table, index);
                     return with_gradients(bench, x + scatter_add_rows(table, bench.integers({5}, -1, 0, 3), 1),
                                           {{"table", table}});
                   }});
}

void add_bias_activation(std::vector<Case>& cases) {
  // Rows of packs and of single elements; in the last one, more than the threads of the largest grid take at once.
  for (const Shape& shape : {Shape{0, 5}, Shape{3, 0}, Shape{1, 1}, Shape{7}, Shape{67, 13}, Shape{2, 3, 8},
                             Shape{129, 260}, Shape{5003, 211}})
    for (const Activation activation : {Activation::gelu, Activation::relu})
      for (const int64_t skip : {0, 1}) {
        if (shape.elements() > 100'000 && (skip || activation == Activation::gelu)) continue;
        cases.push_back({label(activation == Activation::gelu ? "bias and gelu" : "bias and relu", shape) +
                             (skip ? ", not aligned" : ""),
                         [=](const Bench& bench) -> Results {
                           const auto shifted = [&](const Shape& of, uint64_t seed) {
                             const int64_t n = of.elements();
                             return bench.uniform({n + skip}, -2, 2, seed).slice(skip, n + skip).reshape(of);
                           };
                           const Tensor x = shifted(shape, 1), bias = shifted({shape[-1]}, 2), dy = shifted(shape, 3);
                           return {{"y", bias_activation(x, bias, activation)},
                                   {"dx", bias_activation_backward(x, bias, activation, dy)}};
                         }});
      }
  cases.push_back(
      {"bias and activation with gradients", [](const Bench& bench) {
         const Variable x = bench.variable(bench.normal({3, 7, 12})), bias = bench.variable(bench.normal({12}, 2));
         return with_gradients(bench, bias_activation(x, bias, Activation::gelu), {{"x", x}, {"bias", bias}});
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
                           const Tensor residual = bench.uniform({n + skip}, -2, 0, 2).slice(skip, n + skip);
                           return {{"y", y},
                                   {"kept", y.cast(DType::boolean)},
                                   {"with residual", dropout_add(x, p, draw, residual)}};
                         },
                         true});
  cases.push_back(
      {"dropout of more elements than the threads of the largest grid take at once", [](const Bench& bench) -> Results {
         Generator generator(8, bench.device);
         generator.set_step(5);
         const Tensor x = bench.place(Tensor::full({(1 << 22) + 4099}, 1));
         return {{"kept", dropout(x, 0.25, generator.draw(0, Purpose::test)).cast(DType::boolean)}};
       }});
  cases.push_back({"dropout with gradients", [](const Bench& bench) {
                     const Generator generator(9, bench.device);
                     const Variable x = bench.variable(bench.normal({7, 13}));
                     return with_gradients(bench, dropout(x, 0.3, generator.draw(1, Purpose::test)), {{"x", x}});
                   }});
  cases.push_back(
      {"dropout_add with gradients", [](const Bench& bench) {
         const Generator generator(9, bench.device);
         const Variable x = bench.variable(bench.normal({7, 13})), residual = bench.variable(bench.normal({7, 13}, 2));
         const RandomDraw draw = generator.draw(1, Purpose::test);
         return with_gradients(bench, dropout_add(x, 0.3, draw, residual), {{"x", x}, {"residual", residual}});
       }});
}

// Rows of no, of one, of a few and of more elements than a warp keeps in registers.
static const Shape row_shapes[] = {{0, 5},    {1, 1},  {3, 1},     {5, 2},    {7, 31},        {3, 5, 32},
                                   {33, 33},  {2, 64}, {9, 129},   {3, 257},  {2, 1023},      {3, 1024},
                                   {3, 1025}, {67, 7}, {1031, 13}, {2, 2053}, {2, 3, 2, 4099}};

void add_layer_norm(std::vector<Case>& cases) {
  for (const Shape& shape : row_shapes)
    cases.push_back({label("layer_norm", shape), [shape](const Bench& bench) -> Results {
                       const Tensor x = bench.uniform(shape, -1, 3), dy = bench.uniform(shape, -0.1, 0.1, 2);
                       const Tensor weight = bench.uniform({shape[-1]}, 0.5, 1.5, 3),
                                    bias = bench.normal({shape[-1]}, 4);
                       const LayerNormResult forward = layer_norm(x, weight, bias, 1e-2);
                       const LayerNormGradient g = layer_norm_backward(x, weight, forward, dy);
                       return {{"y", forward.y}, {"mean", forward.mean}, {"rstd", forward.rstd},
                               {"dx", g.dx},     {"dweight", g.dweight}, {"dbias", g.dbias}};
                     }});
  cases.push_back({"layer_norm of rows of nothing", [](const Bench& bench) -> Results {
                     const Tensor x = bench.normal({3, 0}), weight = bench.normal({0});
                     const LayerNormResult forward = layer_norm(x, weight, weight, 1e-5);
                     const LayerNormGradient g = layer_norm_backward(x, weight, forward, x);
                     return {{"y", forward.y}, {"dx", g.dx}, {"dweight", g.dweight}, {"dbias", g.dbias}};
                   }});
  cases.push_back({"layer_norm far from 0", [](const Bench& bench) -> Results {
                     const Tensor x = affine(bench.integers({5, 67}, -4, 4).cast(bench.dtype), 0.5, 64);
                     return {{"y", layer_norm(x, bench.normal({67}), bench.normal({67}, 2), 1e-5).y}};
                   }});
  cases.push_back(
      {"layer_norm with gradients", [](const Bench& bench) {
         const Variable x = bench.variable(bench.uniform({7, 67}, -1, 2)),
                        weight = bench.variable(bench.normal({67}, 2)), bias = bench.variable(bench.normal({67}, 3));
         return with_gradients(bench, layer_norm(x, weight, bias), {{"x", x}, {"weight", weight}, {"bias", bias}});
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
                         return {{"loss", forward.loss},
                                 {"logsumexp", forward.logsumexp},
                                 {"count", forward.count},
                                 {"dlogits", cross_entropy_backward(logits, targets, forward, dloss)}};
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
                         results.insert(results.end(),
                                        {{"loss", forward.loss},
                                         {"logsumexp", forward.logsumexp},
                                         {"count", forward.count},
                                         {"dlogits", cross_entropy_backward(logits, targets, forward, dloss)}});
                       }
                     }
                     return results;
                   }});
  cases.push_back({"cross_entropy with gradients", [](const Bench& bench) {
                     const Variable x = bench.variable(bench.normal({3, 7, 13}));
                     return with_gradients(bench, cross_entropy(x, bench.integers({3, 7}, -1, 12)), {{"logits", x}});
                   }});
}

}  // namespace cairn::test

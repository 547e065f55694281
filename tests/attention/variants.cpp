// Walks the list of variants: each is held to its reference, also one that a program adds.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "core/parallel.h"
#include "nn/attention/observe.h"
#include "tests/attention/trials.h"
#include "tests/nn/module_test.h"

namespace {

struct Inputs {
  Tensor q, k, v;
  AttentionMask mask;

  Inputs(int64_t B, int64_t N, int64_t S, int64_t H, int64_t D, int64_t M, DType dtype = DType::float64)
      : q(random_tensor({B, N, H, D}, dtype, 11)),
        k(random_tensor({B, S, H, D}, dtype, 12)),
        v(random_tensor({B, S, H, M}, dtype, 13)) {}

  Variable run(const Attention& attention, const AttentionContext& context) const {
    return attention(Variable(q), Variable(k), Variable(v), mask, context);
  }
};

AttentionContext context_of(const Generator& generator, AttentionChoices* report = nullptr) {
  AttentionContext context;
  context.generator = &generator;
  context.report = report;
  return context;
}

// The weights by the reference, with what the variant chose and learned, times the values: [B, N, H, M].
std::vector<double> expected(const Trial& trial, Attention& attention, const Inputs& in,
                             const AttentionChoices& made = {}) {
  const int64_t B = in.q.size(0), N = in.q.size(1), H = in.q.size(2), D = in.q.size(3), S = in.v.size(1),
                M = in.v.size(3);
  const auto q = as_double(in.q), k = as_double(attention.shares_keys() ? in.q : in.k), v = as_double(in.v);
  const auto length = [](const Tensor& lengths, int64_t b, int64_t all) {
    return lengths.defined() ? int64_t(lengths.data<int32_t>()[b]) : all;
  };
  // Rows of one head of x [.., H, D].
  const auto rows = [&](const std::vector<double>& x, int64_t b, int64_t n, int64_t h) {
    reference::Matrix result;
    for (int64_t i = 0; i < n; ++i) {
      const auto first = x.begin() + ((b * n + i) * H + h) * D;
      result.emplace_back(first, first + D);
    }
    return result;
  };
  std::vector<double> out(size_t(B * N * H * M), 0.0);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h) {
      reference::Problem p;
      read_spec(attention.spec(), trial.name, p);
      p.q = rows(q, b, N, h), p.k = rows(k, b, S, h);
      p.queries = length(in.mask.query_lengths, b, N), p.keys = length(in.mask.key_lengths, b, S);
      p.scale = attention.scale() != 0 ? attention.scale() : 1 / std::sqrt(double(D));
      p.visible = [&](int64_t i, int64_t j) {
        if (in.mask.causal && j > i) return false;
        return !in.mask.allowed.defined() || in.mask.allowed.data<bool>()[i * S + j];
      };
      for (const auto& [name, choice] : made.tensors) {
        if (choice.dtype() != DType::int32) continue;
        const auto values = choice.to_vector<int32_t>();
        const int64_t count = choice.rank() == 4 ? choice.size(2) : 1, columns = choice.size(-1);
        for (int64_t r = 0; r < count; ++r) {
          const auto first = values.begin() + ((b * H + h) * count + r) * columns;
          p.chosen[name].emplace_back(first, first + columns);
        }
      }
      for (const auto& [name, parameter] : named_parameters(attention)) {
        const auto values = as_double(parameter.value());
        const int64_t count = parameter.size(1), columns = parameter.size(2);
        for (int64_t r = 0; r < count; ++r) {
          const auto first = values.begin() + (h * count + r) * columns;
          p.learned[name].emplace_back(first, first + columns);
        }
      }
      const reference::Matrix a = trial.entry.weights(p);
      // [eq. 2] [eq. 5] [eq. 11] [eq. 15] Weights times values.
      for (int64_t i = 0; i < N; ++i)
        for (int64_t m = 0; m < M; ++m)
          for (int64_t j = 0; j < S; ++j)
            out[size_t(((b * N + i) * H + h) * M + m)] +=
                a[size_t(i)][size_t(j)] * v[size_t(((b * S + j) * H + h) * M + m)];
    }
  return out;
}

// x [B, N, H, D] or labels [B, H, N], with position i of the result that of order[i] before.
Tensor reordered(const Tensor& x, const std::vector<int64_t>& order) {
  if (x.dtype() == DType::int32) {
    auto from = x.to_vector<int32_t>(), to = from;
    const auto n = int64_t(order.size());
    for (size_t i = 0; i < from.size(); ++i) to[i] = from[size_t(int64_t(i) / n * n + order[size_t(int64_t(i) % n)])];
    return Tensor::from(to, x.shape());
  }
  Tensor result(x.shape(), x.dtype());
  for (int64_t b = 0; b < x.size(0); ++b)
    for (int64_t i = 0; i < x.size(1); ++i) {
      const auto row = [&](const Tensor& t, int64_t n) {
        return t.slice(b, b + 1).reshape({x.size(1), x.size(2), x.size(3)}).slice(n, n + 1);
      };
      row(result, i).copy_from(row(x, order[size_t(i)]));
    }
  return result;
}

}  // namespace

TEST_CASE("every attention variant has a reference", "[attention]") {
  std::set<std::string> names;
  for (const auto* variant : attention_variants()) {
    INFO(variant->name);
    CHECK(reference::references().count(variant->name) == 1);
    CHECK(names.insert(variant->name).second);
  }
  CHECK(names.size() == reference::references().size());
}

TEST_CASE("every attention variant agrees with its reference", "[attention]") {
  const Generator generator(5);
  for (const Trial& trial : trials(4, 4))
    for (DType dtype : {DType::float32, DType::float64})
      for (int64_t n : {0, 1, 2, 7, 33}) {
        Inputs in(2, n, n, 3, 5, 5, dtype);
        for (int masks = 0; masks < 3; ++masks) {
          if (masks == 1) in.mask.query_lengths = in.mask.key_lengths = int32s({int32_t(n), int32_t(n / 2)});
          if (masks == 2) in.mask.query_lengths = in.mask.key_lengths = int32s({0, int32_t(n > 0)});
          const auto attention = trial.make(3, 5);
          INFO(trial.spec << ' ' << name(dtype) << " N = " << n << " lengths " << masks);
          AttentionChoices made;
          const Variable out = in.run(*attention, context_of(generator, &made));
          REQUIRE(out.shape() == Shape{2, n, 3, 5});
          CHECK(difference(out.value(), expected(trial, *attention, in, made)) <= tolerance_of(dtype));
        }
      }
}

TEST_CASE("the observed weights of every attention variant are its reference's", "[attention]") {
  const Generator generator(5);
  constexpr int64_t B = 2, H = 3;
  for (const Trial& trial : trials(4, 4))
    for (DType dtype : {DType::float32, DType::float64})
      for (int64_t n : {0, 1, 7, 33})
        for (bool lengths : {false, true}) {
          Inputs in(B, n, n, H, 5, n, dtype);
          in.v = Tensor::zeros({B, n, H, n}, DType::float64);  // with the identity for values, weights are the output
          for (int64_t row = 0; row < B * n * H; ++row) in.v.mutable_data<double>()[row * n + row / H % n] = 1;
          if (lengths) in.mask.query_lengths = in.mask.key_lengths = int32s({int32_t(n / 2), 0});
          const auto attention = trial.make(H, 5);
          INFO(trial.spec << ' ' << name(dtype) << " N = " << n << (lengths ? " with lengths" : ""));
          AttentionChoices made;
          const Tensor weights = attention_weights(*attention, in.q, in.k, in.mask, context_of(generator, &made));
          REQUIRE(weights.shape() == Shape{B, H, n, n});
          REQUIRE(weights.dtype() == DType::float32);
          const auto rows = expected(trial, *attention, in, made);
          std::vector<double> by_head;
          for (int64_t b = 0; b < B; ++b)
            for (int64_t h = 0; h < H; ++h)
              for (int64_t i = 0; i < n; ++i)
                by_head.insert(by_head.end(), rows.begin() + ((b * n + i) * H + h) * n,
                               rows.begin() + ((b * n + i) * H + h + 1) * n);
          CHECK(difference(weights, by_head) <= tolerance::float32);
        }
}

TEST_CASE("every attention variant honors a mask or refuses it", "[attention]") {
  const Generator generator(5);
  const int64_t n = 9;
  std::vector<uint8_t> pattern;
  for (int64_t i = 0; i < n * n; ++i) pattern.push_back(i / n != 4 && i * 7 % 5 != 0);  // query 4 sees nothing
  Tensor allowed({n, n}, DType::boolean);
  for (int64_t i = 0; i < n * n; ++i) allowed.mutable_data<bool>()[i] = pattern[size_t(i)];
  for (const Trial& trial : trials(3, 3))
    for (bool causal : {false, true}) {
      Inputs in(1, n, n, 2, 4, 4);
      in.mask.causal = causal;
      if (!causal) in.mask.allowed = allowed;
      const auto attention = trial.make(2, 4);
      INFO(trial.spec << (causal ? " causal" : " boolean"));
      AttentionChoices made;
      if (causal ? trial.entry.causal : trial.entry.boolean_mask) {
        const Variable out = in.run(*attention, context_of(generator, &made));
        CHECK(difference(out.value(), expected(trial, *attention, in, made)) <= tolerance::float64);
      } else {
        CHECK_THROWS_AS(in.run(*attention, context_of(generator, &made)), UsageError);
        CHECK_THROWS_WITH(in.run(*attention, context_of(generator, &made)),
                          Catch::Matchers::ContainsSubstring("cannot honor"));
      }
    }
}

TEST_CASE("cross attention of every variant that has it", "[attention]") {
  const Generator generator(5);
  for (const Trial& trial : trials(3, 3))
    for (int64_t s : {0, 1, 12}) {
      Inputs in(2, 7, s, 2, 5, 3);
      const auto attention = trial.make(2, 5);
      INFO(trial.spec << " S = " << s);
      if (!trial.entry.cross) {
        CHECK_THROWS_AS(in.run(*attention, context_of(generator)), UsageError);
        CHECK_THROWS_WITH(in.run(*attention, context_of(generator)),
                          Catch::Matchers::ContainsSubstring("cross attention"));
        continue;
      }
      AttentionChoices made;
      const Variable out = in.run(*attention, context_of(generator, &made));
      CHECK(difference(out.value(), expected(trial, *attention, in, made)) <= tolerance::float64);
    }
}

// What is chosen is replayed, so that the step of the difference cannot change it.
TEST_CASE("gradients of every attention variant", "[attention][grad]") {
  const Generator generator(3);
  for (const Trial& trial : trials(3, 3))
    for (bool dropped : {false, true})
      for (bool lengths : {false, true}) {
        Inputs in(2, 7, 7, 2, 3, 3);
        if (lengths) in.mask.query_lengths = in.mask.key_lengths = int32s({5, 0});
        const auto attention = trial.make(2, 3);
        INFO(trial.spec << (dropped ? " with dropout" : "") << (lengths ? " with lengths" : ""));
        AttentionChoices made;
        in.run(*attention, context_of(generator, &made));
        AttentionContext context = context_of(generator);
        context.replay = &made;
        context.training = dropped;
        context.dropout = dropped ? 0.4 : 0;
        std::vector<Tensor> inputs{in.q, in.k, in.v};
        for (const Variable& parameter : parameters(*attention))
          inputs.push_back(parameter.value().cast(DType::float64));
        const auto run = [&](const std::vector<Variable>& x) {
          Replace replace(x.data() + 3);
          attention->fields(replace);
          return (*attention)(x[0], x[1], x[2], in.mask, context);
        };
        const OneThread one_thread;
        const auto checked = check_gradient(run, inputs);
        INFO(checked.where);
        CHECK(checked.error <= tolerance::gradient);
      }
}

TEST_CASE("dropout leaves the mean of every attention variant as it is", "[attention]") {
  Generator generator(4);
  const OneThread one_thread;
  for (const Trial& trial : trials(3, 3)) {
    INFO(trial.spec);
    const Inputs in(1, 8, 8, 2, 4, 4);
    const auto attention = trial.make(2, 4);
    generator.set_step(0);
    AttentionChoices made;
    const auto plain = as_double(in.run(*attention, context_of(generator, &made)).value());
    AttentionContext context = context_of(generator);
    context.replay = &made;
    context.dropout = 0.25;
    CHECK(difference(in.run(*attention, context).value(), plain) <= tolerance::float64);  // not in training
    context.training = true;
    constexpr int draws = 1500;
    std::vector<double> sum(plain.size(), 0.0), squares(plain.size(), 0.0);
    for (int step = 1; step <= draws; ++step) {
      generator.set_step(uint64_t(step));
      const auto out = as_double(in.run(*attention, context).value());
      for (size_t i = 0; i < out.size(); ++i) sum[i] += out[i], squares[i] += out[i] * out[i];
    }
    double spread = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
      const double mean = sum[i] / draws, variance = std::max(0.0, squares[i] / draws - mean * mean);
      spread = std::max(spread, variance);
      INFO("element " << i);
      CHECK(std::abs(mean - plain[i]) <= 6 * std::sqrt(variance / draws) + 1e-9);  // six standard errors
    }
    CHECK(spread > 1e-4);  // something is dropped
  }
}

TEST_CASE("every attention variant draws for a part of a batch what it draws for it in the whole batch",
          "[attention]") {
  Generator generator(8);
  const int64_t B = 5, n = 33;
  for (const Trial& trial : trials(4, 4))
    for (const bool lengths : {false, true}) {
      INFO(trial.spec << (lengths ? " with lengths" : ""));
      Inputs all(B, n, n, 3, 5, 5);
      if (lengths) all.mask.query_lengths = all.mask.key_lengths = int32s({33, 20, 0, 33, 9});
      const Tensor dout = random_tensor(all.v.shape(), DType::float64, 14);
      const auto attention = trial.make(3, 5);
      // The output and the gradients for examples [first, end).
      const auto run = [&](int64_t first, int64_t end) {
        const auto part = [&](const Tensor& x) { return x.slice(first, end); };
        const Variable q(part(all.q), true), k(part(all.k), true), v(part(all.v), true);
        AttentionMask mask;
        if (lengths) mask.query_lengths = mask.key_lengths = part(all.mask.key_lengths);
        generator.set_first_example(first);
        AttentionContext context = context_of(generator);
        context.training = true, context.dropout = 0.3;
        const Variable out = (*attention)(q, k, v, mask, context);
        backward(out, part(dout));
        std::vector<Tensor> results{out.value(), q.grad(), v.grad()};
        if (!attention->shares_keys()) results.push_back(k.grad());
        return results;
      };
      const auto whole = run(0, B);
      for (const auto& [first, end] : {std::pair<int64_t, int64_t>{0, 2}, {2, 5}}) {
        const auto part = run(first, end);
        for (size_t i = 0; i < part.size(); ++i) {
          INFO("result " << i << " of examples from " << first);
          CHECK(same_bits(part[i], whole[i].slice(first, end)));
        }
      }
    }
}

TEST_CASE("an attention variant that tells queries apart by content alone moves with them", "[attention]") {
  const Generator generator(6);
  const int64_t n = 17;
  std::vector<int64_t> order;
  for (int64_t i = 0; i < n; ++i) order.push_back((i * 5 + 3) % n);
  for (const Trial& trial : trials(4, 4)) {
    if (!trial.entry.equivariant) continue;
    INFO(trial.spec);
    const Inputs in(2, n, n, 3, 4, 4);
    const auto attention = trial.make(3, 4);
    AttentionChoices made, moved;
    const Tensor out = in.run(*attention, context_of(generator, &made)).value();
    Inputs other(2, n, n, 3, 4, 4);
    other.q = reordered(in.q, order);
    if (attention->shares_keys()) other.v = reordered(in.v, order);
    for (const auto& [name, choice] : made.tensors)
      if (choice.dtype() == DType::int32 && choice.rank() == 3) moved.tensors[name] = reordered(choice, order);
    AttentionContext context = context_of(generator);
    context.replay = &moved;
    CHECK(difference(other.run(*attention, context).value(), reordered(out, order)) <= tolerance::float64);
  }
}

TEST_CASE("every attention variant says what is wrong with its operands", "[attention]") {
  const Generator generator(5);
  for (const Trial& trial : trials(3, 3)) {
    INFO(trial.spec);
    const auto attention = trial.make(2, 4);
    const auto fails = [&](const Inputs& in) { CHECK_THROWS_AS(in.run(*attention, context_of(generator)), Error); };
    const Inputs good(2, 6, 6, 2, 4, 4);
    for (int32_t length : {-1, 7}) {
      Inputs in = good;
      in.mask.query_lengths = in.mask.key_lengths = int32s({3, length});
      fails(in);
    }
    Inputs in = good;
    in.mask.query_lengths = in.mask.key_lengths = int32s({3});
    fails(in);
    in = good, in.v = random_tensor({2, 6, 3, 4});
    fails(in);
    in = good, in.v = random_tensor({1, 6, 2, 4});
    fails(in);
    in = good, in.q = random_tensor({2, 6, 8});
    fails(in);
    in = good, in.v = random_tensor({2, 6, 2, 4}, DType::float32);
    fails(in);
    if (attention->shares_keys()) continue;
    in = good, in.k = random_tensor({2, 6, 2, 5});
    fails(in);
    in = good, in.k = random_tensor({2, 5, 2, 4});
    fails(in);
  }
}

TEST_CASE("mass_gradient=false leaves the mass without a gradient", "[attention][grad]") {
  const Generator generator(3);
  const Inputs in(1, 8, 8, 1, 3, 3);
  const auto gradient_of = [&](const char* spec) {
    const Variable q(in.q, true), k(in.k, true), v(in.v, true);
    const Variable out = (*make_attention(spec))(q, k, v, {}, context_of(generator));
    backward(sum(square(out)));
    return std::vector<Tensor>{out.value(), k.grad(), v.grad()};
  };
  const auto with = gradient_of("i-clustered-2:topk=3"),
             without = gradient_of("i-clustered-2:topk=3,mass_gradient=false");
  CHECK(difference(with[0], without[0]) == 0);
  CHECK(difference(with[1], without[1]) > 1e-3);
  CHECK(difference(with[2], without[2]) == 0);  // the mass does not depend on the values
}

TEST_CASE("every attention variant is deterministic for any number of threads", "[attention]") {
  const int before = threads();
  for (const Trial& trial : trials(5, 4)) {
    const auto attention = trial.make(3, 7);
    std::vector<std::vector<float>> results;
    for (int count : {1, 2, 3}) {
      set_threads(count);
      const Generator generator(5);
      const Inputs in(1, 301, 301, 3, 7, 7, DType::float32);
      const Variable q(in.q, true), k(in.k, true), v(in.v, true);
      AttentionContext context = context_of(generator);
      context.training = true;
      context.dropout = 0.2;
      const Variable out = (*attention)(q, k, v, {}, context);
      backward(sum(square(out)));
      std::vector<float> all = out.value().to_vector<float>();
      for (const Variable& x : {q, k, v}) {
        const auto gradient = x.grad().defined() ? x.grad().to_vector<float>() : std::vector<float>();
        all.insert(all.end(), gradient.begin(), gradient.end());
      }
      results.push_back(all);
    }
    INFO(attention->spec());
    CHECK((results[0] == results[1]));  // in brackets: thousands of numbers are not to be printed
    CHECK((results[0] == results[2]));
  }
  set_threads(before);
}

TEST_CASE("padding changes an attention variant's results by rounding alone", "[attention]") {
  const Generator generator(8);
  constexpr int64_t B = 2, H = 2, D = 4, n = 21;
  // Rows [from, to) of each batch element.
  const auto rows = [](const Tensor& x, int64_t from, int64_t to) {
    std::vector<double> all;
    for (int64_t b = 0; b < B; ++b) {
      const auto part = as_double(x.slice(b, b + 1).reshape({x.size(1), H, D}).slice(from, to));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  for (const Trial& trial : trials(4, 5)) {
    const auto attention = trial.make(H, D);
    INFO(attention->spec());
    // The output, and the gradients of q, v and k.
    const auto run = [&](const Inputs& in, const Tensor& dout, AttentionChoices& made) {
      const Variable q(in.q, true), k(in.k, true), v(in.v, true);
      const Variable out = (*attention)(q, k, v, in.mask, context_of(generator, &made));
      backward(out, dout);
      std::vector<Tensor> results{out.value(), q.grad(), v.grad()};
      if (!attention->shares_keys()) results.push_back(k.grad());
      return results;
    };
    const Inputs in(B, n, n, H, D, D);
    const Tensor dout = random_tensor({B, n, H, D}, DType::float64, 9);
    AttentionChoices made;
    const auto expected = run(in, dout, made);
    for (int64_t padding : {1, 200}) {
      Inputs padded(B, n + padding, n + padding, H, D, D);
      Tensor padded_dout = random_tensor({B, n + padding, H, D}, DType::float64, 10);  // not 0 beyond the lengths
      for (auto [from, to] :
           {std::pair{&in.q, &padded.q}, {&in.k, &padded.k}, {&in.v, &padded.v}, {&dout, &padded_dout}})
        for (int64_t b = 0; b < B; ++b)
          to->slice(b, b + 1)
              .reshape({n + padding, H, D})
              .slice(0, n)
              .copy_from(from->slice(b, b + 1).reshape({n, H, D}));
      padded.mask.query_lengths = padded.mask.key_lengths = int32s({int32_t(n), int32_t(n)});
      AttentionChoices padded_made;
      const auto results = run(padded, padded_dout, padded_made);
      for (size_t i = 0; i < results.size(); ++i) {
        INFO("result " << i);
        for (double number : rows(results[i], n, n + padding)) REQUIRE(number == 0);
        CHECK(difference(rows(results[i], 0, n), rows(expected[i], 0, n)) <= tolerance::float64);
      }
      for (const auto& [name, whole] : made.tensors) {
        if (whole.dtype() != DType::int32 || whole.size(-1) != n) continue;
        const Tensor longer = padded_made[name];
        const auto labels = whole.to_vector<int32_t>(), padded_labels = longer.to_vector<int32_t>();
        for (int64_t row = 0; row < whole.elements() / n; ++row)
          for (int64_t i = 0; i < n; ++i)
            REQUIRE(labels[size_t(row * n + i)] == padded_labels[size_t(row * (n + padding) + i)]);
      }
    }
  }
}

TEST_CASE("NaN and infinity stay within their batch element and head", "[attention]") {
  const Generator generator(8);
  for (const Trial& trial : trials(3, 3))
    for (float bad : {NAN, INFINITY, -INFINITY})
      for (int which = 0; which < 3; ++which) {
        const auto attention = trial.make(2, 4);
        Inputs in(2, 11, 11, 2, 4, 4, DType::float32);
        const auto clean = in.run(*attention, context_of(generator)).value().to_vector<float>();
        Tensor& target = which == 0 ? in.q : which == 1 ? in.k : in.v;
        target.mutable_data<float>()[5 * 2 * 4 + 4] = bad;  // batch element 0, row 5, head 1
        const auto dirty = in.run(*attention, context_of(generator)).value().to_vector<float>();
        INFO(attention->spec() << ' ' << bad << " in operand " << which);
        for (size_t i = 0; i < clean.size(); ++i) {
          const bool same_plane = i < 11 * 2 * 4 && i / 4 % 2 == 1;
          if (!same_plane) REQUIRE(clean[i] == dirty[i]);
        }
      }
}

TEST_CASE("identical and zero queries do every attention variant no harm", "[attention]") {
  const Generator generator(8);
  for (const Trial& trial : trials(5, 5))
    for (double value : {0.0, 2.5}) {
      Inputs in(1, 13, 13, 2, 4, 4);
      in.q = Tensor::full(in.q.shape(), value, DType::float64);
      const auto attention = trial.make(2, 4);
      INFO(attention->spec() << " all queries " << value);
      AttentionChoices made;
      const Variable out = in.run(*attention, context_of(generator, &made));
      CHECK(difference(out.value(), expected(trial, *attention, in, made)) <= tolerance::float64);
    }
}

TEST_CASE("at their exhaustive settings variants equal full attention", "[attention]") {
  const Generator generator(2);
  for (bool cross : {false, true}) {
    const Inputs in(2, 19, cross ? 8 : 19, 3, 5, 5, DType::float32);
    const auto full = as_double(in.run(*make_attention("full"), context_of(generator)).value());
    for (const char* spec :
         {"i-clustered-4:topk=19", "i-clustered-4:topk=400", "clustered-19", "clustered-64", "i-clustered-19:topk=2",
          "oracle-top-19", "oracle-top-500", "position-19", "position-2000000000:shift=true", "i-position-4:topk=19",
          "i-position-19:topk=2", "euclidean-19", "euclidean-64:iterations=0", "i-euclidean-4:topk=19",
          "i-euclidean-19:topk=2"}) {
      INFO(spec << (cross ? " cross" : ""));
      CHECK(difference(in.run(*make_attention(spec), context_of(generator)).value(), full) <= tolerance::float32);
    }
  }
}

TEST_CASE("one round of one chunk without a bucket mask is attention of unit keys without the diagonal",
          "[attention]") {
  const Generator generator(2);
  for (int64_t n : {2, 19}) {
    Inputs in(2, n, n, 3, 5, 5);
    AttentionMask off_diagonal;
    off_diagonal.allowed = Tensor::full({n, n}, true, DType::boolean);
    for (int64_t i = 0; i < n; ++i) off_diagonal.allowed.mutable_data<bool>()[i * (n + 1)] = false;
    const Variable q(in.q), v(in.v);
    const auto expected = as_double(attention(q, l2_normalize(q), v, {off_diagonal, {}, 0}).value());
    for (const std::string& chunk : {std::to_string(n), std::to_string(n + 1), std::string("2147483646")}) {
      INFO("n = " << n << ", chunk " << chunk);
      const auto attention = make_attention("lsh-1:bucket_mask=false,chunk=" + chunk);
      CHECK(difference(in.run(*attention, context_of(generator)).value(), expected) <= tolerance::float64);
    }
    // Every round sees the same, so their number makes no difference, nor how they are combined.
    for (const char* options : {"", ",deduplicate=true", ",combine=mean"}) {
      INFO("n = " << n << options);
      const auto attention = make_attention(concat("lsh-3:bucket_mask=false", options));
      CHECK(difference(in.run(*attention, context_of(generator)).value(), expected) <= tolerance::float64);
    }
  }
}

TEST_CASE("positions of one direction attend to each other in lsh, and never to the opposite one", "[attention]") {
  const Generator generator(2);
  const int64_t n = 12;  // even positions are x or 3 x, odd ones -x
  Inputs in(1, n, n, 1, 4, n);
  const Tensor x = in.q;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t d = 0; d < 4; ++d)
      in.q.mutable_data<double>()[i * 4 + d] = (i % 2 ? -1 : i % 4 + 1) * x.data<double>()[d];
  const Tensor weights = attention_weights(*make_attention("lsh-2"), in.q, in.q, {}, context_of(generator));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) CHECK((weights.data<float>()[i * n + j] > 0) == (i != j && i % 2 == j % 2));
}

TEST_CASE("where a pattern of positions shows every key, variants equal full attention", "[attention]") {
  const Generator generator(2);
  const Inputs in(2, 19, 19, 3, 5, 5, DType::float32);
  const auto full = as_double(in.run(*make_attention("full"), context_of(generator)).value());
  for (const char* spec : {"local-18", "local-2147483647", "longformer-1:global=18", "longformer-1:global=2147483647",
                           "strided-1", "strided-18", "strided-2147483647"}) {
    INFO(spec);
    CHECK(difference(in.run(*make_attention(spec), context_of(generator)).value(), full) <= tolerance::float32);
  }
  for (const char* spec : {"local-17", "longformer-1:global=16", "strided-2", "strided-9"}) {
    INFO(spec);
    CHECK(difference(in.run(*make_attention(spec), context_of(generator)).value(), full) > tolerance::float32);
  }
  CHECK(same_bits(in.run(*make_attention("longformer-3:global=0"), context_of(generator)).value(),
                  in.run(*make_attention("local-3"), context_of(generator)).value()));
}

TEST_CASE("a pattern of positions as a mask is honored or refused", "[attention]") {
  const Generator generator(2);
  Inputs in(1, 9, 9, 2, 4, 4);
  in.mask.pattern.window = 2;
  const auto out = in.run(*make_attention("full"), context_of(generator)).value();
  Inputs plain = in;
  plain.mask = {};
  CHECK(same_bits(out, plain.run(*make_attention("local-2"), context_of(generator)).value()));
  CHECK(difference(in.run(*make_attention("oracle-top-5"), context_of(generator)).value(), as_double(out)) <=
        tolerance::float64);
  for (const char* spec : {"clustered-3", "linear"})
    CHECK_THROWS_WITH(in.run(*make_attention(spec), context_of(generator)),
                      Catch::Matchers::ContainsSubstring("cannot honor a patterned mask"));
  CHECK_THROWS_WITH(in.run(*make_attention("local-3"), context_of(generator)),
                    Catch::Matchers::ContainsSubstring("cannot honor a pattern besides its own"));
}

TEST_CASE("more clusters than queries cost no memory", "[attention]") {
  const Generator generator(2);
  const Inputs in(2, 9, 9, 2, 4, 4);
  reset_peak_memory(Device::cpu);
  const int64_t before = peak_without_scratch();
  AttentionChoices made;
  in.run(*make_attention("i-clustered-2000000000:topk=1000000"), context_of(generator, &made));
  CHECK(peak_without_scratch() - before < 100000);
  CHECK(made["labels"].to_vector<int32_t>()[8] == 8);
}

TEST_CASE("every call draws afresh, the same call the same", "[attention]") {
  const Inputs in(1, 40, 40, 1, 8, 8);
  for (const char* spec : {"clustered-6", "lsh-1:chunk=4"}) {
    INFO(spec);
    Generator generator(2);
    const auto attention = make_attention(spec);
    const auto labels = [&](uint32_t layer) {
      AttentionChoices made;
      AttentionContext context = context_of(generator, &made);
      context.layer = layer;
      in.run(*attention, context);
      return (made["labels"].defined() ? made["labels"] : made["buckets"]).to_vector<int32_t>();
    };
    const auto first = labels(0);
    CHECK(labels(0) == first);
    CHECK(labels(1) != first);
    generator.advance();
    CHECK(labels(0) != first);
  }
}

TEST_CASE("with shift=true the groups of odd layers begin half a group from those of even ones", "[attention]") {
  const Inputs in(1, 12, 12, 1, 4, 4);
  const auto labels = [&](const char* spec, uint32_t layer) {
    AttentionChoices made;
    AttentionContext context;  // nothing is drawn
    context.layer = layer;
    context.report = &made;
    in.run(*make_attention(spec), context);
    return made["labels"].to_vector<int32_t>();
  };
  const std::vector<int32_t> even{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}, odd{0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0};
  for (const char* spec : {"position-3:shift=true", "i-position-3:shift=true"}) {
    INFO(spec);
    CHECK(labels(spec, 0) == even);
    CHECK(labels(spec, 1) == odd);
    CHECK(labels(spec, 2) == even);
  }
  CHECK(labels("position-3", 1) == even);
}

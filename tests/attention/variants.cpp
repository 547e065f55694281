// Tests each variant in the list against its reference, also variants that a program adds.
#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/attention/observe.h"
#include "tests/attention/trials.h"
#include "tests/nn/module_test.h"

using Catch::Matchers::ContainsSubstring;

namespace {

struct Inputs {
  Tensor q, k, v;
  AttentionMask mask;

  Inputs(int64_t B, int64_t N, int64_t S, int64_t H, int64_t D, int64_t M, DType dtype = DType::float64)
      : q(random_tensor({B, N, H, D}, dtype, 11)),
        k(random_tensor({B, S, H, D}, dtype, 12)),
        v(random_tensor({B, S, H, M}, dtype, 13)) {}

  void set_lengths(const std::vector<int32_t>& lengths) { mask.query_lengths = mask.key_lengths = int32s(lengths); }
  Variable run(const Attention& attention, const AttentionContext& context) const {
    return attention(Variable(q), Variable(k), Variable(v), mask, context);
  }
  // The output, and the gradients of q, v and (unless the keys are the queries) k for the output's gradient `dout`.
  std::vector<Tensor> both_ways(const Attention& attention, const Tensor& dout, const AttentionContext& context) const {
    const Variable x(q, true), y(k, true), z(v, true);
    const Variable out = attention(x, y, z, mask, context);
    backward(out, dout);
    std::vector<Tensor> results{out.value(), x.grad(), z.grad()};
    if (!attention.shares_keys()) results.push_back(y.grad());
    return results;
  }
};

AttentionContext context_of(const Generator& generator, AttentionChoices* choices = nullptr) {
  return {{.generator = &generator}, choices};
}

// Number `index` of several matrices [rows, columns] that are stored one after another.
template <class T>
std::vector<std::vector<T>> matrix_of(const std::vector<T>& values, int64_t index, int64_t rows, int64_t columns) {
  std::vector<std::vector<T>> result;
  for (int64_t r = index * rows; r < (index + 1) * rows; ++r)
    result.emplace_back(values.begin() + r * columns, values.begin() + (r + 1) * columns);
  return result;
}

// The reference's weights, for the variant's choices and parameters.
BatchHeads weights_by_reference(const Trial& trial, Attention& attention, const Inputs& in,
                                const AttentionChoices& made) {
  const AttentionSpec spec = parse_attention(attention.spec());
  const int64_t D = in.q.size(3);
  BatchHeads weights(in.q.size(0), in.q.size(2), in.q.size(1), in.v.size(1));
  const auto heads_first = [](const Tensor& x) { return as_double(permute(x, {0, 2, 1, 3}).value()); };
  const auto q = heads_first(in.q), k = heads_first(attention.shares_keys() ? in.q : in.k);
  const auto length = [](const Tensor& lengths, int64_t b, int64_t all) {
    return lengths.defined() ? int64_t(lengths.data<int32_t>()[b]) : all;
  };
  for (int64_t head = 0; head < weights.B * weights.H; ++head) {
    const int64_t b = head / weights.H, h = head % weights.H;
    reference::Problem p;
    p.number = spec.number.empty() ? 0 : std::stoll(spec.number);
    p.options = spec.options;
    p.q = matrix_of(q, head, weights.N, D), p.k = matrix_of(k, head, weights.S, D);
    p.queries = length(in.mask.query_lengths, b, weights.N), p.keys = length(in.mask.key_lengths, b, weights.S);
    p.scale = attention.scale() != 0 ? attention.scale() : 1 / std::sqrt(double(D));
    p.visible = [&](int64_t i, int64_t j) { return may_attend(in.mask, b, h, i, j); };
    for (const auto& [name, choice] : {std::pair("labels", made.labels),
                                       {"key_labels", made.key_labels},
                                       {"buckets", made.buckets},
                                       {"key_buckets", made.key_buckets}})
      if (choice.defined())
        p.chosen[name] =
            matrix_of(choice.to_vector<int32_t>(), head, choice.rank() == 4 ? choice.size(2) : 1, choice.size(-1));
    for (const auto& [name, parameter] : named_parameters(attention))
      p.learned[name] = matrix_of(as_double(parameter.value()), h, parameter.size(1), parameter.size(2));
    const reference::Matrix a = trial.entry.weights(p);
    for (int64_t i = 0; i < weights.N; ++i)
      std::copy(a[size_t(i)].begin(), a[size_t(i)].end(), weights.values.begin() + (head * weights.N + i) * weights.S);
  }
  return weights;
}

// Checks the output and the observed weights against the reference.
void check_agrees(const Trial& trial, const Inputs& in) {
  const Generator generator(5);
  const auto attention = trial.make(in.q.size(2), in.q.size(3));
  AttentionChoices made;
  const AttentionContext context = context_of(generator, &made);
  const Tensor out = in.run(*attention, context).value();
  const BatchHeads weights = weights_by_reference(trial, *attention, in, made);
  CHECK(out.shape() == in.q.shape().with(3, in.v.size(3)));
  // [eq. 2] [eq. 5] [eq. 11] [eq. 15] Weights times values.
  CHECK(difference(out, times_values(weights, in.v)) <= tolerance_of(in.q.dtype()));
  const Tensor observed = attention_weights(*attention, in.q, in.k, in.mask, context);
  CHECK(observed.shape() == Shape{weights.B, weights.H, weights.N, weights.S});
  CHECK(difference(observed, weights.values) <= tolerance::float32);
}

// Inputs and a mask. A variant that does not promise to honor them must reject them with this message.
struct Situation {
  std::string name;
  Inputs in;
  bool reference::Entry::*promise = nullptr;  // null: every variant takes it
  const char* refusal = "";
};

std::vector<Situation> every_situation() {
  std::vector<Situation> all;
  for (const DType dtype : {DType::float32, DType::float64})
    for (const int32_t n : {0, 1, 2, 7, 33})
      for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{}, {n, n / 2}, {0, n > 0}}) {
        all.push_back({concat(name(dtype), " N = ", n), Inputs(2, n, n, 3, 5, 5, dtype)});
        if (lengths.empty()) continue;
        all.back().in.set_lengths(lengths);
        all.back().name += concat(" lengths ", lengths[0], " and ", lengths[1]);
      }
  for (const double value : {0.0, 2.5}) {
    all.push_back({concat("all queries ", value), Inputs(1, 13, 13, 2, 4, 4)});
    all.back().in.q = Tensor::full({1, 13, 2, 4}, value, DType::float64);
  }
  const Inputs square(1, 9, 9, 2, 4, 4);
  all.push_back({"boolean", square, &reference::Entry::boolean_mask, "cannot honor"});
  Tensor& allowed = all.back().in.mask.allowed = Tensor({9, 9}, DType::boolean);
  for (int64_t i = 0; i < 9 * 9; ++i)  // query 4 sees nothing
    allowed.mutable_data<bool>()[i] = i / 9 != 4 && i * 7 % 5 != 0;
  all.push_back({"causal", square, &reference::Entry::causal, "cannot honor"});
  all.back().in.mask.causal = true;
  for (const int64_t s : {0, 1, 12, 13})
    all.push_back({concat("S = ", s), Inputs(2, 7, s, 2, 5, 3), &reference::Entry::cross, "cross attention"});
  all.back().in.mask = {.query_lengths = int32s({7, 4}), .key_lengths = int32s({5, 6})};
  return all;
}

// Positions of x [B, N, H, D] or of labels [B, H, N] in another order.
Tensor reordered(const Tensor& x) {
  const int axis = x.rank() == 4 ? 1 : 2;
  return concat({slice(x, axis, 12, x.size(axis)).value(), slice(x, axis, 5, 12).value(), slice(x, axis, 0, 5).value()},
                axis)
      .value();
}

}  // namespace

TEST_CASE("every attention variant agrees with its reference", "[attention]") {
  const std::vector<Situation> situations = every_situation();
  for (const Trial& trial : trials(4, 4))
    for (const Situation& given : situations) {
      INFO(trial.spec << ' ' << given.name);
      if (!given.promise || trial.entry.*given.promise) {
        check_agrees(trial, given.in);
        continue;
      }
      const auto attention = trial.make(given.in.q.size(2), given.in.q.size(3));
      const Generator generator(5);
      CHECK_THROWS_AS(given.in.run(*attention, context_of(generator)), UsageError);
      CHECK_THROWS_WITH(given.in.run(*attention, context_of(generator)), ContainsSubstring(given.refusal));
    }
}

TEST_CASE("every attention variant honors a pattern of positions as a mask, or refuses it", "[attention]") {
  Inputs in(1, 9, 9, 2, 4, 4);
  in.mask.pattern.window = 2;
  int refused = 0;
  for (const Trial& trial : trials(5, 4)) {
    INFO(trial.spec);
    try {
      check_agrees(trial, in);
    } catch (const UsageError& error) {
      CHECK_THAT(error.what(), ContainsSubstring("cannot honor a pattern"));
      ++refused;
    }
  }
  CHECK(refused > 10);
}

// The choices of other queries and another seed, each given alone.
TEST_CASE("every attention variant takes each choice that it is given", "[attention]") {
  const Generator generator(5), other(6);
  const Inputs in(2, 13, 13, 2, 4, 4);
  Inputs others = in;
  others.q = random_tensor(in.q.shape(), DType::float64, 14);
  using Choices = AttentionChoices;
  int taken = 0;
  for (const Trial& trial : trials(4, 3)) {
    INFO(trial.spec);
    const auto attention = trial.make(2, 4);
    Choices own, made;
    const Tensor out = in.run(*attention, context_of(generator, &own)).value();
    others.run(*attention, context_of(other, &made));
    for (Tensor Choices::*which : {&Choices::planes, &Choices::codes, &Choices::labels, &Choices::key_labels,
                                   &Choices::topk, &Choices::buckets, &Choices::key_buckets}) {
      if (!(made.*which).defined() || same_bits(made.*which, own.*which)) continue;
      Choices given;
      given.*which = (made.*which).clone();
      CHECK_FALSE(same_bits(in.run(*attention, context_of(generator, &given)).value(), out));
      CHECK(same_bits(given.*which, made.*which));
      ++taken;
    }
  }
  CHECK(taken > 10);
}

// Choices are replayed, so that the steps of differences cannot change them.
TEST_CASE("gradients of every attention variant", "[attention][grad]") {
  const Generator generator(3);
  for (const Trial& trial : trials(3, 3))
    for (bool dropped : {false, true})
      for (bool lengths : {false, true}) {
        Inputs in(2, 7, 7, 2, 3, 3);
        if (lengths) in.set_lengths({5, 0});
        const auto attention = trial.make(2, 3);
        convert_to(*attention, DType::float64);
        INFO(trial.spec << (dropped ? " with dropout" : "") << (lengths ? " with lengths" : ""));
        AttentionChoices made;
        AttentionContext context = context_of(generator, &made);
        in.run(*attention, context);
        context.training = dropped;
        context.dropout = dropped ? 0.4 : 0;
        const auto checked = check_module_gradient(*attention, {in.q, in.k, in.v}, [&](const auto& x) {
          return (*attention)(x[0], x[1], x[2], in.mask, context);
        });
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
    AttentionContext context = context_of(generator, &made);
    const auto plain = as_double(in.run(*attention, context).value());
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

TEST_CASE("every attention variant gives a part of a batch what it gives it in the whole batch", "[attention]") {
  const int64_t B = 5, n = 33;
  for (const Trial& trial : trials(4, 4))
    for (const auto& each : {std::pair{false, true}, {true, true}, {true, false}}) {
      const bool lengths = each.first, training = each.second;  // (clang 14 captures no structured binding)
      INFO(trial.spec << (lengths ? " with lengths" : "") << (training ? " in training" : ""));
      Inputs all(B, n, n, 3, 5, 5);
      if (lengths) all.set_lengths({33, 20, 0, 33, 9});
      const Tensor dout = random_tensor(all.v.shape(), DType::float64, 14);
      const auto attention = trial.make(3, 5);
      // For examples [first, end).
      const auto run = [&](int64_t first, int64_t end) {
        Inputs part = all;
        for (Tensor* x : {&part.q, &part.k, &part.v, &part.mask.query_lengths, &part.mask.key_lengths})
          if (x->defined()) *x = x->slice(first, end);
        Generator generator(8);
        // Only training needs to know the place in the batch, for dropout.
        if (training) generator.set_first_example(first);
        AttentionContext context = context_of(generator);
        context.training = training, context.dropout = 0.3;
        return part.both_ways(*attention, dout.slice(first, end), context);
      };
      const auto whole = run(0, B);
      for (const auto& [first, end] : {std::pair<int64_t, int64_t>{0, 2}, {2, 5}}) {
        const auto part = run(first, end);
        for (size_t i = 0; i < part.size(); ++i) {
          INFO("examples " << first << " to " << end - 1
                           << " alone, and in the batch: " << (i ? "gradient " : "output ") << i);
          CHECK(same_bits(part[i], whole[i].slice(first, end)));
        }
      }
    }
}

TEST_CASE("an attention variant that tells queries apart by content alone moves with them", "[attention]") {
  const Generator generator(6);
  for (const Trial& trial : trials(4, 4)) {
    if (!trial.entry.equivariant) continue;
    INFO(trial.spec);
    const Inputs in(2, 17, 17, 3, 4, 4);
    const auto attention = trial.make(3, 4);
    AttentionChoices made, moved;
    const Tensor out = in.run(*attention, context_of(generator, &made)).value();
    Inputs other = in;
    other.q = reordered(in.q);
    if (attention->shares_keys()) other.v = reordered(in.v);
    if (made.labels.defined()) moved.labels = reordered(made.labels);
    const Tensor out_moved = other.run(*attention, context_of(generator, &moved)).value();
    CHECK(difference(out_moved, reordered(out)) <= tolerance::float64);
  }
}

TEST_CASE("every attention variant says what is wrong with its operands", "[attention]") {
  struct Wrong {
    Tensor Inputs::*operand;
    Tensor value;
  };
  const Generator generator(5);
  const Inputs good(2, 6, 6, 2, 4, 4);
  for (const Trial& trial : trials(3, 3)) {
    INFO(trial.spec);
    const auto attention = trial.make(2, 4);
    for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{3, -1}, {3, 7}, {3}}) {
      Inputs in = good;
      in.set_lengths(lengths);
      CHECK_THROWS_AS(in.run(*attention, context_of(generator)), Error);
    }
    for (const Wrong& wrong : {Wrong{&Inputs::v, random_tensor({2, 6, 3, 4})},
                               {&Inputs::v, random_tensor({1, 6, 2, 4})},
                               {&Inputs::v, random_tensor({2, 6, 2, 4}, DType::float32)},
                               {&Inputs::q, random_tensor({2, 6, 8})},
                               {&Inputs::k, random_tensor({2, 6, 2, 5})},
                               {&Inputs::k, random_tensor({2, 5, 2, 4})}}) {
      if (attention->shares_keys() && wrong.operand == &Inputs::k) continue;
      Inputs in = good;
      in.*wrong.operand = wrong.value;
      CHECK_THROWS_AS(in.run(*attention, context_of(generator)), Error);
    }
  }
}

TEST_CASE("mass_gradient=false leaves the mass without a gradient", "[attention][grad]") {
  const Generator generator(3);
  const Inputs in(1, 8, 8, 1, 3, 3);
  const auto run = [&](const char* spec) { return in.both_ways(*make_attention(spec), in.v, context_of(generator)); };
  const auto with = run("i-clustered-2:topk=3"), without = run("i-clustered-2:topk=3,mass_gradient=false");
  CHECK(difference(with[0], without[0]) == 0);
  CHECK(difference(with[2], without[2]) == 0);  // of v: the mass does not depend on the values
  CHECK(difference(with[3], without[3]) > 1e-3);
}

TEST_CASE("every attention variant is deterministic for any number of threads", "[attention]") {
  const Generator generator(5);
  const Inputs in(1, 301, 301, 3, 7, 7, DType::float32);
  AttentionContext context = context_of(generator);
  context.training = true;
  context.dropout = 0.2;
  for (const Trial& trial : trials(5, 4)) {
    INFO(trial.spec);
    const auto attention = trial.make(3, 7);
    check_any_threads([&] { return in.both_ways(*attention, in.v, context); });
  }
}

TEST_CASE("padding changes an attention variant's results by rounding alone", "[attention]") {
  const Generator generator(8);
  constexpr int64_t B = 2, H = 2, D = 4, n = 21;
  for (const Trial& trial : trials(4, 5))
    for (const int64_t all : {n + 1, n + 200}) {
      INFO(trial.spec << " padded to " << all);
      const auto attention = trial.make(H, D);
      Inputs padded(B, all, all, H, D, D), in = padded;
      const int32_t keys = trial.entry.cross ? 17 : n;
      padded.mask = {.query_lengths = int32s({n, n}), .key_lengths = int32s({keys, keys})};
      in.q = slice(in.q, 1, 0, n).value();
      for (Tensor* x : {&in.k, &in.v}) *x = slice(*x, 1, 0, keys).value();
      const Tensor dout = random_tensor({B, all, H, D}, DType::float64, 9);  // not 0 beyond the lengths
      AttentionChoices made, padded_made;
      const auto expected = in.both_ways(*attention, slice(dout, 1, 0, n).value(), context_of(generator, &made));
      const auto results = padded.both_ways(*attention, dout, context_of(generator, &padded_made));
      for (size_t i = 0; i < results.size(); ++i) {
        INFO("result " << i);
        const int64_t rows = expected[i].size(1);
        CHECK(difference(slice(results[i], 1, 0, rows).value(), expected[i]) <= tolerance::float64);
        const Tensor rest = slice(results[i], 1, rows, all).value();
        CHECK(difference(rest, Tensor::zeros(rest.shape(), DType::float64)) == 0);
      }
      for (const auto& [choice, padded_choice] : {std::pair(made.labels, padded_made.labels),
                                                  {made.buckets, padded_made.buckets},
                                                  {made.key_buckets, padded_made.key_buckets}})
        if (choice.defined())
          CHECK(same_bits(slice(padded_choice, choice.rank() - 1, 0, choice.size(-1)).value(), choice));
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

TEST_CASE("more clusters than queries cost no memory", "[attention]") {
  const Generator generator(2);
  const Inputs in(2, 9, 9, 2, 4, 4);
  reset_peak_memory(Device::cpu);
  const int64_t before = peak_without_scratch();
  AttentionChoices made;
  in.run(*make_attention("i-clustered-2000000000:topk=1000000"), context_of(generator, &made));
  CHECK(peak_without_scratch() - before < 100000);
  CHECK(made.labels.to_vector<int32_t>()[8] == 8);
}

TEST_CASE("with shift=true the clusters of odd layers begin half a cluster from those of even ones", "[attention]") {
  const Inputs in(1, 12, 12, 1, 4, 4);
  const auto labels = [&](const char* spec, uint32_t layer) {
    AttentionChoices made;
    AttentionContext context;  // nothing is drawn
    context.layer = layer;
    context.choices = &made;
    in.run(*make_attention(spec), context);
    return made.labels.to_vector<int32_t>();
  };
  const std::vector<int32_t> even{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}, odd{0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0};
  CHECK(labels("position-3:shift=true", 1) == odd);
  CHECK(labels("position-3:shift=true", 2) == even);
  CHECK(labels("position-3", 1) == even);
}

#include "tests/ops/operation.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <set>
#include <utility>

namespace cairn::test {

namespace {

// A sum of numbers around 1 whose exact result is 0 is at most this in float32.
constexpr double rounding = 1e-6;

// The operands on the device, floating ones in `dtype`, after rounding to bfloat16 if `rounded`.
Tensors placed(const Tensors& operands, DType dtype, Device device, bool rounded) {
  Tensors result;
  for (Tensor x : operands) {
    if (!x.defined()) {
      result.push_back(x);
      continue;
    }
    if (is_floating(x.dtype())) x = (rounded ? x.cast(DType::bfloat16) : x).cast(dtype);
    result.push_back(x.to(device));
  }
  return result;
}

Variables variables_of(const Tensors& operands) {
  Variables result;
  for (const Tensor& x : operands) result.emplace_back(x, x.defined() && is_floating(x.dtype()));
  return result;
}

Tensors values_of(const Variables& results) {
  Tensors values;
  for (const Variable& result : results) values.push_back(result.value());
  return values;
}

// Random weights for each result that has a gradient, in double. They are the gradients of the results' weighted sum.
Tensors weights_of(const Variables& results) {
  Tensors weights;
  for (size_t i = 0; i < results.size(); ++i)
    weights.push_back(results[i].requires_grad() ? normal(results[i].shape(), 90 + i) : Tensor());
  return weights;
}

// The gradients of the floating operands, given those of the results.
Tensors gradients(const Variables& operands, const Variables& results, const Tensors& weights) {
  Variables weighted;
  Gradients seeds;
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].requires_grad()) weighted.push_back(results[i]), seeds.push_back(weights[i]);
  if (weighted.empty()) return {};
  const Variable& first = weighted[0];
  backward(record("weigh", Tensor::zeros({}, first.dtype(), first.device()), weighted,
                  [seeds](const Tensor&) { return seeds; }));
  Tensors result;
  for (const Variable& x : operands)
    if (x.requires_grad())
      result.push_back(x.grad().defined() ? x.grad() : Tensor::zeros(x.shape(), x.dtype(), x.device()));
  return result;
}

// Results, then gradients.
Tensors run(const Case& test, const Tensors& operands, const Tensors& weights, bool with_gradient) {
  const Variables in = variables_of(operands), out = test.forward(in);
  Tensors all = values_of(out);
  if (with_gradient)
    for (const Tensor& gradient : gradients(in, out, weights)) all.push_back(gradient);
  return all;
}

// The sum of results times weights.
double weighted(const Case& test, const Tensors& operands, const Tensors& weights) {
  const NoGrad no_grad;
  const Tensors results = values_of(test.forward(variables_of(operands)));
  double total = 0;
  for (size_t i = 0; i < results.size(); ++i)
    if (weights[i].defined()) total += sum(results[i] * weights[i]).value().item();
  return total;
}

void check_gradient(const Case& test) {
  const Tensors weights = weights_of(test.forward(variables_of(test.operands)));
  const Variables in = variables_of(test.operands);
  const Variables out = test.forward(in);
  const auto is_recorded = [](const Variable& x) { return x.requires_grad(); };
  const auto has_numbers = [](const Variable& x) { return is_floating(x.dtype()); };
  CHECK(std::any_of(out.begin(), out.end(), is_recorded) == std::any_of(out.begin(), out.end(), has_numbers));
  const Tensors found = gradients(in, out, weights);
  constexpr double step = 1e-6;
  for (const uint64_t seed : {51, 52}) {  // two directions
    Tensors above = test.operands, below = test.operands;
    double analytic = 0, scale = 1;
    size_t next = 0;
    for (size_t i = 0; i < test.operands.size() && !found.empty(); ++i) {
      if (!is_floating(test.operands[i].dtype())) continue;
      const Tensor direction = normal(test.operands[i].shape(), seed + 10 * i);
      above[i] = binary(Binary::add, above[i], affine(direction, step)).value();
      below[i] = binary(Binary::subtract, below[i], affine(direction, step)).value();
      const auto d = as_double(direction), g = as_double(found[next++]);
      for (size_t j = 0; j < d.size(); ++j) analytic += d[j] * g[j], scale += std::abs(d[j] * g[j]);
    }
    const double numeric = (weighted(test, above, weights) - weighted(test, below, weights)) / (2 * step);
    INFO("analytic " << analytic << ", numeric " << numeric << ", of terms that sum up to " << scale);
    CHECK(std::abs(analytic - numeric) <= tolerance::gradient * scale);
  }
}

// NaN in both, or the same bits. (Which NaN the product of two NaNs is depends on the compiler.)
bool same_number(double x, double y) {
  return std::isnan(x) ? std::isnan(y) : x == y && std::signbit(x) == std::signbit(y);
}

void check_same_bits(const Tensors& found, const Tensors& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO("result " << i);
    const Tensor x = found[i].to(Device::cpu), y = expected[i].to(Device::cpu);
    if (!is_floating(x.dtype())) {
      CHECK(same_bits(x, y));
      continue;
    }
    CHECK(x.dtype() == y.dtype());
    CHECK(x.shape() == y.shape());
    const auto a = as_double(x), b = as_double(y);
    CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end(), same_number));
  }
}

// Changes the numbers of x. (Indices are only marked as written, which is enough.)
void change(Tensor& x) {
  if (is_floating(x.dtype()))
    x.copy_from(affine(x, 1, 1).value());
  else
    x.mutable_raw();
}

// The gradients of clones of the operands, where f(operands, results) runs before the backward pass.
template <class F>
Tensors gradients_after(const Case& test, F f) {
  Tensors operands;
  for (const Tensor& x : test.operands) operands.push_back(x.clone());
  Variables in = variables_of(operands), out = test.forward(in);
  f(in, out);
  return gradients(in, out, weights_of(out));
}

// With sanitizers cases take long, so a run takes an eighth of `all` in each test, or one of a few. The seed says
// which.
bool has_turn(size_t number, size_t all, size_t test) {
  if (!sanitized) return true;
  const char* seed = std::getenv("CAIRN_HOST_CUDA_SEED");
  const size_t turns = std::min<size_t>(all, 8);
  return ((seed ? std::strtoull(seed, nullptr, 10) : 0) + test) % turns == number % turns;
}

#if CAIRN_HAS_CUDA
#if CAIRN_CUDA_HOST
constexpr bool emulated = true;
#else
constexpr bool emulated = false;
#endif

void check_same(const Tensors& found, const Tensors& expected, double tolerance) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string difference = differs(found[i], expected[i], is_floating(found[i].dtype()) ? tolerance : 0);
    INFO("result " << i << ' ' << difference);
    CHECK(difference.empty());
  }
}

// `found`, in bfloat16, are the float32 numbers `wide`, rounded once, where each of these may differ by the tolerance
// of float32. Rounding never changes the order of two numbers, so the result lies between the bounds, rounded.
void check_rounded_once(const Tensors& found, const Tensors& wide) {
  for (size_t i = 0; i < wide.size(); ++i) {
    INFO("result " << i);
    const auto x = as_double(found[i].to(Device::cpu)), y = as_double(wide[i].to(Device::cpu));
    double change = tolerance::float32;
    for (const double value : y) change = std::max(change, tolerance::float32 * std::abs(value));
    const auto once = [](double bound) { return double(float(bfloat16(float(bound)))); };
    for (size_t j = 0; j < y.size(); ++j) CHECK(x[j] == std::clamp(x[j], once(y[j] - change), once(y[j] + change)));
  }
}

// Results, then gradients, or what the case compares instead.
Tensors run_parity(const Case& test, const Tensors& operands, const Tensors& on_cpu, const Tensors& weights,
                   bool rounded) {
  Tensors all =
      test.parity ? test.parity({operands, on_cpu, weights, rounded}) : run(test, operands, weights, test.gradient);
  if (test.compared)
    for (Tensor& x : all) x = test.compared(x.to(Device::cpu).cast(DType::float32));
  return all;
}

// x at an address that is not a multiple of 16 bytes.
Tensor shifted(const Tensor& x) {
  Tensor room = Tensor::zeros({x.elements() + 1}, x.dtype());
  Tensor inside = room.slice(1, x.elements() + 1).reshape(x.shape());
  inside.copy_from(x.to(Device::cpu));
  return room.to(Device::cuda).slice(1, x.elements() + 1).reshape(x.shape());
}
bool whole_chunks(const Tensor& x) {
  return x.defined() && is_floating(x.dtype()) && x.rank() > 0 && x.elements() > 0 && x.size(-1) % 8 == 0;
}
#endif

}  // namespace

void check_refusals(const char* operation, const std::vector<Taken>& takes, const Tensors& operands,
                    const std::function<void(const Tensors&)>& f) {
  REQUIRE(takes.size() == operands.size());
  std::set<char> known;            // the letters of earlier operands
  const char* floating = nullptr;  // the first operand of the dtype that all must have
  for (size_t i = 0; i < takes.size(); ++i) {
    const auto& [name, pattern, kind] = takes[i];
    const Tensor& x = operands[i];
    const auto with = [&](const Tensor& other) {
      Tensors changed = operands;
      changed[i] = other;
      return changed;
    };
    const auto refused = [&](const Tensor& other, const std::string& text) {
      INFO("expected: " << text);
      CHECK_THROWS_WITH(f(with(other)), concat(operation, ": ", text));
    };
    const DType dtype = kind == Taken::float32 ? DType::float32 : x.dtype();
    if (kind == Taken::optional)
      CHECK_NOTHROW(f(with({})));
    else if (kind != Taken::labels)
      refused({}, concat(name, " was never given a value"));
    if (kind != Taken::labels) {
      if (kind == Taken::float32 || !is_floating(dtype)) {
        refused(x.cast(DType::int64), concat("expected ", name, " to be ", cairn::name(dtype), ", got int64"));
      } else if (floating) {
        const DType other = dtype == DType::float64 ? DType::float32 : DType::float64;
        refused(x.cast(other), concat(name, " is ", cairn::name(other), ", ", floating, " is ", cairn::name(dtype)));
      } else {
        floating = name;
        if (kind == Taken::number)
          refused(x.cast(DType::int64), concat(name, " must be floating or int32, got int64"));
        else
          refused(x.cast(DType::int32), concat(name, " must be floating, got int32"));
      }
      if (i > 0) refused(elsewhere({0}, dtype), concat(name, " is on cuda, ", takes[0].name, " on cpu"));
    }
    if (!pattern) continue;

    // A letter that an earlier operand has fixes the size. Messages have it instead of the letter.
    std::string letters = pattern, expected;
    const bool leading = letters[0] == '*', any_rank = leading && !known.count(letters[1]);
    std::erase_if(letters, [](char c) { return c == ' ' || c == '*'; });
    const int count = int(letters.size()), more = x.rank() - count;  // axes of the first letter, besides one
    std::vector<Shape> others;
    for (int k = 0; k < count; ++k) {
      const char letter = letters[size_t(k)];
      if (known.insert(letter).second) {
        expected += leading && k == 0 ? "..., " : std::string{letter, ',', ' '};
        continue;
      }
      for (int axis = k == 0 ? 0 : more + k; axis <= more + k; ++axis) {
        expected += concat(x.size(axis), ", ");
        others.push_back(x.shape().with(axis, x.size(axis) + 1));
      }
    }
    if (any_rank && count > 1) others.push_back(Shape(x.shape().end() - (count - 2), x.shape().end()));
    if (!any_rank && kind != Taken::labels) others.push_back(appended(x.shape(), 1));
    if (!expected.empty()) expected.erase(expected.size() - 2);
    for (const Shape& other : others)
      refused(Tensor::zeros(other, x.dtype()), concat("expected ", name, " of shape [", expected, "], got ", other));
  }
}

Case& Operation::add(const Shape& shape) { return add(concat(shape), make(shape)); }

Case& Operation::add(std::string case_name, Tensors operands) {
  cases_.push_back({concat(name_, ' ', case_name), std::move(operands), forward, reference});
  return cases_.back();
}

void Operation::refuses(Tensors operands, std::string text) {
  refusals_.emplace_back(std::move(operands), std::move(text));
}

void Operation::add_drawn(int count) {
  if (!make) return;
  RandomStream random(7, 0, Purpose::test);
  constexpr int64_t sizes[] = {0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 33, 64, 70};
  for (int i = 0; i < count; ++i) {
    Shape shape;
    const int rank = 1 + int(random.below(3));
    while (shape.rank() < rank) shape.push_back(sizes[random.below(std::size(sizes))]);
    if (shape.elements() < 100'000 && (draws_empty_rows || shape[-1] > 0)) add(shape);
  }
}

void Operation::check_values() {
  add_drawn(40);
  for (size_t n = 0; n < cases_.size(); ++n) {
    const Case& test = cases_[n];
    if (test.form != Form::usual || !has_turn(n, cases_.size(), 1)) continue;
    INFO(test.name);
    for (const DType dtype : {DType::float32, DType::float64}) {
      if (!test.values) continue;
      INFO(name(dtype));
      const Tensors operands = placed(test.operands, dtype, Device::cpu, false);
      const Tensors found = run(test, operands, {}, false);
      const Tensors expected = test.reference(placed(operands, DType::float64, Device::cpu, false));
      REQUIRE(found.size() == expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        INFO("result " << i);
        const double allowed = !is_floating(found[i].dtype()) ? 0
                               : dtype == DType::float32      ? test.tolerance
                                                              : tolerance::float64;
        const bool near = found[i].shape() == expected[i].shape() && difference(found[i], expected[i]) <= allowed;
        INFO((near ? "" : differs(found[i], expected[i], allowed)));
        CHECK(near);
      }
    }
    const Tensors operands = placed(test.operands, DType::float32, Device::cpu, false);
    const Tensors weights =
        placed(weights_of(test.forward(variables_of(operands))), DType::float32, Device::cpu, false);
    check_any_threads([&] { return run(test, operands, weights, test.gradient); });
  }
}

void Operation::check_refusals() {
  for (const auto& [operands, text] : refusals_) {
    INFO("expected: " << text);
    CHECK_ERROR(forward(variables_of(operands)), text);
  }
  const auto complete = [&](const Case& test) { return takes.empty() || test.operands.size() == takes.size(); };
  const auto found = std::find_if(cases_.begin(), cases_.end(), complete);
  REQUIRE(found != cases_.end());
  INFO(found->name << " with one operand that does not fit");
  const auto run = [&](const Tensors& operands) { found->forward(variables_of(operands)); };
  if (!takes.empty()) return test::check_refusals(name_, takes, found->operands, run);
  for (size_t i = 0; i < found->operands.size(); ++i) {
    if (!is_floating(found->operands[i].dtype())) continue;
    INFO("operand " << i << " is undefined: what others refuse for this operation does not begin with its name");
    Tensors operands = found->operands;
    operands[i] = Tensor();
    using namespace Catch::Matchers;
    CHECK_THROWS_WITH(run(operands), !StartsWith(concat(name_, ": ")) &&
                                         (EndsWith(" was never given a value") || StartsWith("shape: axis ")));
  }
}

void Operation::check_gradients() {
  add_drawn(20);
  const OneThread one_thread;
  const Case* some = nullptr;  // the first whose results have elements
  for (const Case& test : cases_) {
    if (!test.gradient || !test.differences || test.form != Form::usual) continue;
    INFO(test.name);
    check_gradient(test);
    if (!some && test.forward(variables_of(test.operands))[0].value().elements() > 0) some = &test;
  }
  if (!some) return;
  INFO(some->name);
  const Tensors expected = gradients_after(*some, [](Variables&, Variables&) {});
  const auto check_change = [&](bool read, auto change_one) {
    INFO("the gradient " << (read ? "reads it: backward should throw an error" : "does not read it: all is as before"));
    if (read)
      CHECK_THROWS_WITH(gradients_after(*some, change_one), Catch::Matchers::ContainsSubstring(" changed after "));
    else
      check_same_bits(gradients_after(*some, change_one), expected);
  };
  for (size_t i = 0; i < some->operands.size(); ++i) {
    INFO("operand " << i << " was changed");
    const bool read = std::find(backward_reads.begin(), backward_reads.end(), i) != backward_reads.end();
    check_change(read, [i](Variables& in, Variables&) { change(in[i].mutable_value()); });
  }
  for (size_t i = 0; i < some->forward(variables_of(some->operands)).size(); ++i) {
    INFO("result " << i << " was changed");
    check_change(backward_reads_results, [i](Variables&, Variables& out) { change(out[i].mutable_value()); });
  }
}

#if CAIRN_HAS_CUDA
void Operation::check_on_cuda(DType dtype) {
  add_drawn(5);
  const bool rounded = dtype == DType::bfloat16, any_order = cublas_order && !emulated;
  int skipped = 0;
  for (size_t n = 0; n < cases_.size(); ++n) {
    const Case& test = cases_[n];
    // (The older form differs by a conversion at each load: some cases of the usual form take it in bfloat16.)
    if (!test.on_cuda || (rounded && test.form == Form::older)) continue;
    const bool needs_older = test.form == Form::older && !emulated;
    skipped += needs_older;
    if (needs_older) continue;
    if (!has_turn(n, cases_.size(), rounded ? 2 : 0)) continue;
    INFO(test.name << (test.form == Form::usual ? "" : ", another form"));
    const WithForm with_form(test.form);
    const Tensors here = placed(test.operands, DType::float32, Device::cpu, rounded);
    const Tensors weights = placed(weights_of(test.forward(variables_of(here))), DType::float32, Device::cpu, rounded);
    const Tensors there = placed(here, dtype, Device::cuda, false),
                  weights_there = placed(weights, dtype, Device::cuda, false);
    const Tensors found = run_parity(test, there, here, weights_there, rounded);
    check_same(found, run_parity(test, here, here, weights, rounded),
               rounded ? test.rounded_tolerance : test.tolerance);

    if (rounded && rounds_once) {
      INFO("bfloat16 is the float32 result, rounded once");
      const Tensors wide = run(test, placed(here, DType::float32, Device::cuda, false),
                               placed(weights, DType::float32, Device::cuda, false), test.gradient);
      // A gradient that reads results reads rounded ones in bfloat16.
      const size_t count = backward_reads_results || !gradients_round_once ? weights.size() : wide.size();
      Tensors once;
      for (size_t i = 0; i < count; ++i)
        once.push_back(is_floating(wide[i].dtype()) ? wide[i].cast(DType::bfloat16) : wide[i]);
      if (cublas_order) check_rounded_once(found, {wide.begin(), wide.begin() + int64_t(count)});
      if (!any_order) check_same_bits({found.begin(), found.begin() + int64_t(count)}, once);
    }
    for (size_t i = 0; same_bits_anywhere && i < there.size() + weights_there.size(); ++i) {
      INFO("operand or gradient " << i << " starts elsewhere");
      Tensors operands = there, seeds = weights_there;
      Tensor& moved = i < there.size() ? operands[i] : seeds[i - there.size()];
      if (!whole_chunks(moved)) continue;
      moved = shifted(moved);
      const Tensors again = run(test, operands, seeds, test.gradient);
      if (any_order)
        check_same(again, found, rounded ? test.rounded_tolerance : test.tolerance);
      else
        check_same_bits(again, found);
    }
  }
  if (skipped) WARN("skipped " << skipped << " cases that need an older GPU");
}
#endif

std::string differs(const Tensor& a, const Tensor& b, double tolerance) {
  if (a.shape() != b.shape()) return concat("has shape ", a.shape(), ", expected ", b.shape());
  const auto values = [](const Tensor& x) { return x.to(Device::cpu).cast(DType::float64).to_vector<double>(); };
  const std::vector<double> x = values(a), y = values(b);
  double maximum = 0;
  for (const double value : y)
    if (std::isfinite(value)) maximum = std::max(maximum, std::abs(value));
  const double scale = maximum > rounding ? maximum : 1;
  const auto beyond = [&](size_t i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) return false;
    return !(std::abs(x[i] - y[i]) <= tolerance * scale) || !std::isfinite(x[i]) || !std::isfinite(y[i]);
  };
  size_t first = x.size(), count = 0;
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!beyond(i)) continue;
    first = std::min(first, i), ++count;
    worst = std::max(worst, std::isnan(x[i] - y[i]) ? INFINITY : std::abs(x[i] - y[i]) / scale);
  }
  if (count == 0) return "";
  return concat("of shape ", a.shape(), " differs in ", count, " elements by up to ", worst, " of ", scale,
                ", tolerance ", tolerance, ": element ", first, " is ", x[first], ", expected ", y[first]);
}

Tensor ParityRun::place(Tensor saved) const {
  if (is_floating(saved.dtype()) && rounded) saved = saved.cast(DType::bfloat16);
  return (is_floating(saved.dtype()) ? saved.cast(operands[0].dtype()) : saved).to(operands[0].device());
}

Tensor normal(const Shape& shape, uint64_t seed) { return random_tensor(shape, DType::float64, seed); }

Tensor uniform(const Shape& shape, double low, double high, uint64_t seed) {
  RandomStream sequence(seed, 0, Purpose::test);
  return random_uniform(shape, low, high, sequence, DType::float64);
}

Tensor integers(const Shape& shape, int low, int high, uint64_t seed) {
  return random_integers(shape, low, high, DType::int32, seed);
}

Tensor with(Tensor x, const std::vector<std::pair<int64_t, double>>& elements) {
  for (const auto& [index, value] : elements) x.mutable_data<double>()[index] = value;
  return x;
}

}  // namespace cairn::test

TEST_CASE("a difference of small results is seen, and said to be where it is") {
  using Catch::Matchers::ContainsSubstring;
  const auto of = [](std::vector<float> values) { return Tensor::from(values, {int64_t(values.size())}); };
  CHECK_THAT(differs(of({0.001f, 0.002f, 0.5f * 0.003f}), of({0.001f, 0.002f, 0.003f}), tolerance::bfloat16),
             ContainsSubstring("of shape [3] differs in 1 elements by up to 0.5") &&
                 ContainsSubstring("tolerance 0.0078125: element 2 is 0.0015, expected 0.003"));
  CHECK(differs(of({0.003f, 0.002f}), of({0.00301f, 0.002f}), tolerance::bfloat16) == "");
  CHECK(differs(of({3e-7f}), of({-3e-7f}), tolerance::float32) == "");  // rounding, where the result is 0
  CHECK(differs(of({NAN, INFINITY}), of({NAN, INFINITY}), 0) == "");
  for (const float other : {1.0f, float(INFINITY), -float(INFINITY)}) CHECK(differs(of({NAN}), of({other}), 1) != "");
  CHECK(differs(of({INFINITY}), of({1}), 1) != "");
  CHECK(differs(of({1, 2}), of({1}), 1) == "has shape [2], expected [1]");
}

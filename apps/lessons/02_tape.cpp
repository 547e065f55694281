// Lesson 2: a tape for single numbers (apps/lessons/02_tape.md). The check is at the end of this file.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using Gradients = std::vector<double>;

// One operation. Inputs are places on the tape.
struct Node {
  double value, gradient;
  std::vector<size_t> inputs;
  std::function<Gradients(double)> backward;  // maps the gradient of its value to one gradient for each input
};
std::vector<Node> tape;

struct Number {
  size_t place;
  double value() const { return tape[place].value; }
  double gradient() const { return tape[place].gradient; }
};

// Appends a node with gradient 0.
Number record(double value, const std::vector<Number>& inputs, std::function<Gradients(double)> backward) {
  // [lesson 2
  Node node{value, 0, {}, std::move(backward)};
  for (const Number& input : inputs) node.inputs.push_back(input.place);
  tape.push_back(std::move(node));
  return {tape.size() - 1};
  // lesson 2]
}
Number number(double value) {
  return record(value, {}, [](double) { return Gradients{}; });
}
Number operator+(Number a, Number b) {
  return record(a.value() + b.value(), {a, b}, [](double g) { return Gradients{g, g}; });
}
Number operator*(Number a, Number b) {
  // [lesson 2
  const double x = a.value(), y = b.value();
  return record(x * y, {a, b}, [x, y](double g) { return Gradients{g * y, g * x}; });
  // lesson 2]
}
Number operator/(Number a, Number b) {
  // [lesson 2
  const double x = a.value(), y = b.value();
  return record(x / y, {a, b}, [x, y](double g) { return Gradients{g / y, -g * x / (y * y)}; });
  // lesson 2]
}
Number exp(Number a) {
  // [lesson 2
  const double y = std::exp(a.value());
  return record(y, {a}, [y](double g) { return Gradients{g * y}; });
  // lesson 2]
}
Number relu(Number a) {
  // [lesson 2
  const double x = a.value();
  return record(x > 0 ? x : 0, {a}, [x](double g) { return Gradients{x > 0 ? g : 0}; });
  // lesson 2]
}

// Gives every node before `loss` its gradient: d loss / d value.
void backward(Number loss) {
  // [lesson 2
  for (Node& node : tape) node.gradient = 0;
  tape[loss.place].gradient = 1;
  for (size_t place = loss.place + 1; place-- > 0;) {
    const Gradients gradients = tape[place].backward(tape[place].gradient);
    for (size_t i = 0; i < gradients.size(); ++i) tape[tape[place].inputs[i]].gradient += gradients[i];
  }
  // lesson 2]
}

using Matrix = std::vector<std::vector<Number>>;

// The loss of autograd/TAPE.md: h = relu(x w + b), the sum of h softmax(h), softmax of each row, for x [n, k], w [k,
// m], b [m].
Number loss_of(const Matrix& x, const Matrix& w, const std::vector<Number>& b) {
  // [lesson 2
  Number loss = number(0);
  for (const auto& row : x) {
    Number top = number(0), sum = number(0);
    for (size_t j = 0; j < b.size(); ++j) {
      Number h = b[j];
      for (size_t l = 0; l < row.size(); ++l) h = h + row[l] * w[l][j];
      h = relu(h);
      top = top + h * exp(h);
      sum = sum + exp(h);
    }
    loss = loss + top / sum;
  }
  return loss;
  // lesson 2]
}

// ---- the check

void expect(const std::string& what, double found, double expected) {
  if (std::abs(found - expected) <= 1e-5 * std::max(1.0, std::abs(expected))) return;
  char text[200];
  std::snprintf(text, sizeof text, "%s: %.6g, expected %.6g", what.c_str(), found, expected);
  throw std::runtime_error(text);
}

// A function of x and y, its value at x = 3, y = -2, and its derivatives there.
struct Expression {
  const char* text;
  double value, by_x, by_y;
  Number (*of)(Number x, Number y);
};
const Expression expressions[] = {
    {"x y", -6, -2, 3, [](Number x, Number y) { return x * y; }},
    {"x x, where x is used twice", 9, 6, 0, [](Number x, Number) { return x * x; }},
    {"x / y", -1.5, -0.5, -0.75, [](Number x, Number y) { return x / y; }},
    {"exp(y) + relu(y)", 0.1353353, 0, 0.1353353, [](Number, Number y) { return exp(y) + relu(y); }},
    {"relu(x)", 3, 1, 0, [](Number x, Number) { return relu(x); }},
    {"z (z x) for z = x y, by paths of different length", 108, 108, -108,
     [](Number x, Number y) {
       const Number z = x * y;
       return z * (z * x);
     }},
};

Matrix matrix(const std::vector<std::vector<double>>& values) {
  Matrix result;
  for (const auto& row : values)
    std::transform(row.begin(), row.end(), std::back_inserter(result.emplace_back()), number);
  return result;
}

int main() try {
  for (const Expression& f : expressions) {
    const Number x = number(3), y = number(-2), result = f.of(x, y);
    const std::string text = f.text;
    expect(text, result.value(), f.value);
    backward(result);
    expect("the derivative by x of " + text, x.gradient(), f.by_x);
    expect("the derivative by y of " + text, y.gradient(), f.by_y);
    number(1);  // the loss is not the last number on the tape
    backward(result);
    expect("after a second backward, the derivative by x of " + text, x.gradient(), f.by_x);
  }
  const Matrix w = matrix({{1, -1}, {0, 1}}), b = matrix({{1, 1}});
  backward(loss_of(matrix({{1, 2}, {3, 4}, {5, 6}}), w, b[0]));
  const double dw[] = {9.035676, -0.035676, 11.679125, 0.320875}, db[] = {2.643449, 0.356551};
  for (size_t i = 0; i < 4; ++i) expect("TAPE.md: the gradient of w", w[i / 2][i % 2].gradient(), dw[i]);
  for (size_t i = 0; i < 2; ++i) expect("TAPE.md: the gradient of b", b[0][i].gradient(), db[i]);
  expect("the loss of x = (-3, 1), whose x w + b is (-2, 5)", loss_of(matrix({{-3, 1}}), w, b[0]).value(), 4.966536);
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 1;
}

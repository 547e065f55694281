// Lesson 0: views of memory, without a copy (apps/lessons/00_strides.md). The check is at the end of this file.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/shape.h"

using namespace cairn;

using Numbers = std::vector<int64_t>;

// Elements of memory that it does not own. One step along axis i of sizes[i] elements is strides[i] elements in memory.
struct View {
  double* first;  // the element [0, 0, ...]
  Numbers sizes, strides;
};

// The view of all of `memory`, in order: the last axis has stride 1.
View view(std::vector<double>& memory, const Numbers& sizes) {
  // [lesson 0
  View x{memory.data(), sizes, Numbers(sizes.size(), 1)};
  for (size_t axis = sizes.size(); axis-- > 1;) x.strides[axis - 1] = x.strides[axis] * sizes[axis];
  return x;
  // lesson 0]
}

double& at(const View& x, const Numbers& index) {
  // [lesson 0
  double* element = x.first;
  for (size_t axis = 0; axis < index.size(); ++axis) element += index[axis] * x.strides[axis];
  return *element;
  // lesson 0]
}

// The view with axes a and b exchanged.
View transpose(View x, size_t a, size_t b) {
  // [lesson 0
  std::swap(x.sizes[a], x.sizes[b]);
  std::swap(x.strides[a], x.strides[b]);
  return x;
  // lesson 0]
}

// Of an axis, `count` elements: begin, begin + step, ...; the step may be negative.
View slice(View x, size_t axis, int64_t begin, int64_t count, int64_t step = 1) {
  // [lesson 0
  x.first += begin * x.strides[axis];
  x.sizes[axis] = count;
  x.strides[axis] *= step;
  return x;
  // lesson 0]
}

// The view as if it had these sizes. Axes are aligned at the end. An axis of size 1, or one that x lacks, repeats.
View broadcast(const View& x, const Numbers& sizes) {
  // [lesson 0
  View result{x.first, sizes, Numbers(sizes.size(), 0)};
  const size_t lacks = sizes.size() - x.sizes.size();
  for (size_t axis = 0; axis < x.sizes.size(); ++axis)
    if (x.sizes[axis] != 1) result.strides[lacks + axis] = x.strides[axis];
  return result;
  // lesson 0]
}

// Calls f(index) for each index of an array of these sizes, in order.
void each(const Numbers& sizes, const std::function<void(const Numbers&)>& f) {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  Numbers index(sizes.size());
  for (int64_t i = 0; i < elements; ++i) {
    f(index);
    for (size_t axis = sizes.size(); axis-- > 0 && ++index[axis] == sizes[axis];) index[axis] = 0;
  }
}

// The gradient of broadcast: adds each element of `gradient` to the element of x that was repeated there.
void add_sums(const View& gradient, const View& x) {
  // [lesson 0
  const View repeated = broadcast(x, gradient.sizes);
  each(gradient.sizes, [&](const Numbers& index) { at(repeated, index) += at(gradient, index); });
  // lesson 0]
}

// ---- the check

std::vector<double> memory(24);  // 0, 1, ..., 23
View whole() { return view(memory, {2, 3, 4}); }

// Compares an element of x.
void expect(const std::string& what, const View& x, const Numbers& sizes, const Numbers& index, double expected) {
  check(x.sizes == sizes, what, ": the sizes are not ", Shape(sizes.begin(), sizes.end()));
  check(x.strides.size() == sizes.size(), what, ": expected a stride for each axis");
  const std::ptrdiff_t place = &at(x, index) - memory.data();
  const std::string element = concat(what, ": element ", Shape(index.begin(), index.end()));
  check(place >= 0 && place < 24, element, " is number ", place, " of the memory, which has 24");
  check(memory[size_t(place)] == expected, element, " is ", memory[size_t(place)], ", expected ", expected);
}

int main() try {
  std::iota(memory.begin(), memory.end(), 0);
  expect("view", whole(), {2, 3, 4}, {0, 0, 3}, 3);
  expect("view", whole(), {2, 3, 4}, {0, 2, 1}, 9);
  expect("view", whole(), {2, 3, 4}, {1, 2, 3}, 23);
  const View turned = transpose(whole(), 0, 2);
  expect("transpose", turned, {4, 3, 2}, {3, 1, 0}, 7);
  expect("transpose", turned, {4, 3, 2}, {2, 0, 1}, 14);
  const View part = slice(whole(), 1, 1, 2);
  expect("slice", part, {2, 2, 4}, {1, 1, 2}, 22);
  expect("slice by 2", slice(whole(), 2, 0, 2, 2), {2, 3, 2}, {0, 0, 1}, 2);
  expect("slice of a slice by 2", slice(slice(part, 2, 0, 2, 2), 2, 1, 1, 2), {2, 2, 1}, {0, 1, 0}, 10);
  expect("slice of a transpose", slice(turned, 0, 1, 3), {3, 3, 2}, {2, 0, 0}, 3);
  expect("slice backward", slice(whole(), 2, 3, 4, -1), {2, 3, 4}, {1, 0, 1}, 14);
  const View row = slice(slice(whole(), 0, 1, 1), 1, 1, 1);  // [1, 1, 4]: 16, 17, 18, 19
  expect("broadcast of [1, 1, 4]", broadcast(row, {5, 3, 4}), {5, 3, 4}, {4, 2, 3}, 19);
  const View column = slice(transpose(view(memory, {2, 12}), 0, 1), 1, 1, 1);  // [12, 1]: 12, 13, ...
  expect("broadcast of [12, 1]", broadcast(column, {12, 7}), {12, 7}, {8, 6}, 20);
  const View even = slice(view(memory, {24}), 0, 0, 2, 2);  // [2]: 0, 2
  expect("broadcast of [2]", broadcast(even, {2, 2}), {2, 2}, {0, 1}, 2);
  expect("broadcast of [2]", broadcast(even, {2, 2}), {2, 2}, {1, 0}, 0);
  std::vector<double> sums(4, 100);  // what is there is added to
  add_sums(slice(whole(), 2, 0, 2), view(sums, {2, 1, 2}));
  const double expected[] = {112, 115, 148, 151};
  for (size_t i = 0; i < 4; ++i)
    check(sums[i] == expected[i], "add_sums: number ", i, " of [2, 1, 2] is ", sums[i], ", expected ", expected[i]);
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 1;
}

#include "core/random.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/dispatch.h"
#include "core/functors.h"
#include "core/parallel.h"

namespace cairn {

void Generator::set_first_example(int64_t example) {
  check(example >= 0, "generator: the first example is ", example, ", expected at least 0");
  first_example_ = example;
}

RandomStream::RandomStream(uint64_t seed, uint64_t step, Purpose purpose, uint32_t index)
    : key_(Draw{seed, step, index, purpose}.key()) {}

uint32_t RandomStream::next() {
  if (drawn_ % 4 == 0) words_ = philox(key_, {{drawn_ / 4, 0, 2, 0}});
  return words_.w[drawn_++ % 4];
}

float RandomStream::normal() { return cairn::normal(key_, normals_++, 0); }

void RandomStream::skip(uint32_t words, uint32_t normals) {
  drawn_ += words;
  if (drawn_ % 4 != 0) words_ = philox(key_, {{drawn_ / 4, 0, 2, 0}});
  normals_ += normals;
}

// Each element takes this many words and normal numbers from the stream.
template <class Next>
static Tensor random_tensor(Shape shape, DType dtype, RandomStream& sequence, uint32_t words, uint32_t normals,
                            Next&& next) {
  Tensor result(shape, dtype);
  visit(dtype, [&]<class T>(T) {
    T* data = result.mutable_data<T>();
    parallel_for(result.elements(), 4096, [&](int64_t begin, int64_t end) {
      RandomStream part = sequence;
      part.skip(words * uint32_t(begin), normals * uint32_t(begin));
      for (int64_t i = begin; i < end; ++i) data[i] = convert<T>(double(next(part)));
    });
  });
  sequence.skip(words * uint32_t(result.elements()), normals * uint32_t(result.elements()));
  return result;
}

Tensor random_uniform(Shape shape, double low, double high, RandomStream& sequence, DType dtype) {
  check(std::isfinite(high - low), "random_uniform: from ", low, " to ", high, ", expected finite numbers");
  // Bisection: the last number that stays below `high` when it is rounded to the type.
  double last = low, beyond = high;
  visit(dtype, [&]<class T>(T) {
    for (double x = std::midpoint(last, beyond); x != last && x != beyond; x = std::midpoint(last, beyond))
      (convert<double>(convert<T>(x)) < high ? last : beyond) = x;
  });
  return random_tensor(shape, dtype, sequence, 1, 0,
                       [=](RandomStream& part) { return std::min(part.uniform(low, high), last); });
}
Tensor random_normal(Shape shape, RandomStream& sequence, DType dtype) {
  return random_tensor(shape, dtype, sequence, 0, 1, [](RandomStream& part) { return part.normal(); });
}

}  // namespace cairn

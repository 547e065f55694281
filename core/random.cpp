#include "core/random.h"

#include "core/dispatch.h"
#include "core/functors.h"

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

template <class Next>
static Tensor random_tensor(Shape shape, DType dtype, Next&& next) {
  Tensor result(shape, dtype);
  visit(dtype, [&]<class T>(T) {
    T* data = result.mutable_data<T>();
    for (int64_t i = 0; i < result.elements(); ++i) data[i] = convert<T>(double(next()));
  });
  return result;
}

Tensor random_uniform(Shape shape, double low, double high, RandomStream& sequence, DType dtype) {
  return random_tensor(shape, dtype, [&] { return sequence.uniform(low, high); });
}
Tensor random_normal(Shape shape, RandomStream& sequence, DType dtype) {
  return random_tensor(shape, dtype, [&] { return sequence.normal(); });
}

}  // namespace cairn

// Built as a shared library with the static one within it.
#include <cairn/autograd/ops.h>
#include <cairn/core/parallel.h>
using namespace cairn;

// The sum of a product of matrices of ones, and of its gradient, computed on three threads: 2 n^3.
extern "C" double sum_of_products(int n) {
  set_threads(3);
  const Variable x(Tensor::full({n, n}, 1), true), y(Tensor::full({n, n}, 1));
  const Variable all = sum(matmul(x, y));
  backward(all);
  return all.value().item() + sum(Variable(x.grad())).value().item();
}

#include "tests/parity.h"

using namespace cairn;

namespace {

void check_same(const Results& a, const Results& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const std::string difference = differs(a[i].value, b[i].value, is_floating(a[i].value.dtype()) ? tolerance : 0);
    INFO(a[i].name << ' ' << difference);
    CHECK(difference.empty());
  }
}

}  // namespace

void Cases::compare(const Bench& on_cuda, const Bench& on_cpu, double tolerance) const {
  for (const Case& test : cases_) {
    INFO(test.name);
    check_same(test.run(on_cuda), test.run(on_cpu), tolerance > 0 ? tolerance : test.tolerance);
  }
}

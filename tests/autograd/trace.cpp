#include "core/trace.h"

#include <set>
#include <sstream>

#include "tests/ops/ops_test.h"

TEST_CASE("every recorded operation has a gradient span around the kernels that it calls", "[tape][trace]") {
  const Variable x(random_tensor({4, 6}, DType::float32), true), w(random_tensor({5, 6}, DType::float32), true);
  const Variable b(random_tensor({5}, DType::float32), true);
  const Variable loss = mean(square(softmax(gelu(linear(x, w, b)) * 2.0)));
  std::multiset<std::string> recorded;  // the second word of each line of the graph
  std::istringstream graph(graph_to_string(loss));
  for (std::string line, number, name; std::getline(graph, line);) {
    std::istringstream(line) >> number >> name;
    recorded.insert(name);
  }
  REQUIRE(recorded.size() >= 6);

  trace::start();
  backward(loss);
  const trace::Recording recording = trace::stop();
  std::multiset<std::string> seen;
  int64_t kernels_inside = 0, end = 0;
  for (const trace::Event& event : recording.events) {
    if (event.category == std::string("backward")) {
      seen.insert(event.name);
      CHECK(event.begin >= end);  // gradients do not overlap
      end = event.begin + event.duration;
    } else {
      CHECK(event.category == std::string("kernel"));
      kernels_inside += event.begin + event.duration <= end;
    }
  }
  CHECK(seen == recorded);
  CHECK(kernels_inside >= int64_t(recorded.size()));
}

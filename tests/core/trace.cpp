#include "core/trace.h"

#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "autograd/ops.h"
#include "tests/catch.h"

using namespace cairn;  // NOLINT: tests only

namespace {

void two_spans() {
  const trace::Span outer("outer", "test", "x ", 1);
  const trace::Span inner("inner", "test");
}

std::vector<std::string> names(const trace::Recording& recording) {
  std::vector<std::string> result;
  for (const trace::Event& event : recording.events) result.emplace_back(event.name);
  return result;
}

bool inside(const trace::Event& inner, const trace::Event& outer) {
  return outer.begin <= inner.begin && inner.begin + inner.duration <= outer.begin + outer.duration;
}

struct Counted {
  int* written;
};
void append(std::string&, const Counted& counted) { ++*counted.written; }

}  // namespace

TEST_CASE("before start() and after stop() nothing is recorded and no detail is formatted", "[trace]") {
  int written = 0;
  const auto span = [&] { const trace::Span opened("span", "test", Counted{&written}); };
  span();
  CHECK(written == 0);
  trace::start();
  span();
  CHECK(trace::stop().events.size() == 1);
  CHECK(written == 1);
  span();
  CHECK(written == 1);
  CHECK(trace::stop().events.empty());
}

TEST_CASE("a span includes the calls before its end", "[trace]") {
  trace::start(10, []() noexcept { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  { const trace::Span span("span", "test"); }
  const trace::Recording recording = trace::stop();
  REQUIRE(recording.events.size() == 1);
  CHECK(recording.events[0].duration >= 2'000'000);
}

TEST_CASE("spans are nested and listed in the order of opening", "[trace]") {
  trace::start();
  {
    const trace::Span whole("whole", "test");
    two_spans();
    two_spans();
  }
  const trace::Recording recording = trace::stop();
  REQUIRE(names(recording) == std::vector<std::string>{"whole", "outer", "inner", "outer", "inner"});
  const std::vector<trace::Event>& e = recording.events;
  for (size_t i = 1; i < 5; ++i) CHECK(inside(e[i], e[0]));
  CHECK(inside(e[2], e[1]));
  CHECK(inside(e[4], e[3]));
  CHECK(e[1].begin + e[1].duration <= e[3].begin);
  CHECK(e[0].begin >= 0);
  CHECK(e[1].detail == "x 1");
  CHECK(e[2].detail.empty());
  CHECK(recording.dropped == 0);
}

TEST_CASE("a full recording keeps the spans that ended first and counts the others", "[trace]") {
  trace::start(3);
  {
    const trace::Span whole("whole", "test");
    for (int i = 0; i < 4; ++i) two_spans();
  }
  const trace::Recording recording = trace::stop();
  CHECK(names(recording) == std::vector<std::string>{"outer", "inner", "inner"});
  CHECK(recording.dropped == 6);
}

TEST_CASE("a span that is open when a recording ends belongs to no recording", "[trace]") {
  trace::start();
  auto open = std::make_unique<trace::Span>("open", "test");
  CHECK(trace::stop().events.empty());
  trace::start();
  two_spans();
  open.reset();
  CHECK(names(trace::stop()) == std::vector<std::string>{"outer", "inner"});
  trace::start();
  two_spans();
  trace::start();  // forgets the first recording
  CHECK(trace::stop().events.empty());
}

TEST_CASE("threads record at the same time, each under its own number", "[trace]") {
  trace::start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) two_spans();
    });
  for (std::thread& thread : threads) thread.join();
  const trace::Recording recording = trace::stop();
  CHECK(recording.events.size() == 800);
  std::map<int, int> count;
  for (const trace::Event& event : recording.events) ++count[event.thread];
  CHECK(count.size() == 4);
  for (const auto& [thread, spans] : count) CHECK(spans == 200);
}

TEST_CASE("each call of a kernel is a span with the shape of its operand", "[trace]") {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  trace::start();
  softmax(x);
  argmax(x);
  const trace::Recording recording = trace::stop();
  REQUIRE(names(recording) == std::vector<std::string>{"softmax", "argmax"});
  for (const trace::Event& event : recording.events) {
    CHECK(event.category == std::string("kernel"));
    CHECK(event.detail == "[2, 3]");
  }
}

#include "apps/common/trace_file.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "tests/catch.h"

using namespace cairn;  // NOLINT: tests only
using Catch::Matchers::ContainsSubstring;

namespace {

// train [0, 10] on thread 0 holds softmax [1, 3], and a gradient [4, 9] that holds softmax [5, 8]; thread 3 has one
// more softmax. Milliseconds.
trace::Recording example() {
  const auto event = [](const char* name, const char* category, const char* detail, int begin, int end, int thread) {
    return trace::Event{name, category, detail, begin * 1'000'000LL, (end - begin) * 1'000'000LL, thread};
  };
  return {{event("train", "program", "", 0, 10, 0), event("softmax", "kernel", "[2, 3]", 1, 3, 0),
           event("softmax", "kernel", "\"\\ \n", 2, 6, 3), event("softmax", "backward", "", 4, 9, 0),
           event("softmax", "kernel", "", 5, 8, 0)},
          7};
}

}  // namespace

TEST_CASE("a trace file is JSON in Chrome's format", "[trace]") {
  const std::string path = concat("/tmp/cairn-trace-", getpid(), ".json");
  trace::Recording recording = example();
  recording.events[1].begin += 1234;
  write_trace(path, recording, "copy-task");
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  std::remove(path.c_str());

  CHECK(json["otherData"]["dropped"] == 7);
  std::vector<nlohmann::json> spans, names;
  for (const auto& event : json["traceEvents"]) (event["ph"] == "X" ? spans : names).push_back(event);
  REQUIRE(names.size() == 3);
  CHECK(names[0]["name"] == "process_name");
  CHECK(names[0]["args"]["name"] == "copy-task");
  CHECK(names[2]["name"] == "thread_name");
  CHECK(names[2]["tid"] == 3);
  REQUIRE(spans.size() == 5);
  CHECK(spans[1]["name"] == "softmax");
  CHECK(spans[1]["cat"] == "kernel");
  CHECK(spans[1]["args"]["detail"] == "[2, 3]");
  CHECK(spans[1]["ts"] == 1001.234);
  CHECK(spans[1]["dur"] == 2000.0);
  CHECK(spans[1]["pid"] == names[0]["pid"]);
  CHECK(spans[2]["tid"] == 3);
  CHECK(spans[2]["args"]["detail"] == "\"\\ \n");
  CHECK_FALSE(spans[0].contains("args"));
}

TEST_CASE("a trace that cannot be written is an error", "[trace]") {
  CHECK_THROWS_AS(write_trace("/tmp", example(), "x"), UsageError);
  CHECK_THROWS_WITH(write_trace("/nowhere/trace.json", example(), "x"),
                    ContainsSubstring("/nowhere/trace.json: No such file or directory"));
  if (access("/dev/full", W_OK) == 0)
    CHECK_THROWS_WITH(write_trace("/dev/full", example(), "x"), ContainsSubstring("No space left on device"));
}

TEST_CASE("the summary takes what is inside from a span's own time", "[trace]") {
  std::istringstream lines(trace_summary(example()));
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(line);
  REQUIRE(rows.size() == 6);
  // train: 10 - 2 - 5; kernels: 2 + 4 forward and 3 in the gradient, which has 5 - 3 left.
  CHECK(rows[1] == "    0.006  42.9%      0.006         2  kernel softmax");
  CHECK(rows[2] == "    0.003  21.4%      0.003         1  kernel softmax in a gradient");
  CHECK(rows[3] == "    0.003  21.4%      0.010         1  program train");
  CHECK(rows[4] == "    0.002  14.3%      0.005         1  backward softmax");
  CHECK(rows[5] == "7 spans came after the first 5 and were dropped");
  CHECK_THAT(trace_summary(example(), 1), ContainsSubstring("\nand 3 kinds with less\n"));
  CHECK_FALSE(trace_summary({}).empty());
}

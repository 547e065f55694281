#include "apps/common/trace_file.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

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

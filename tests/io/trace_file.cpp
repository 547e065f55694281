#include "nn/io/trace_file.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/trace.h"
#include "nn/io/file.h"
#include "tests/catch.h"
#include "tests/io/io_test.h"

using namespace cairn;  // NOLINT: tests only

TEST_CASE("a trace file is JSON in Chrome's format", "[trace]") {
  const TemporaryFolder folder;
  TraceFile trace((folder / "trace.json").string());
  {
    const trace::Span train("train", "program");
    const trace::Span forward("forward", "module", "\"\\ \n");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(trace.finish() == 0);
  const auto json = nlohmann::json::parse(read_file(folder / "trace.json"));
  CHECK(json["otherData"]["dropped"] == 0);
  REQUIRE(json["traceEvents"].size() == 2);
  auto span = json["traceEvents"][1];
  CHECK((span["ts"] >= json["traceEvents"][0]["ts"] && span["dur"] >= 2000 && span["dur"] < 1e6));  // microseconds
  span.erase("ts");
  span.erase("dur");
  CHECK(span == nlohmann::json({{"name", "forward"},
                                {"cat", "module"},
                                {"ph", "X"},
                                {"pid", 1},
                                {"tid", 0},
                                {"args", {{"detail", "\"\\ \n"}}}}));
}

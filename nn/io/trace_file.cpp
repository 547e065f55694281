#include "nn/io/trace_file.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/trace.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

// A span as Chrome's trace event format has it.
Json json_of(const trace::Event& event) {
  Json json = {{"name", event.name}, {"cat", event.category}, {"ph", "X"}, {"pid", 1}, {"tid", event.thread}};
  json["ts"] = double(event.begin) / 1000;  // microseconds
  json["dur"] = double(event.duration) / 1000;
  if (!event.detail.empty()) json["args"]["detail"] = event.detail;
  return json;
}

}  // namespace

TraceFile::TraceFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  out_.open(path, std::ios::app);
  check<UsageError>(out_.is_open(), "trace ", path, ": cannot be written: ", std::strerror(errno));
  trace::start();
}

TraceFile::~TraceFile() try { finish(); } catch (const std::exception&) {
}

int64_t TraceFile::finish() {
  const std::ofstream keeps_open = std::move(out_);  // a pipe, until all is written
  if (!keeps_open.is_open()) return 0;
  const trace::Recording recording = trace::stop();
  std::string text =
      concat(R"({"displayTimeUnit":"ms","otherData":{"dropped":)", recording.dropped, "},\"traceEvents\":[");
  const char* before = "\n";
  for (const trace::Event& event : recording.events) text += std::exchange(before, ",\n") + printed(json_of(event));
  replace_file(path_, {text, "\n]}\n"});
  return recording.dropped;
}

}  // namespace cairn

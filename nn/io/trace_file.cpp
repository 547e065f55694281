#include "nn/io/trace_file.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/trace.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

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
  out_.open(path);
  check<UsageError>(out_.is_open(), "trace ", path, ": cannot be written: ", std::strerror(errno));
  trace::start();
}

TraceFile::~TraceFile() try { finish(); } catch (const std::exception&) {
}

int64_t TraceFile::finish() {
  if (!out_.is_open()) return 0;
  const trace::Recording recording = trace::stop();
  out_ << R"({"displayTimeUnit":"ms","otherData":{"dropped":)" << recording.dropped << "},\"traceEvents\":[";
  const char* before = "\n";
  for (const trace::Event& event : recording.events) out_ << std::exchange(before, ",\n") << printed(json_of(event));
  out_ << "\n]}\n";
  out_.close();
  check(bool(out_), "trace ", path_, ": cannot be written: ", std::strerror(errno));
  return recording.dropped;
}

}  // namespace cairn

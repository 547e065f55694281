#include "apps/common/trace_file.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "core/error.h"

namespace cairn {
namespace {

using nlohmann::ordered_json;

std::string quoted(const std::string& text) {
  return ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Nanoseconds as microseconds, exactly.
std::string microseconds(int64_t nanoseconds) {
  return formatted("%lld.%03lld", (long long)(nanoseconds / 1000), (long long)(nanoseconds % 1000));
}

std::string named(const char* what, int thread, const std::string& name) {
  return concat(R"({"name":")", what, R"(","ph":"M","pid":1,"tid":)", thread, R"(,"args":{"name":)", quoted(name),
                "}}");
}

}  // namespace

void write_trace(const std::string& path, const trace::Recording& recording, const std::string& program) {
  std::ofstream out(path);
  check<UsageError>(bool(out), "trace: cannot write ", path, ": ", std::strerror(errno));
  out << R"({"displayTimeUnit":"ms","otherData":{"dropped":)" << concat(recording.dropped) << "},\"traceEvents\":[\n"
      << named("process_name", 0, program);
  std::set<int> threads;
  for (const trace::Event& event : recording.events) threads.insert(event.thread);
  for (int thread : threads) out << ",\n" << named("thread_name", thread, concat("thread ", thread));
  for (const trace::Event& event : recording.events) {
    out << ",\n{\"name\":" << quoted(event.name) << ",\"cat\":" << quoted(event.category)
        << ",\"ph\":\"X\",\"pid\":1,\"tid\":" << concat(event.thread) << ",\"ts\":" << microseconds(event.begin)
        << ",\"dur\":" << microseconds(event.duration);
    if (!event.detail.empty()) out << ",\"args\":{\"detail\":" << quoted(event.detail) << "}";
    out << "}";
  }
  out << "\n]}\n";
  out.close();
  check(bool(out), "trace: cannot write all of ", path, ": ", std::strerror(errno));
}

void TraceFile::field(SettingFields& f, std::string& path) {
  f("trace", path, Text::file, "write a trace of what ran when, for chrome://tracing or ui.perfetto.dev", Keep::no);
}

TraceFile::TraceFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  errno = 0;
  check<UsageError>(std::ofstream(path_, std::ios::app).is_open(), "--trace ", path_,
                    ": cannot be written: ", std::strerror(errno));
  trace::start();
}

TraceFile::~TraceFile() try { finish(); } catch (const std::exception& error) {
  note(error.what(), false);
}

void TraceFile::finish() {
  if (path_.empty()) return;
  const trace::Recording recording = trace::stop();
  write_trace(std::exchange(path_, {}), recording, program());
  if (recording.dropped > 0)
    note(concat("--trace: ", recording.dropped, " spans came after the first ", recording.events.size(),
                " and were dropped"),
         false);
}

}  // namespace cairn

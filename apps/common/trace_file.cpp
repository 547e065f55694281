#include "apps/common/trace_file.h"

#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "apps/common/program.h"
#include "core/error.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

// The beginning of an event of Chrome's format; `phase` is X for a span, M for a name.
Json event(const std::string& name, const char* phase, int thread) {
  return {{"name", name}, {"ph", phase}, {"pid", 1}, {"tid", thread}};
}

// The name of the process or of a thread.
Json named(const char* what, int thread, const std::string& name) {
  Json json = event(what, "M", thread);
  json["args"]["name"] = name;
  return json;
}

Json span(const trace::Event& from) {
  Json json = event(from.name, "X", from.thread);
  json["cat"] = from.category;
  json["ts"] = double(from.begin) / 1000;  // microseconds
  json["dur"] = double(from.duration) / 1000;
  if (!from.detail.empty()) json["args"]["detail"] = from.detail;
  return json;
}

}  // namespace

void write_trace(const std::string& path, const trace::Recording& recording, const std::string& program) {
  std::ofstream out(path);
  check<UsageError>(bool(out), "trace: cannot write ", path, ": ", std::strerror(errno));
  const auto text = [](const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); };
  out << R"({"displayTimeUnit":"ms","otherData":{"dropped":)" << concat(recording.dropped) << "},\"traceEvents\":[\n"
      << text(named("process_name", 0, program));
  std::set<int> threads;
  for (const trace::Event& each : recording.events) threads.insert(each.thread);
  for (const int thread : threads) out << ",\n" << text(named("thread_name", thread, concat("thread ", thread)));
  for (const trace::Event& each : recording.events) out << ",\n" << text(span(each));
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

#include "apps/common/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/common/format.h"
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

// Name, category, below a gradient or not.
using Kind = std::tuple<std::string_view, std::string_view, bool>;
struct Times {
  int64_t self = 0, total = 0, count = 0;
};

std::map<Kind, Times> times_by_kind(const std::vector<trace::Event>& events) {
  struct Open {
    int64_t end;
    Kind kind;
    bool in_gradient;  // it or a span around it is a gradient's
  };
  std::map<Kind, Times> times;
  std::map<int, std::vector<Open>> threads;
  for (const trace::Event& event : events) {
    std::vector<Open>& open = threads[event.thread];
    while (!open.empty() && open.back().end <= event.begin) open.pop_back();
    const bool inside = !open.empty() && open.back().in_gradient;
    const Kind kind{event.name, event.category, inside};
    const bool nested = std::any_of(open.begin(), open.end(), [&](const Open& outer) { return outer.kind == kind; });
    Times& mine = times[kind];
    mine.self += event.duration;
    if (!nested) mine.total += event.duration;
    ++mine.count;
    if (!open.empty()) times[open.back().kind].self -= event.duration;
    open.push_back({event.begin + event.duration, kind, inside || std::string_view(event.category) == "backward"});
  }
  return times;
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

std::string trace_summary(const trace::Recording& recording, size_t maximum) {
  const std::map<Kind, Times> times = times_by_kind(recording.events);
  int64_t all = 0;
  for (const auto& [kind, time] : times) all += time.self;
  std::vector<std::pair<Kind, Times>> rows(times.begin(), times.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.self > b.second.self; });

  std::string text = "   self s  share    total s     count  span\n";
  const auto seconds = [](int64_t nanoseconds) { return double(nanoseconds) * 1e-9; };
  for (size_t i = 0; i < std::min(maximum, rows.size()); ++i) {
    const auto& [kind, time] = rows[i];
    const auto& [name, category, in_gradient] = kind;
    text +=
        formatted("%9.3f %5.1f%% %10.3f %9lld  ", seconds(time.self),
                  all > 0 ? 100 * double(time.self) / double(all) : 0.0, seconds(time.total), (long long)time.count);
    text += concat(category, ' ', name, in_gradient ? " in a gradient\n" : "\n");
  }
  if (rows.size() > maximum) text += concat("and ", rows.size() - maximum, " kinds with less\n");
  if (recording.dropped > 0)
    text += concat(recording.dropped, " spans came after the first ", recording.events.size(), " and were dropped\n");
  return text;
}

}  // namespace cairn

#pragma once
// Where the time went, as a file for ui.perfetto.dev or chrome://tracing:
//
//   TraceFile file("step.json");
//   ...  // the work to look at
//   file.finish();
#include <cstdint>
#include <fstream>
#include <string>

namespace cairn {

// Records (core/trace.h) from its construction on. Without a path it does nothing.
class TraceFile {
 public:
  // Error (UsageError): the file cannot be written.
  explicit TraceFile(const std::string& path);
  // Writes the file after an error or an interruption too, as far as that is possible.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  // Writes the file, as replace_file(). Returns how many spans are missing in it because there were too many. Error: it
  // cannot be written.
  int64_t finish();

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace cairn

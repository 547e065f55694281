#pragma once
// --trace FILE: where the time went, for chrome://tracing or ui.perfetto.dev.
#include <fstream>
#include <string>

#include "apps/common/settings.h"

namespace cairn {

// Records from its construction on. Without a path it does nothing.
class TraceFile {
 public:
  static void field(SettingFields& f, std::string& path);
  // Error (UsageError): the file cannot be written.
  explicit TraceFile(const std::string& path);
  // Writes the file after an error or an interruption too.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  // Writes the file. Says how many spans it lacks, if any. Error: it cannot be written.
  void finish();

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace cairn

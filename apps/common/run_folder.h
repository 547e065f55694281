#pragma once
// A run's folder: config.json (the settings as resolved), metrics.jsonl (one JSON object a line), the folders of its
// checkpoints (nn/io/checkpoint.h), report.html. One program at a time writes into it.
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/common/artifact.h"
#include "core/device.h"

namespace cairn {

// A folder that this process alone writes into.
class FolderLock {
 public:
  // Makes the folder that --out names, if need be, and locks it for as long as this object lives; the system frees the
  // lock of a program that dies. Where the file system has no locks, says so on standard error and goes on. Errors: the
  // path is something else, or is in use by another run (UsageError); the folder cannot be made or written (Error).
  explicit FolderLock(const std::filesystem::path& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  static constexpr const char* file_name = ".lock";  // the file in the folder

 private:
  int file_;
};

class RunFolder {
 public:
  using Json = nlohmann::ordered_json;

  // Opens a folder to write into. Errors: as FolderLock.
  explicit RunFolder(std::filesystem::path path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Writes a file whole: readers see the old one or the new one. Error: it cannot be written.
  void write(const std::string& name, const std::string& text);

  // Removes a file, if it is there. Error: it cannot be removed.
  void remove(const std::string& name);

  // Cuts metrics.jsonl back to its first `bytes` and continues behind them. Returns false where it had fewer; then it
  // continues behind the last whole record.
  bool cut_metrics(uint64_t bytes);
  // Adds a record to metrics.jsonl. Error: it cannot be written.
  void record(const Json& line);
  // Everything recorded is on the disk; its size in bytes.
  uint64_t sync_metrics();

 private:
  std::filesystem::path path_;
  FolderLock lock_;
  int metrics_ = -1;
};

// Makes the folder that --out names, if need be. Errors: the path is something else (UsageError); it cannot be made.
void make_out_folder(const std::filesystem::path& path);

// Is something there? Not where it cannot be known: a name that is too long, a folder that may not be read.
bool is_there(const std::filesystem::path& path);

// The name of a file that a run would replace - config.json, metrics.jsonl, report.html - and that is there; else
// empty.
std::string run_file_in(const std::filesystem::path& folder);

// The records of a run, in order; without metrics.jsonl none. The first `sure` bytes were brought to the disk by a
// save: a line there that is no JSON object is damage. Behind them a crash may have left anything, which ends the
// records. Errors (DataError): damage, with the line's number; it is no file that can be read.
std::vector<nlohmann::ordered_json> read_metrics(const std::filesystem::path& run, uint64_t sure);

}  // namespace cairn

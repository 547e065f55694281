#pragma once
// A folder that a program writes. Files are replaced whole; metrics.jsonl alone grows.
//
//   config.json     the settings, written first
//   metrics.jsonl   one JSON object per line: the steps of a training, the finished cells of a figure
//   result.json     written last, when nothing is left to do
//
// Checkpoints (nn/io/checkpoint.h) and reports lie beside them.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn {

// Another program is writing into the folder.
struct InUse : UsageError {
  using UsageError::UsageError;
};

class RunFolder {
 public:
  // The configuration in the folder. `option` begins the message. Error (DataError): there is none.
  static Json config(const char* option, const std::filesystem::path& folder);
  // Does the folder have a configuration?
  static bool is_in(const std::filesystem::path& folder);
  // Error (UsageError): the folder has files of a run. A new run would take them for its own: the message names all.
  static void expect_new(const std::filesystem::path& folder);

  // Makes the folder, if it is not there, locks it for as long as this object lives, and writes config.json. With an
  // empty path, nothing is written, and every call below does nothing. Errors: UsageError: the path is not a folder; a
  // setting is not storable; the folder has files of a run, but no config.json; InUse; Error: the folder cannot be made
  // or written.
  RunFolder(const std::filesystem::path& folder, const Json& config);

  bool keeps() const { return lock_.has_value(); }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

  // Replaces a file atomically: at any moment it is the old one or the new one. Error: it cannot be written.
  void write(const std::string& name, const std::string& text);
  // Adds a line to metrics.jsonl. Error: it cannot be written.
  void append(const Json& line);
  // Waits until the lines of metrics.jsonl are on the disk.
  void sync();
  // All lines of a folder's metrics.jsonl, without a last one that a crash cut off; none if there is no such file.
  // Error (DataError): one is not a JSON object.
  static std::vector<Json> lines_in(const std::filesystem::path& folder);
  std::vector<Json> lines() const;
  // Removes all but the first `count` lines.
  void keep_lines(int64_t count);
  Json result() const;  // null: none yet
  void write_result(const Json& result);

 private:
  std::filesystem::path folder_;
  std::optional<OpenFile> lock_, lines_;  // the lock is held while its file is open
};

// For a file of the folder that is JSON but lacks a key, or has a value of another type (Json::exception).
DataError damaged(const std::filesystem::path& file);

}  // namespace cairn

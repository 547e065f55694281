#pragma once
// A folder that a program writes, and never leaves half written:
//
//   config.json     what it was made with, written first
//   metrics.jsonl   one JSON object a line: the steps of a training, the finished cells of a figure
//   result.json     written last: nothing is left to do
//
// Checkpoints (nn/io/checkpoint.h) and reports lie beside them.
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "nn/io/file.h"

namespace cairn {

// Another program is writing into the folder.
struct InUse : UsageError {
  using UsageError::UsageError;
};

enum class Resume { no, if_there };

class Artifact {
 public:
  using Json = nlohmann::ordered_json;

  // The configuration that the folder that `option` names was made with. Error (DataError): there is none.
  static Json config(const char* option, const std::filesystem::path& folder);
  // Has the folder a configuration?
  static bool is_in(const std::filesystem::path& folder);

  // Makes the folder, locks it for as long as this object lives, and writes config.json. Without a path nothing is
  // kept, and every call below does nothing. Errors: UsageError: the path is something else; Resume::no, and the folder
  // has files that would be replaced; InUse; Error: the folder cannot be made or written.
  Artifact(const std::filesystem::path& folder, const Json& config, Resume resume);

  bool keeps() const { return lock_.has_value(); }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

  // A whole file: at any moment it is the old one or the new one. Error: it cannot be written.
  void write(const std::string& name, const std::string& text);
  // A line of metrics.jsonl. Error: it cannot be written.
  void append(const Json& line);
  // The lines of metrics.jsonl are on the disk.
  void sync();
  // All of them; a last one that a crash cut off is none. Error (DataError): one is no JSON object, with its number.
  std::vector<Json> lines() const;
  // The first `count` lines stay.
  void keep_lines(int64_t count);
  std::optional<Json> result() const;
  void write_result(const Json& result);

 private:
  std::filesystem::path folder_;
  std::optional<OpenFile> lock_, lines_;  // the lock is held while its file is open
};

// Is something there? Not where it cannot be known: a name that is too long, a folder that may not be read.
bool is_there(const std::filesystem::path& path);

// Where results may be written: a new file, or one in the place of a regular file, behind symbolic links. Errors
// (UsageError): something else is there, or there is no such folder, or it is `in`, the file that is read (empty:
// none).
std::filesystem::path output_path(const char* option, const std::string& name, const std::string& in);

// What results are made with: version and commit, device, processor, threads, vectors.
nlohmann::ordered_json provenance(Device device);

}  // namespace cairn

#include "apps/common/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "apps/common/commit.h"
#include "core/device.h"
#include "core/parallel.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* config_name = "config.json";
constexpr const char* lines_name = "metrics.jsonl";
constexpr const char* result_name = "result.json";

// The processor's name, as Linux reports it. On ARM it reports two numbers instead, which lscpu(1) has names for.
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  std::string implementer = "unknown";
  for (std::string line; std::getline(info, line);) {
    const std::string value = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer")) implementer = value;
    if (line.starts_with("CPU part")) return concat("ARM implementer ", implementer, " part ", value);
  }
  return "unknown";
}

}  // namespace

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

bool RunFolder::is_in(const fs::path& folder) { return is_there(folder / config_name); }

Json RunFolder::config(const char* option, const fs::path& folder) {
  check<DataError>(is_in(folder), option, ' ', folder, ": there is no run: ", folder / config_name, " is missing");
  return read_json(folder / config_name);
}

RunFolder::RunFolder(const fs::path& folder, const Json& config) : folder_(folder) {
  if (folder.empty()) return;
  for (const auto& [key, value] : config.items())
    if (value.is_string()) check_storable(concat(config_name, ": ", key), value);
  std::error_code error;
  check<UsageError>(!fs::exists(folder, error) || fs::is_directory(folder, error), "--out ", folder,
                    ": expected a folder, or a name for a new one, got a file");
  const bool is_new = fs::create_directories(folder, error);
  check(!error, "--out ", folder, ": cannot make the folder: ", error);
  if (is_new) sync_folder(fs::absolute(folder).parent_path());
  lock_.emplace(folder / ".lock", O_RDWR | O_CREAT, "cannot write into the folder");
  // A file system without locks fails with another error. Then nothing keeps other processes out.
  check<InUse>(flock(lock_->number(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK, "--out ", folder,
               ": another run is writing into this folder; wait for it, or choose another folder");
  write(config_name, config.dump(2) + "\n");
}

void RunFolder::write(const std::string& name, const std::string& text) {
  if (keeps()) replace_file(folder_ / name, {text});
}

void RunFolder::append(const Json& line) {
  if (!keeps()) return;
  if (!lines_) {
    keep_lines(INT64_MAX);  // removes a last line that a crash cut off
    lines_.emplace(folder_ / lines_name, O_WRONLY | O_CREAT | O_APPEND, "cannot be opened");
  }
  lines_->write(line.dump() + "\n");
}

void RunFolder::sync() {
  if (lines_) lines_->sync();
}

std::vector<Json> RunFolder::lines_in(const fs::path& folder) {
  std::vector<Json> found;
  const fs::path path = folder / lines_name;
  if (!is_there(path)) return found;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line) && !text.eof();) {
    found.push_back(parse_json(line, concat(path, ": line ", found.size() + 1)));
    check<DataError>(found.back().is_object(), path, ": line ", found.size(), ": expected a JSON object");
  }
  return found;
}

std::vector<Json> RunFolder::lines() const { return folder_.empty() ? std::vector<Json>() : lines_in(folder_); }

void RunFolder::keep_lines(int64_t count) {
  const fs::path path = folder_ / lines_name;
  if (!keeps() || !is_there(path)) return;
  const std::string text = read_file(path);
  size_t end = 0;
  for (int64_t i = 0; i < count && text.find('\n', end) != std::string::npos; ++i) end = text.find('\n', end) + 1;
  if (end == text.size()) return;
  std::error_code error;
  fs::resize_file(path, end, error);
  check(!error, path, ": cannot be truncated: ", error);
}

Json RunFolder::result() const {
  return keeps() && is_there(folder_ / result_name) ? read_json(folder_ / result_name) : Json();
}

void RunFolder::write_result(const Json& result) { write(result_name, result.dump(2) + "\n"); }

fs::path output_path(const char* option, const std::string& name, const std::string& in) {
  std::error_code error;
  const fs::file_status there = fs::status(name, error);
  check<UsageError>(!fs::exists(there) || fs::is_regular_file(there), option, ' ', name,
                    ": expected a regular file, or a new name");
  check<UsageError>(in.empty() || !fs::equivalent(name, in, error), option, ' ', name,
                    ": is the input file; choose another");
  fs::path path = fs::weakly_canonical(fs::absolute(name, error), error);
  check<UsageError>(fs::is_directory(path.parent_path(), error), option, ' ', name, ": there is no folder ",
                    path.parent_path());
  return path;
}

std::string stored_path(const std::string& name) {
  std::error_code error;
  const fs::path path = fs::absolute(name, error), resolved = fs::weakly_canonical(path, error);
  return error ? path : resolved;
}

void check_storable(const std::string& what, const std::string& text) {
  check<UsageError>(is_utf8(text), what, ": expected UTF-8, which JSON needs, got ", printed(text), "; rename it");
}

DataError damaged(const fs::path& file) {
  return DataError(concat(file, ": damaged: it lacks a key, or has a value of another type"));
}

Json provenance(Device device) {
  return {{"version", CAIRN_VERSION}, {"commit", CAIRN_COMMIT}, {"backends", backends()},  {"device", name(device)},
          {"processor", processor()}, {"threads", threads()},   {"vectors", cpu_vectors()}};
}

}  // namespace cairn

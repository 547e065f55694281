#include "apps/common/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "core/did_you_mean.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr const char* config_name = "config.json";
constexpr const char* lines_name = "metrics.jsonl";
constexpr const char* result_name = "result.json";

}  // namespace

bool RunFolder::is_in(const fs::path& folder) { return is_there(folder / config_name); }

void RunFolder::expect_new(const fs::path& folder) {
  std::vector<std::string> found;
  for (const char* name :
       {config_name, lines_name, result_name, "report.html", "checkpoint", "checkpoint.previous", "best"})
    if (is_there(folder / name)) found.emplace_back(name);
  check<UsageError>(found.empty(), "--out ", folder, ": the folder has files of a run (", joined(found), ")",
                    is_in(folder) ? "; continue the run with --resume, or" : ";", " choose another folder");
}

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
  if (!is_in(folder)) expect_new(folder);
  const bool is_new = fs::create_directories(folder, error);
  check(!error, "--out ", folder, ": cannot make the folder: ", error);
  if (is_new) sync_folder(fs::absolute(folder).parent_path());
  lock_.emplace(folder / ".lock", O_RDWR | O_CREAT, "cannot write into the folder");
  if (flock(lock_->number(), LOCK_EX | LOCK_NB) != 0) {
    check<InUse>(errno != EWOULDBLOCK, "--out ", folder,
                 ": another run is writing into this folder; wait for it, or choose another folder");
    on_loss(folder, "the file system has no locks, so start no second run in this folder");
  }
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

DataError damaged(const fs::path& file) {
  return DataError(concat(file, ": damaged: it lacks a key, or has a value of another type"));
}

}  // namespace cairn

#include "apps/common/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "apps/common/program.h"
#include "core/device.h"
#include "core/error.h"
#include "core/parallel.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw Error(concat(path, ": ", what, ": ", std::strerror(errno)));
}

}  // namespace

void make_out_folder(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  check(status.type() != fs::file_type::none, "--out ", path, ": cannot be looked at: ", error);
  check<UsageError>(!fs::exists(status) || fs::is_directory(status), "--out ", path,
                    ": expected a folder, or a name for a new one, got a file");
  fs::create_directories(path, error);
  check(!error, "--out ", path, ": cannot make the folder: ", error);
}

FolderLock::FolderLock(const fs::path& path) {
  make_out_folder(path);
  file_ = again([&] { return open((path / file_name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); });
  check(file_ >= 0, "--out ", path, ": cannot write into the folder: ", std::strerror(errno));
  if (again([this] { return flock(file_, LOCK_EX | LOCK_NB); }) == 0) return;
  const int number = errno;
  constexpr int no_locks[] = {ENOTSUP, EOPNOTSUPP, ENOLCK, ENOSYS, EINVAL};
  if (std::find(std::begin(no_locks), std::end(no_locks), number) != std::end(no_locks)) {
    note(concat("--out ", path, ": this file system has no locks (", std::strerror(number),
                "): nothing keeps another run from writing into this folder meanwhile"),
         false);
    return;
  }
  close(file_);
  check<UsageError>(number != EWOULDBLOCK, "--out ", path,
                    ": another run is writing into this folder; wait for it, or choose another folder");
  throw Error(concat("--out ", path, ": cannot be locked: ", std::strerror(number)));
}

FolderLock::~FolderLock() { close(file_); }

RunFolder::RunFolder(fs::path path) : path_(std::move(path)), lock_(path_) {}

RunFolder::~RunFolder() {
  if (metrics_ >= 0) close(metrics_);
}

void RunFolder::write(const std::string& name, const std::string& text) {
  replace_file(path_ / name, {text}, path_ / (name + ".new"));
}

void RunFolder::remove(const std::string& name) {
  std::error_code error;
  fs::remove(path_ / name, error);
  check(!error, path_ / name, ": cannot be removed: ", error);
}

bool RunFolder::cut_metrics(uint64_t bytes) {
  const fs::path file = path_ / "metrics.jsonl";
  if (metrics_ >= 0) close(metrics_);
  metrics_ = again([&] { return open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666); });
  if (metrics_ < 0) fail(file, "cannot be written");
  const off_t size = lseek(metrics_, 0, SEEK_END);
  off_t end = off_t(bytes);
  if (size < end) end = off_t(read_file(file).rfind('\n') + 1);
  if (size > end && again([&] { return ftruncate(metrics_, end); }) != 0) fail(file, "cannot be cut back");
  return size >= off_t(bytes);
}

void RunFolder::record(const Json& line) {
  const std::string text = line.dump() + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = again([&] { return ::write(metrics_, text.data() + done, text.size() - done); });
    if (count < 0) fail(path_ / "metrics.jsonl", "cannot be written");
    done += size_t(count);
  }
}

uint64_t RunFolder::sync_metrics() {
  if (again([this] { return fsync(metrics_); }) != 0) fail(path_ / "metrics.jsonl", "cannot be written");
  return uint64_t(lseek(metrics_, 0, SEEK_END));
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

std::string run_file_in(const fs::path& folder) {
  for (const char* name : {"config.json", "metrics.jsonl", "report.html"})
    if (is_there(folder / name)) return name;
  return "";
}

std::vector<nlohmann::ordered_json> read_metrics(const fs::path& run, uint64_t sure) {
  std::vector<nlohmann::ordered_json> records;
  const fs::path path = run / "metrics.jsonl";
  if (!is_there(path)) return records;
  const std::string text = read_file(path);
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    auto record = nlohmann::ordered_json::parse(std::string_view(text).substr(begin, end - begin), nullptr, false);
    if (!record.is_object()) {
      check<DataError>(begin >= sure || end == text.size(), path, ": line ", records.size() + 1,
                       ": expected a record of the run; without the file the run can still be used, but for the "
                       "curves in its report");
      break;
    }
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace cairn

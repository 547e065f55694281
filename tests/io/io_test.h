#pragma once
// Helpers for tests of files.
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "core/error.h"
#include "tests/catch.h"

namespace cairn {

// An empty folder, removed at the end of the test. In memory if possible, because the tests sync thousands of files.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count = 0;
    const bool in_memory = access("/dev/shm", W_OK | X_OK) == 0;
    const std::filesystem::path parent = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    path_ = parent / concat("cairn-test-", getpid(), '-', count++);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Independent of the functions under test.
inline std::string bytes_of_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}
inline void put_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// The message of the DataError that f throws; fails if it throws none, or one that is not a short line.
template <class F>
std::string data_error(F&& f) {
  try {
    f();
  } catch (const DataError& error) {
    const std::string message = error.what();
    CHECK(message.size() < 700);
    for (const char c : message) CHECK((c >= ' ' && c <= '~'));
    return message;
  }
  FAIL_CHECK("no error at all");
  return "";
}

}  // namespace cairn

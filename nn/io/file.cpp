#include "nn/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/storage.h"

namespace cairn {
namespace {

// An open file, closed when it goes out of scope.
class File {
 public:
  File(const std::filesystem::path& path, int flags)
      : handle_(again([&] { return open(path.c_str(), flags, 0666); })) {}
  ~File() {
    if (handle_ >= 0) ::close(handle_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int handle() const { return handle_; }
  // An error of an earlier write may only show here. Interrupted, the file is closed all the same.
  bool close() { return ::close(std::exchange(handle_, -1)) == 0 || errno == EINTR; }

 private:
  int handle_;
};

// A write beyond the limit of a file's size raises a signal that ends the process, unless it is blocked. It goes to the
// thread that writes.
class BlockSizeSignal {
 public:
  BlockSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~BlockSizeSignal() {
    const timespec at_once{};
    if (!sigismember(&before_, SIGXFSZ)) again([&] { return sigtimedwait(&signal_, nullptr, &at_once); });
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockSizeSignal(const BlockSizeSignal&) = delete;
  BlockSizeSignal& operator=(const BlockSizeSignal&) = delete;

 private:
  sigset_t signal_{}, before_{};
};

template <class E = Error>
[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  const int number = errno;
  throw E(concat(path, ": ", what, ": ", std::strerror(number)));
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  // Not to wait for the other end of a named pipe.
  const File file(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.handle() < 0) fail<DataError>(path, "cannot be opened");
  struct stat status {};
  if (fstat(file.handle(), &status) != 0) fail<DataError>(path, "cannot be read");
  check<DataError>(!S_ISDIR(status.st_mode), path, ": is a folder, expected a file");
  check<DataError>(S_ISREG(status.st_mode), path, ": is not a regular file");

  check<OutOfMemory>(size_t(status.st_size) <= most_memory(Device::cpu), path.string(),
                     ": out of memory: the file has ", status.st_size, " bytes, and ", most_memory(Device::cpu),
                     " are there for this process");
  std::string bytes(size_t(status.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = again([&] { return read(file.handle(), &bytes[done], bytes.size() - done); });
    if (got < 0) fail<DataError>(path, "cannot be read");
    if (got == 0) break;
    done += size_t(got);
  }
  char more = 0;
  const bool ended = again([&] { return read(file.handle(), &more, 1); }) == 0;
  check<DataError>(done == bytes.size() && ended, path, ": changed its size of ", bytes.size(),
                   " bytes while it was read");
  return bytes;
}

void write_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces) {
  const BlockSizeSignal guard;
  File file(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
  if (file.handle() < 0) fail(path, "cannot be created");
  for (std::string_view rest : pieces)
    while (!rest.empty()) {
      const ssize_t written = again([&] { return write(file.handle(), rest.data(), rest.size()); });
      if (written < 0) fail(path, "cannot be written");
      rest.remove_prefix(size_t(written));
    }
  if (again([&] { return fsync(file.handle()); }) != 0) fail(path, "cannot be brought to the disk");
  if (!file.close()) fail(path, "cannot be written");
}

void sync_folder(const std::filesystem::path& path) {
  const File folder(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder.handle() < 0) fail(path, "cannot be opened");
  // EINVAL: a file system that has nothing to do here.
  if (again([&] { return fsync(folder.handle()); }) != 0 && errno != EINVAL)
    fail(path, "cannot be brought to the disk");
}

}  // namespace cairn

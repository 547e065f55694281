#include "nn/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/storage.h"
#include "nn/io/hash.h"

namespace cairn {
namespace {

constexpr size_t small_piece = size_t{1} << 18;

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
  throw E(concat(path, ": ", what, ": ", std::strerror(number),
                 number == ENOSPC || number == EDQUOT ? "; free some space there, or write elsewhere" : ""));
}

// Waits until a file's bytes are on the disk. A pipe, a terminal and some file systems have nothing to bring there.
void sync_file(int file, const std::filesystem::path& path) {
  if (again([&] { return fsync(file); }) == 0 || errno == EINVAL || errno == ENOTSUP) return;
  const int number = errno;
  struct stat status {};
  const bool is_special = fstat(file, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
  errno = number;
  if (!is_special) fail(path, "cannot be brought to the disk");
}

}  // namespace

// Not to wait for the other end of a named pipe.
FileReader::FileReader(std::filesystem::path path)
    : path_(std::move(path)), file_(again([this] { return open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); })) {
  if (file_ < 0) fail<DataError>(path_, "cannot be opened");
  try {
    struct stat status {};
    if (fstat(file_, &status) != 0) fail<DataError>(path_, "cannot be read");
    check<DataError>(!S_ISDIR(status.st_mode), path_, ": is a folder, expected a file");
    check<DataError>(S_ISREG(status.st_mode), path_, ": is not a regular file");
    size_ = uint64_t(status.st_size);
    read(nullptr, 0);
  } catch (...) {
    ::close(file_);
    throw;
  }
}
FileReader::~FileReader() { ::close(file_); }

size_t FileReader::read_some(char* to, size_t bytes) {
  const ssize_t got = again([&] { return ::read(file_, to, bytes); });
  if (got < 0) fail<DataError>(path_, "cannot be read");
  return size_t(got);
}

void FileReader::read(void* to, size_t bytes) {
  char* next = static_cast<char*>(to);
  while (bytes > 0) {
    if (ahead_.empty() && bytes < small_piece) {
      buffer_.resize(small_piece);
      ahead_ = std::string_view(buffer_).substr(0, read_some(buffer_.data(), buffer_.size()));
    }
    size_t got = std::min(bytes, ahead_.size());
    if (got > 0) {
      std::memcpy(next, ahead_.data(), got);
      ahead_.remove_prefix(got);
    } else {
      got = read_some(next, bytes);
      check<DataError>(got > 0, path_, ": changed its size of ", size_, " bytes while it was read");
    }
    next += got, bytes -= got, done_ += got;
  }
  if (done_ < size_) return;
  char more = 0;
  check<DataError>(done_ == size_ && ahead_.empty() && read_some(&more, 1) == 0, path_, ": changed its size of ", size_,
                   " bytes while it was read");
}

void FileReader::read_at(uint64_t offset, void* to, size_t bytes) const {
  for (char* next = static_cast<char*>(to); bytes > 0;) {
    const ssize_t got = again([&] { return pread(file_, next, bytes, off_t(offset)); });
    if (got < 0) fail<DataError>(path_, "cannot be read");
    check<DataError>(got > 0, path_, ": changed its size of ", size_, " bytes while it was read");
    next += got, bytes -= size_t(got), offset += uint64_t(got);
  }
}

std::string read_file(const std::filesystem::path& path) {
  FileReader reader(path);
  check<OutOfMemory>(reader.size() <= available_memory(Device::cpu), path, ": out of memory: the file has ",
                     reader.size(), " bytes, and ", available_memory(Device::cpu), " are there for this process");
  std::string bytes(reader.size(), '\0');
  reader.read(bytes.data(), bytes.size());
  return bytes;
}

void write_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces, Xxh128* hash) {
  const BlockSizeSignal guard;
  File file(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
  if (file.handle() < 0) fail(path, "cannot be created");
  // Each part goes to the hash and to the file while it is in the processor's cache.
  const auto write_all = [&](std::string_view rest) {
    while (!rest.empty()) {
      const std::string_view part = rest.substr(0, small_piece);
      const ssize_t written = again([&] { return write(file.handle(), part.data(), part.size()); });
      if (written < 0) fail(path, "cannot be written");
      if (hash) hash->add(part.data(), size_t(written));
      rest.remove_prefix(size_t(written));
    }
  };
  std::string small;
  small.reserve(small_piece);
  for (const std::string_view piece : pieces) {
    if (small.size() + piece.size() > small_piece) {
      write_all(small);
      small.clear();
    }
    if (piece.size() < small_piece)
      small += piece;
    else
      write_all(piece);
  }
  write_all(small);
  sync_file(file.handle(), path);
  if (!file.close()) fail(path, "cannot be written");
}

FileWriter::FileWriter(std::filesystem::path path, uint64_t keep)
    : path_(std::move(path)),
      file_(
          again([&] { return open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (keep == 0 ? O_TRUNC : 0), 0666); })),
      size_(keep) {
  if (file_ < 0) fail(path_, "cannot be created");
  if (keep == 0 || again([&] { return ftruncate(file_, off_t(keep)); }) == 0) return;
  const int number = errno;
  ::close(file_);
  errno = number;
  fail(path_, "cannot be cut back");
}
FileWriter::~FileWriter() { ::close(file_); }

void FileWriter::write(const void* bytes, size_t size) {
  buffer_.append(static_cast<const char*>(bytes), size);
  if (buffer_.size() >= small_piece) flush();
}

void FileWriter::flush() {
  write_at(size_, buffer_);
  size_ += buffer_.size();
  buffer_.clear();
}

void FileWriter::overwrite(uint64_t offset, std::string_view bytes) {
  flush();
  write_at(offset, bytes);
}

void FileWriter::write_at(uint64_t offset, std::string_view bytes) {
  const BlockSizeSignal guard;
  while (!bytes.empty()) {
    const ssize_t written = again([&] { return pwrite(file_, bytes.data(), bytes.size(), off_t(offset)); });
    if (written < 0) fail(path_, "cannot be written");
    offset += uint64_t(written);
    bytes.remove_prefix(size_t(written));
  }
}

void FileWriter::sync() {
  flush();
  sync_file(file_, path_);
}

void replace_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces,
                  std::filesystem::path beside) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) return write_file(path, pieces);
  if (beside.empty()) beside = path, beside += concat('.', getpid(), ".new");
  try {
    write_file(beside, pieces);
    rename_file(beside, path);
  } catch (...) {
    std::filesystem::remove(beside, error);  // what went wrong first is what matters
    throw;
  }
}

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  check(!error, to, ": cannot be replaced: ", error);
  sync_folder(to.has_parent_path() ? to.parent_path() : ".");
}

void sync_folder(const std::filesystem::path& path) {
  const File folder(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder.handle() < 0) fail(path, "cannot be opened");
  sync_file(folder.handle(), path);
}

}  // namespace cairn

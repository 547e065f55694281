#include "nn/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/storage.h"
#include "nn/io/hash.h"

namespace cairn {
namespace {

constexpr size_t buffer_size = size_t{1} << 18;

template <class E = Error>
[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  const int number = errno;
  throw E(concat(path, ": ", what, ": ", std::strerror(number),
                 number == ENOSPC || number == EDQUOT ? "; free some space there, or write elsewhere" : ""));
}

// Waits until a file's bytes are on the disk. A pipe, a terminal and some file systems have nothing to bring there.
void sync_file(int file, const std::filesystem::path& path) {
  if (again([&] { return fsync(file); }) != 0 && errno != EINVAL && errno != ENOTSUP)
    fail(path, "cannot be brought to the disk");
}

}  // namespace

OpenFile::OpenFile(const std::filesystem::path& path, int flags)
    : handle_(again([&] { return open(path.c_str(), flags | O_CLOEXEC, 0666); })) {}
OpenFile::~OpenFile() {
  if (handle_ >= 0) ::close(handle_);
}
bool OpenFile::close() { return ::close(std::exchange(handle_, -1)) == 0 || errno == EINTR; }

FileReader::FileReader(const std::filesystem::path& path)
    : path_(path), file_(path, O_RDONLY | O_NONBLOCK) {  // not to wait for the other end of a named pipe
  if (file_.handle() < 0) fail<DataError>(path, "cannot be opened");
  struct stat status {};
  if (fstat(file_.handle(), &status) != 0) fail<DataError>(path, "cannot be read");
  check<DataError>(!S_ISDIR(status.st_mode), path, ": is a folder, expected a file");
  check<DataError>(S_ISREG(status.st_mode), path, ": is not a regular file");
  size_ = uint64_t(status.st_size);
}

void FileReader::read_at(uint64_t offset, void* to, size_t bytes) const {
  for (char* next = static_cast<char*>(to); bytes > 0;) {
    const ssize_t got = again([&] { return pread(file_.handle(), next, bytes, off_t(offset)); });
    if (got < 0) fail<DataError>(path_, "cannot be read");
    check<DataError>(got > 0, path_, ": changed its size of ", size_, " bytes while it was read");
    next += got;
    bytes -= size_t(got);
    offset += uint64_t(got);
  }
}

std::string read_file(const std::filesystem::path& path) {
  const FileReader file(path);
  check<OutOfMemory>(file.size() <= available_memory(Device::cpu), path, ": out of memory: the file has ", file.size(),
                     " bytes, and ", available_memory(Device::cpu), " are there for this process");
  std::string bytes(file.size(), '\0');
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

void write_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces, Xxh128* hash) {
  OpenFile file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.handle() < 0) fail(path, "cannot be created");
  // Also large pieces: numbers that are in the processor's cache are written twice as fast as those that are not.
  std::string buffer;
  const auto flush = [&] {
    if (hash) hash->add(buffer.data(), buffer.size());
    for (std::string_view rest = buffer; !rest.empty();) {
      const ssize_t written = again([&] { return write(file.handle(), rest.data(), rest.size()); });
      if (written < 0) fail(path, "cannot be written");
      rest.remove_prefix(size_t(written));
    }
    buffer.clear();
  };
  for (std::string_view piece : pieces)
    while (!piece.empty()) {
      const std::string_view part = piece.substr(0, buffer_size - buffer.size());
      buffer += part;
      piece.remove_prefix(part.size());
      if (buffer.size() == buffer_size) flush();
    }
  flush();
  sync_file(file.handle(), path);
  if (!file.close()) fail(path, "cannot be written");
}

void replace_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces,
                  std::filesystem::path beside) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) return write_file(path, pieces);
  if (beside.empty()) beside = path, beside += concat('.', getpid(), ".new");
  try {
    write_file(beside, pieces);
    std::filesystem::rename(beside, path, error);
    check(!error, path, ": cannot be replaced: ", error);
    sync_folder(path.has_parent_path() ? path.parent_path() : ".");
  } catch (...) {
    std::filesystem::remove(beside, error);  // what went wrong first is what matters
    throw;
  }
}

void sync_folder(const std::filesystem::path& path) {
  const OpenFile folder(path, O_RDONLY | O_DIRECTORY);
  if (folder.handle() < 0) fail(path, "cannot be opened");
  sync_file(folder.handle(), path);
}

}  // namespace cairn

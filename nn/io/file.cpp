#include "nn/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <random>
#include <system_error>

#include "core/error.h"
#include "core/storage.h"
#include "nn/io/hash.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr size_t buffer_size = size_t{1} << 18;

[[noreturn]] void fail(const fs::path& path, const char* what) {
  const int number = errno;
  throw Error(concat(path, ": ", what, ": ", std::strerror(number),
                     number == ENOSPC || number == EDQUOT ? "; free some space there, or write elsewhere" : ""));
}

// The permission bits of a file in another group: that one may do what everybody may.
mode_t for_any_group(mode_t bits) { return bits & (~mode_t{070} | bits << 3); }

// The permission bits that a file is created with. One that replaces a private file is private from its first byte on.
mode_t first_bits(const fs::path& old) {
  struct stat status {};
  return stat(old.c_str(), &status) == 0 ? for_any_group(status.st_mode) & 0777 : 0666;
}

}  // namespace

void (*on_loss)(const fs::path& path, const char* what) = [](const fs::path&, const char*) {};

OpenFile::OpenFile(const fs::path& path, int flags, const char* what, int permissions)
    : path_(path), number_(open(path.c_str(), flags | O_CLOEXEC, permissions)) {
  if (number_ < 0) fail(path, what);
}

OpenFile::~OpenFile() { close(number_); }

void OpenFile::write(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::write(number_, bytes.data(), bytes.size());
    if (written < 0) fail(path_, "cannot be written");
    bytes.remove_prefix(size_t(written));
  }
}

void OpenFile::sync() const {
  if (fsync(number_) != 0 && errno != EINVAL && errno != ENOTSUP) fail(path_, "cannot be flushed to the disk");
}

void OpenFile::take_access(const fs::path& old) const {
  struct stat was {};
  if (stat(old.c_str(), &was) != 0) return;
  // Only root may give a file away. Others own the new file, in the old one's group if they are members.
  if (fchown(number_, was.st_uid, was.st_gid) != 0) (void)!fchown(number_, uid_t(-1), was.st_gid);
  struct stat is {};
  const bool same_group = fstat(number_, &is) == 0 && is.st_gid == was.st_gid;
  const mode_t bits = same_group ? was.st_mode : for_any_group(was.st_mode);
  (void)!fchmod(number_, (is.st_mode & 07000) | (bits & 0777));
  if (fstat(number_, &is) != 0 || is.st_uid != was.st_uid || !same_group || ((is.st_mode ^ was.st_mode) & 0777) != 0)
    on_loss(old, "its new version cannot have the owner and permissions of the old one");
}

std::pair<std::ifstream, uint64_t> open_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  check<DataError>(fs::exists(status), path, ": cannot be opened: ", error);
  check<DataError>(!fs::is_directory(status), path, ": is a folder, expected a file");
  check<DataError>(fs::is_regular_file(status), path, ": is not a regular file");
  std::ifstream file(path, std::ios::binary);
  check<DataError>(file.is_open(), path, ": cannot be opened: ", std::strerror(errno));
  const auto size = fs::file_size(path, error);
  check<DataError>(!error, path, ": cannot be read: ", error);
  return {std::move(file), size};
}

std::string read_file(const fs::path& path) {
  auto [file, size] = open_file(path);
  check<OutOfMemory>(size <= available_memory(Device::cpu), path, ": out of memory: the file has ", size,
                     " bytes, and ", available_memory(Device::cpu), " are available to this process");
  std::string bytes(size, '\0');
  check<DataError>(bool(file.read(bytes.data(), std::streamsize(size))), path, ": cannot be read");
  return bytes;
}

void write_file(const fs::path& path, const std::vector<std::string_view>& pieces, Xxh128* hash, const fs::path& old) {
  const OpenFile file(path, O_WRONLY | O_CREAT | O_TRUNC, "cannot be created", int(first_bits(old)));
  file.take_access(old);
  // Large pieces too are copied to the buffer: bytes in the processor's cache are written twice as fast as others.
  std::string buffer;
  const auto flush = [&] {
    if (hash) hash->add(buffer);
    file.write(buffer);
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
  file.sync();
}

void replace_file(const fs::path& path, const std::vector<std::string_view>& pieces) {
  std::error_code error;
  const auto status = fs::symlink_status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_file(path, pieces);
  // Another process may replace the file at the same time, in another container even one with the same process id.
  const fs::path beside = concat(path, '.', std::random_device()(), ".new");
  try {
    write_file(beside, pieces, nullptr, path);
    fs::rename(beside, path, error);
    check(!error, path, ": cannot be replaced: ", error);
  } catch (...) {
    fs::remove(beside, error);  // its own error is ignored: the first one matters
    throw;
  }
  sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

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

void sync_folder(const fs::path& path) try {
  OpenFile(path, O_RDONLY | O_DIRECTORY, "cannot be opened").sync();
} catch (const Error&) {
  on_loss(path, "the folder cannot be flushed to the disk; after a loss of power its last files may be missing");
}

}  // namespace cairn

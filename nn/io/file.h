#pragma once
// Whole files, read and written so that nothing that goes wrong is missed: every call's result is looked at.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

class Xxh128;

// The bytes of a regular file. Errors: as FileReader; OutOfMemory: it has more bytes than there is memory.
std::string read_file(const std::filesystem::path& path);

// Creates or replaces a file with the pieces one after another; they are on the disk when it returns, if what they are
// written to is one. Not atomic: if it fails, or the machine does, part of the file may be there. Error (exit code 1):
// cannot be created or written, no space, larger than the limit (where its signal, SIGXFSZ, is ignored). The bytes are
// added to `hash`.
void write_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces, Xxh128* hash = nullptr);

// Creates or replaces a file in one step: at any moment it is the old one or the new one, and the new one is on the
// disk when it returns. Written first to `beside`, by default a name of this process in the same folder. What is no
// regular file, a symbolic link or a terminal, is written in place. Error (exit code 1): as write_file; it cannot be
// renamed.
void replace_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces,
                  std::filesystem::path beside = {});

// Waits until the names in a folder - files made, renamed, removed - are on the disk. Error (exit code 1).
void sync_folder(const std::filesystem::path& path);

// Repeats a system call until no signal interrupts it.
template <class F>
auto again(F call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// An open file, closed when it goes out of scope.
class OpenFile {
 public:
  // `flags` are those of open(2). The handle is negative where that fails, and errno says why.
  OpenFile(const std::filesystem::path& path, int flags);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int handle() const { return handle_; }
  // An error of an earlier write may only show here. Interrupted, the file is closed all the same.
  bool close();

 private:
  int handle_;
};

// A regular file, of which any part can be read. Errors (DataError): missing, a folder or another thing that is no
// file, not readable, shorter than it was when it was opened.
class FileReader {
 public:
  explicit FileReader(const std::filesystem::path& path);

  uint64_t size() const { return size_; }
  // Bytes from anywhere in the file.
  void read_at(uint64_t offset, void* to, size_t bytes) const;

 private:
  std::filesystem::path path_;
  OpenFile file_;
  uint64_t size_ = 0;
};

}  // namespace cairn

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

// A regular file, read from its beginning, with no memory but a buffer for small pieces. Errors (DataError): missing, a
// folder or another thing that is no file, not readable, changed its size while it was read.
class FileReader {
 public:
  explicit FileReader(std::filesystem::path path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  uint64_t size() const { return size_; }
  // The next bytes; more than are left is an error, and so is anything behind them when the last ones are read.
  void read(void* to, size_t bytes);
  // Bytes from anywhere in the file. Those that read() gives next stay the same.
  void read_at(uint64_t offset, void* to, size_t bytes) const;

 private:
  size_t read_some(char* to, size_t bytes);

  std::filesystem::path path_;
  int file_;
  uint64_t size_ = 0, done_ = 0;
  std::string buffer_;
  std::string_view ahead_;  // of the buffer: read from the file, and not yet by the caller
};

// The bytes of a regular file. Errors: as FileReader; OutOfMemory: it has more bytes than there is memory.
std::string read_file(const std::filesystem::path& path);

// Creates or replaces a file with the pieces one after another; they are on the disk when it returns, if what they are
// written to is one. Not atomic: if it fails, or the machine does, part of the file may be there. Error (exit code 1):
// cannot be created or written, no space, larger than the limit (whose signal, SIGXFSZ, is held back). The bytes are
// added to `hash`.
void write_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces, Xxh128* hash = nullptr);

// A file that is written piece after piece, through a buffer. Errors (exit code 1): as write_file.
class FileWriter {
 public:
  // Creates or replaces a file; with `keep`, goes on behind the first `keep` bytes of the file that is there.
  explicit FileWriter(std::filesystem::path path, uint64_t keep = 0);
  // What no sync() wrote may be missing from the file.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* bytes, size_t size);
  // Replaces bytes among those that were written.
  void overwrite(uint64_t offset, std::string_view bytes);
  // Returns when all is on the disk, if what it is written to is one.
  void sync();

 private:
  void flush();
  void write_at(uint64_t offset, std::string_view bytes);

  std::filesystem::path path_;
  int file_;
  uint64_t size_;  // of the file, without the buffer
  std::string buffer_;
};

// Creates or replaces a file in one step: at any moment it is the old one or the new one, and the new one is on the
// disk when it returns. Written first to `beside`, by default a name of this process in the same folder. What is no
// regular file, a symbolic link or a terminal, is written in place. Error (exit code 1): as write_file; it cannot be
// renamed.
void replace_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces,
                  std::filesystem::path beside = {});

// Gives a file the name of another, which it replaces; the name is on the disk when it returns. Error (exit code 1).
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);

// Waits until the names in a folder - files made, renamed, removed - are on the disk. Error (exit code 1).
void sync_folder(const std::filesystem::path& path);

// Repeats a system call until no signal interrupts it.
template <class F>
auto again(F call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace cairn

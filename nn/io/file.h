#pragma once
// Whole files, read and written so that nothing that goes wrong is missed: every call's result is looked at.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

class Xxh128;

// An open file or folder, closed when it goes out of scope. Error of all calls (exit code 1): the system's.
class OpenFile {
 public:
  // `flags` are those of open(2); `what` is what the message of its error says.
  OpenFile(const std::filesystem::path& path, int flags, const char* what);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  void write(std::string_view bytes) const;
  // Waits until it is on the disk. A pipe, a terminal and some file systems have nothing to bring there.
  void sync() const;
  int number() const { return number_; }  // of the system's calls

 private:
  std::filesystem::path path_;
  int number_;
};

// Opens a regular file and returns it with its size in bytes. Errors (DataError): missing, a folder or another thing
// that is no file, not readable.
std::pair<std::ifstream, uint64_t> open_file(const std::filesystem::path& path);

// The bytes of a regular file. Errors: as open_file; OutOfMemory: it has more bytes than there is memory.
std::string read_file(const std::filesystem::path& path);

// Creates or replaces a file with the pieces one after another; they are on the disk when it returns, if what they are
// written to is one. Not atomic: if it fails, or the machine does, part of the file may be there. Error (exit code 1):
// cannot be created or written, no space, larger than the limit (where its signal, SIGXFSZ, is ignored). The bytes are
// added to `hash`.
void write_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces, Xxh128* hash = nullptr);

// Creates or replaces a file in one step: at any moment it is the old one or the new one, and the new one is on the
// disk when it returns. Written first to a name of this process in the same folder. What is no regular file, a symbolic
// link or a terminal, is written in place. Error (exit code 1): as write_file; it cannot be renamed.
void replace_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces);

// Waits until the names in a folder - files made, renamed, removed - are on the disk. Error (exit code 1).
void sync_folder(const std::filesystem::path& path);

}  // namespace cairn

#pragma once
// Reads and writes whole files. The result of every system call is checked.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

class Xxh128;

// Called each time that something cannot be kept that a save goes on without: owner and permission bits, a lock, the
// certainty that a folder is on the disk. `what` is a literal for the user. At first nobody is told.
extern void (*on_loss)(const std::filesystem::path& path, const char* what);

// An open file or folder, closed when it goes out of scope. Error of all calls (exit code 1): the system's.
class OpenFile {
 public:
  // `flags` and `permissions` are those of open(2). The message of an error has `what`.
  OpenFile(const std::filesystem::path& path, int flags, const char* what, int permissions = 0666);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  void write(std::string_view bytes) const;
  // Waits until it is on the disk. Pipes, terminals and some file systems do not support that.
  void sync() const;
  // Gives it the owner, group and permission bits of `old`, if that exists, as far as possible (on_loss). It is never
  // more open: where the group cannot be kept, another one may only do what everybody may.
  void take_access(const std::filesystem::path& old) const;
  int number() const { return number_; }  // of the system's calls

 private:
  std::filesystem::path path_;
  int number_;
};

// Opens a regular file and returns it with its size in bytes. Errors (DataError): missing, not a regular file (such as
// a folder), not readable.
std::pair<std::ifstream, uint64_t> open_file(const std::filesystem::path& path);

// The bytes of a regular file. Errors: as open_file; OutOfMemory: the file is larger than the memory.
std::string read_file(const std::filesystem::path& path);

// Creates or replaces a file with the pieces, one after another. A regular file is on the disk when this returns. Not
// atomic: after a failure of the call or of the machine, part of the file may be there. Error (exit code 1): cannot be
// created or written, no space, larger than the limit for files (if the signal SIGXFSZ is ignored). The bytes are added
// to `hash`. The file is to replace `old`, if that exists, and takes its access.
void write_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces, Xxh128* hash = nullptr,
                const std::filesystem::path& old = {});

// Creates or replaces a file atomically: at any moment it is the old file or the new one. The new one is on the disk
// when this returns. It is first written under another name in the same folder, and has the permission bits of the old
// one. Other processes may do the same: the last one counts. A symbolic link or a terminal, which is no regular file,
// is written in place. Error (exit code 1): as write_file; it cannot be renamed.
void replace_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces);

// Does the path exist? False where it cannot be known: a name that is too long, a folder that may not be read.
bool is_there(const std::filesystem::path& path);

// The path of an output file, with symbolic links resolved: a new file, or a regular file that is to be replaced.
// Errors (UsageError): it is something else; its folder does not exist; it is `in`, the input file (empty: none).
std::filesystem::path output_path(const char* option, const std::string& name, const std::string& in);

// The path that a run or an index stores: it works from any folder, and has no symbolic links.
std::string stored_path(const std::string& name);
// Waits until the names in a folder (of files created, renamed or removed) are on the disk, if possible (on_loss).
void sync_folder(const std::filesystem::path& path);

}  // namespace cairn

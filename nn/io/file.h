#pragma once
// Whole files, read and written so that nothing that goes wrong is missed: every call's result is looked at.
#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// The bytes of a regular file. Errors (DataError): missing, a folder or another thing that is no file, not readable,
// changed while it was read; OutOfMemory: it has more bytes than there is memory.
std::string read_file(const std::filesystem::path& path);

// Creates or replaces a file with the pieces one after another; they are on the disk when it returns. Not atomic: if it
// fails, or the machine does, part of the file may be there. Error (exit code 1): cannot be created or written, no
// space, larger than the limit (whose signal, SIGXFSZ, is held back).
void write_file(const std::filesystem::path& path, const std::vector<std::string_view>& pieces);

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

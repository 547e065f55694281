#pragma once
// The text that is read: the files below folders, and a file's lines.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cairn::text_search {

// Larger files are skipped: they are hardly ever text that somebody wrote.
inline constexpr uintmax_t max_file_bytes = 16'000'000;

// How many files and folders were passed over, by reason: binary, empty, links, name, too large, unreadable.
using SkippedCounts = std::map<std::string, int64_t>;

struct FileSearch {
  std::vector<std::string> paths;        // files and folders; symbolic links among them are followed
  std::vector<std::string> exclude;      // globs (fnmatch) for a name, or for a path below its folder in `paths`
  std::filesystem::path leave_out = {};  // a folder
};

// The files, as absolute paths in their order, each once. Left out below a folder: hidden files and folders, what
// `exclude` matches, what is neither file nor folder, folders that may not be read. Counted: symbolic links, which may
// form loops; files larger than max_file_bytes; names that are not UTF-8. Error (UsageError): a path is missing, or
// there is none.
std::vector<std::filesystem::path> find_files(const FileSearch& search, SkippedCounts& skipped);

// A file's bytes; none, and counted, if it cannot be read or has a NUL byte, and so is taken for a binary one.
std::optional<std::string> read_text(const std::filesystem::path& file, SkippedCounts& skipped);

// The globs in "*.o,build/". Error (UsageError): an empty one.
std::vector<std::string> split_patterns(const std::string& list);

// The lines of a text, without their line feeds; the last one may lack it.
std::vector<std::string> lines_of(const std::string& text);
// The bytes of a file; "-" is standard input. Error (DataError): it cannot be read.
std::string read_input(const std::string& file);

}  // namespace cairn::text_search

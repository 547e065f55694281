#pragma once
// The regular files below folders, in an order that is always the same.
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::text_search {

// Why something is passed over.
enum class Skipped { binary, empty, link, name, too_large, unreadable };
inline constexpr std::array<const char*, 6> skipped_names = {"binary", "empty",     "links",
                                                             "name",   "too_large", "unreadable"};
using SkippedCounts = std::array<int64_t, skipped_names.size()>;

struct WalkOptions {
  std::vector<std::filesystem::path> roots;        // as roots_of() has them
  std::vector<std::string> exclude;                // globs (fnmatch) for a name, or for a path below its root
  std::vector<std::filesystem::path> leave_out{};  // folders, canonical
};

// Larger files are skipped: they are hardly ever text that somebody wrote.
inline constexpr int64_t max_file_bytes = 16'000'000;

// A file with a NUL byte is taken for a binary one.
inline bool is_binary(std::string_view text) { return text.find('\0') != text.npos; }

// The globs in "*.o,build/", of all lists. Error (UsageError): an empty one.
std::vector<std::string> split_patterns(const std::vector<std::string>& lists);

struct FoundFile {
  std::string path;  // absolute, UTF-8
  int64_t bytes;
};

// The order of a walk: by the names on the way, so that a folder's files stand together.
bool path_less(std::string_view a, std::string_view b);

// Is a path the folder or below it?
bool is_below(const std::string& path, const std::string& folder);

// Files and folders as absolute paths without symbolic links, in path_less order, without those below others. Error
// (UsageError): there is none; one does not exist, or is neither a file nor a folder.
std::vector<std::filesystem::path> roots_of(const std::vector<std::string>& paths);

// Calls `found` with each file, in path_less order. Left out below a root: hidden files and folders, indexes, what
// `exclude` matches, what is neither file nor folder. Counted in `skipped`: symbolic links, which may form loops; files
// larger than max_file_bytes; names that are not UTF-8; files and folders that cannot be looked at, with whose path
// `unreadable` is called in its place in the order. In memory are the names of the folders on the way alone.
void walk(const WalkOptions& options, SkippedCounts& skipped, const std::function<void(const FoundFile&)>& found,
          const std::function<void(const std::string& path)>& unreadable = {});

}  // namespace cairn::text_search

#pragma once
// Finds the text files below folders, and reads them.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/settings.h"

namespace cairn::text_search {

struct FileSearch {
  std::vector<std::string> paths;  // files and folders; symbolic links in this list are followed
  std::string exclude;             // "build,*.o": globs (fnmatch) for a name, or for a path below PATH

  // Declares PATH and --exclude.
  void fields(SettingFields& f);
};

// The files as sorted absolute paths, each once. Below a folder, leaves out hidden files and folders, those that
// `exclude` matches, unreadable folders, and the folder `model`. Error (UsageError): a path does not exist, or no path
// is given.
std::vector<std::filesystem::path> find_files(const FileSearch& search, const std::filesystem::path& model);

// The number of skipped files by reason: binary, empty, links, name, too large, unreadable.
using SkippedCounts = std::map<std::string, int64_t>;

// A file's bytes. Returns nothing and counts the file as skipped if it is a symbolic link (links may form loops), has
// more than 16 MB, cannot be read, or has a NUL byte (a binary file).
std::optional<std::string> read_text(const std::filesystem::path& file, SkippedCounts& skipped);

// Splits a text into lines, or at another character. The parts do not include it. The last one may lack it.
std::vector<std::string> lines_of(const std::string& text, char end = '\n');

}  // namespace cairn::text_search

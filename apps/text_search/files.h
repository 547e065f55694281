#pragma once
// The text that is read: the files below folders, and a file's lines.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/settings.h"

namespace cairn::text_search {

struct FileSearch {
  std::vector<std::string> paths;  // files and folders; symbolic links among them are followed
  std::string exclude;             // "build,*.o": globs (fnmatch) for a name, or for a path below its folder in `paths`

  // Declares PATH and --exclude.
  void fields(SettingFields& f);
};

// The files, as absolute paths in their order, each once. Left out below a folder: hidden files and folders, what
// `exclude` matches, folders that may not be read, and the folder `model`. Error (UsageError): a path is missing, or
// there is none.
std::vector<std::filesystem::path> find_files(const FileSearch& search, const std::filesystem::path& model);

// How many files were passed over, by reason: binary, empty, links, name, too large, unreadable.
using SkippedCounts = std::map<std::string, int64_t>;

// A file's bytes. None, and counted: a symbolic link, which may form a loop; a name that is not UTF-8; more than 16 MB;
// what cannot be read; what has a NUL byte, and so is taken for a binary file.
std::optional<std::string> read_text(const std::filesystem::path& file, SkippedCounts& skipped);

// The lines of a text, or parts that end with another character, without what ends them; the last one may lack it.
std::vector<std::string> lines_of(const std::string& text, char end = '\n');
// The bytes of a file; "-" is standard input. Error (DataError): it cannot be read.
std::string read_input(const std::string& file);

}  // namespace cairn::text_search

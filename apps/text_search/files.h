#pragma once
// Finds the text files below folders, and reads them.
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/common/settings.h"

namespace cairn::text_search {

struct FileSearch {
  std::vector<std::string> paths;  // files and folders; symbolic links in this list are followed
  std::string exclude;             // "build,*.o,/src/old": see find_files

  // Declares PATH and --exclude.
  void fields(SettingFields& f);
};

// The files and folders that are skipped, by reason: binary, empty, links, name, too large, unreadable.
using Skipped = std::map<std::string, std::set<std::filesystem::path>>;
// Their numbers: "; skipped: 1 binary, 2 links", or nothing.
std::string counts_of(const Skipped& skipped);

// The files as sorted absolute paths, each once. Below a folder, leaves out hidden files and folders, those that
// `exclude` matches, folders that cannot be read, which are skipped, and the folder `model`. `exclude` has globs
// (fnmatch), separated by commas: "build" for a name, "src/build", "/build", "./build" or an absolute path for one path
// below PATH, "**/src/build" for one at any depth. Notes those that match nothing, unless `quiet`. Errors (UsageError):
// a path does not exist; no path is given; /**/ in a glob. Error: reading a folder fails. Throws Interrupted.
std::vector<std::filesystem::path> find_files(const FileSearch& search, const std::filesystem::path& model,
                                              Skipped& skipped, bool quiet);

// A file's bytes. Returns nothing and skips the file if it is a symbolic link (links may form loops), has more than
// 16 MB, cannot be read, or has a NUL byte (a binary file).
std::optional<std::string> read_text(const std::filesystem::path& file, Skipped& skipped);

// Splits a text into lines, or at another character. The parts do not include it. The last one may lack it.
std::vector<std::string> lines_of(const std::string& text, char end = '\n');

}  // namespace cairn::text_search

#include "apps/text_search/files.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <system_error>

#include "core/error.h"
#include "nn/io/file.h"

namespace cairn::text_search {

namespace fs = std::filesystem;

// Larger files are skipped: people rarely write them.
static constexpr uintmax_t max_file_bytes = 16'000'000;

void FileSearch::fields(SettingFields& f) {
  f.words("PATH", paths, "files and folders");
  f("exclude", exclude, Text::any,
    "comma-separated globs: skip files and folders whose name, or path below PATH, matches one");
}

std::vector<fs::path> find_files(const FileSearch& search, const fs::path& model) {
  check<UsageError>(!search.paths.empty(), "expected the PATH of a file or a folder");
  std::vector<std::string> patterns = lines_of(search.exclude, ',');
  for (std::string& pattern : patterns)
    if (pattern.ends_with('/')) pattern.pop_back();
  const auto is_excluded = [&](const std::string& name) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& pattern) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
  };
  std::error_code error;
  const fs::path left_out = fs::weakly_canonical(model, error);
  std::set<fs::path> files;
  for (const std::string& path : search.paths) {
    const fs::path root = fs::canonical(path, error);
    check<UsageError>(!error, path, ": cannot be read: ", error);
    if (!fs::is_directory(root)) {
      files.insert(root);
      continue;
    }
    (void)fs::directory_iterator(root, error);
    check<UsageError>(!error, path, ": cannot be read: ", error);
    fs::recursive_directory_iterator entry(root, fs::directory_options::skip_permission_denied, error), end;
    for (; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename(), below = entry->path().lexically_relative(root);
      if (name.starts_with('.') || entry->path() == left_out || is_excluded(name) || is_excluded(below))
        entry.disable_recursion_pending();
      else if (!fs::is_directory(entry->symlink_status(error)))
        files.insert(entry->path());
    }
    check(!error, path, ": cannot be read: ", error);
  }
  return {files.begin(), files.end()};
}

std::optional<std::string> read_text(const fs::path& file, SkippedCounts& skipped) {
  std::error_code error;
  std::string text;
  const char* reason = nullptr;
  if (fs::is_symlink(fs::symlink_status(file, error)))
    reason = "links";
  else if (fs::file_size(file, error) > max_file_bytes)  // an error also returns a size above
    reason = error ? "unreadable" : "too large";
  else
    try {
      text = read_file(file);
      if (text.find('\0') != std::string::npos) reason = "binary";
    } catch (const DataError&) {
      reason = "unreadable";
    }
  if (!reason) return text;
  ++skipped[reason];
  return {};
}

std::vector<std::string> lines_of(const std::string& text, char end) {
  std::vector<std::string> lines;
  for (size_t begin = 0, behind; begin < text.size(); begin = behind + 1) {
    behind = std::min(text.find(end, begin), text.size());
    lines.push_back(text.substr(begin, behind - begin));
  }
  return lines;
}

}  // namespace cairn::text_search

#include "apps/text_search/files.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <system_error>

#include "apps/common/program.h"
#include "core/error.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn::text_search {

namespace fs = std::filesystem;

// Larger files are skipped: people rarely write them.
static constexpr uintmax_t max_file_bytes = 16'000'000;

void FileSearch::fields(SettingFields& f) {
  f.words("PATH", paths, "files and folders");
  f("exclude", exclude, Text::any,
    "comma-separated globs: skip files and folders whose name, or path below PATH (with a /), matches one");
}

std::string counts_of(const Skipped& skipped) {
  std::string text;
  for (const auto& [reason, paths] : skipped)
    text += concat(text.empty() ? "; skipped: " : ", ", paths.size(), " ", reason);
  return text;
}

// A pattern of --exclude as a glob for a name or, if it has a slash, for "/" and a path below `root`.
static std::string glob_of(const std::string& pattern, const std::string& root) {
  std::string glob = fs::path(pattern).lexically_normal();
  if (glob.ends_with('/')) glob.pop_back();
  if (glob.starts_with(root + '/')) return glob.substr(root.size());
  const bool has_slash = pattern.starts_with("./") || glob.find('/') != std::string::npos;
  return (has_slash && !glob.starts_with('/') && !glob.starts_with("**/") ? "/" : "") + glob;
}

std::vector<fs::path> find_files(const FileSearch& search, const fs::path& model, Skipped& skipped, bool quiet) {
  check<UsageError>(!search.paths.empty(), "expected the PATH of a file or a folder");
  std::map<std::string, bool> matched;  // by pattern
  for (const std::string& part : lines_of(search.exclude, ',')) {
    const size_t begin = part.find_first_not_of(' '), end = part.find_last_not_of(' ') + 1;
    if (begin < end) matched[part.substr(begin, end - begin)] = false;
    check<UsageError>(part.find("/**/") == std::string::npos, "--exclude: ", in_quotes(part),
                      ": ** is for the beginning or the end of a path; * matches slashes too");
  }
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
    fs::recursive_directory_iterator entry(root, error), end;
    for (; !error && entry != end; entry.increment(error)) {
      if (interrupted()) throw Interrupted();
      const std::string name = entry->path().filename(), below = '/' + entry->path().lexically_relative(root).string();
      bool excluded = name.starts_with('.') || entry->path() == left_out;
      for (auto& [pattern, is_matched] : matched) {
        const std::string glob = glob_of(pattern, root);
        const std::string& text = glob.find('/') == std::string::npos ? name : below;
        if (fnmatch(glob.c_str(), text.c_str(), 0) == 0) excluded = is_matched = true;
      }
      if (excluded) {
        entry.disable_recursion_pending();
      } else if (!fs::is_directory(entry->symlink_status(error))) {
        files.insert(entry->path());
      } else if ((void)fs::directory_iterator(entry->path(), error), error) {
        skipped["unreadable"].insert(entry->path());
        entry.disable_recursion_pending();
      }
    }
    check(!error, path, ": cannot be read: ", error);
  }
  std::string unmatched;
  for (const auto& [pattern, is_matched] : matched)
    if (!is_matched) unmatched += concat(unmatched.empty() ? "--exclude: nothing matches " : ", ", in_quotes(pattern));
  note(unmatched, quiet);
  return {files.begin(), files.end()};
}

std::optional<std::string> read_text(const fs::path& file, Skipped& skipped) {
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
  skipped[reason].insert(file);
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

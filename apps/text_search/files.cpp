#include "apps/text_search/files.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <set>
#include <system_error>

#include "apps/text_search/wordpiece.h"
#include "core/error.h"
#include "nn/io/file.h"

namespace cairn::text_search {
namespace {

namespace fs = std::filesystem;

bool matches(const std::vector<std::string>& patterns, const std::string& text) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return fnmatch(pattern.c_str(), text.c_str(), 0) == 0; });
}

// Is a file to be read, by its kind, size and name?
bool accept(const fs::directory_entry& file, SkippedCounts& skipped) {
  std::error_code error;
  const fs::file_type type = file.symlink_status(error).type();
  const char* reason = nullptr;
  if (type == fs::file_type::symlink)
    reason = "links";
  else if (type != fs::file_type::regular)
    return false;
  else if (file.file_size(error) > max_file_bytes)  // also where it has no size
    reason = error ? "unreadable" : "too large";
  else if (valid_utf8(file.path().string()) != file.path().string())
    reason = "name";
  if (reason) ++skipped[reason];
  return !reason;
}

}  // namespace

std::vector<fs::path> find_files(const FileSearch& search, SkippedCounts& skipped) {
  check<UsageError>(!search.paths.empty(), "expected the PATH of a file or a folder");
  std::set<fs::path> files;
  for (const std::string& path : search.paths) {
    std::error_code error;
    const fs::path root = fs::canonical(path, error);
    check<UsageError>(!error, path, ": cannot be read: ", error);
    check<UsageError>(fs::is_directory(root) || fs::is_regular_file(root), path, ": expected a file or a folder");
    if (!fs::is_directory(root)) {
      if (accept(fs::directory_entry(root), skipped)) files.insert(root);
      continue;
    }
    fs::recursive_directory_iterator entry(root, fs::directory_options::skip_permission_denied, error), end;
    for (; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename(), below = entry->path().lexically_relative(root);
      if (name.starts_with('.') || entry->path() == search.leave_out || matches(search.exclude, name) ||
          matches(search.exclude, below))
        entry.disable_recursion_pending();
      else if (accept(*entry, skipped))
        files.insert(entry->path());
    }
    check(!error, path, ": cannot be read: ", error);
  }
  return {files.begin(), files.end()};
}

std::optional<std::string> read_text(const fs::path& file, SkippedCounts& skipped) {
  try {
    std::string text = read_file(file);
    if (text.find('\0') == std::string::npos) return text;
    ++skipped["binary"];
  } catch (const DataError&) {
    ++skipped["unreadable"];
  }
  return {};
}

std::vector<std::string> split_patterns(const std::string& list) {
  std::vector<std::string> patterns;
  for (size_t begin = 0, end; begin < list.size(); begin = end + 1) {
    end = std::min(list.find(',', begin), list.size());
    std::string pattern = list.substr(begin, end - begin);
    while (pattern.ends_with('/')) pattern.pop_back();
    check<UsageError>(!pattern.empty(), "--exclude: an empty pattern among ", list);
    patterns.push_back(pattern);
  }
  return patterns;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

std::string read_input(const std::string& file) {
  if (file != "-") return read_file(file);
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  check<DataError>(!std::cin.bad(), "standard input: cannot be read");
  return text;
}

}  // namespace cairn::text_search

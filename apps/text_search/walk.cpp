#include "apps/text_search/walk.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include "apps/text_search/index.h"
#include "apps/text_search/wordpiece.h"
#include "core/error.h"

namespace cairn::text_search {
namespace {

namespace fs = std::filesystem;

class Walk {
 public:
  Walk(const WalkOptions& options, SkippedCounts& skipped, const std::function<void(const FoundFile&)>& found,
       const std::function<void(const std::string& path)>& unreadable)
      : options_(options), skipped_(skipped), found_(found), unreadable_(unreadable) {}

  void visit_root(const fs::path& root) {
    below_root_ = root.string().size() + (root == "/" ? 0 : 1);
    std::error_code error;
    if (fs::is_directory(root, error))
      visit_folder(root);
    else
      visit_file(root);
  }

 private:
  void skip(Skipped reason) { ++skipped_[size_t(reason)]; }
  void skip_unreadable(const fs::path& path) {
    skip(Skipped::unreadable);
    if (unreadable_) unreadable_(path.string());
  }

  bool is_excluded(const fs::path& path) const {
    const std::string name = path.filename(), below = path.string().substr(below_root_);
    return std::any_of(options_.exclude.begin(), options_.exclude.end(), [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), name.c_str(), 0) == 0 || fnmatch(pattern.c_str(), below.c_str(), 0) == 0;
    });
  }

  void visit_folder(const fs::path& folder) {
    const auto& leave_out = options_.leave_out;
    if (std::find(leave_out.begin(), leave_out.end(), folder) != leave_out.end() || is_index(folder)) return;
    std::error_code error;
    std::vector<std::string> names;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
      names.push_back(entry->path().filename());
    if (error) return skip_unreadable(folder);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      const fs::path path = folder / name;
      if (name.starts_with('.') || is_excluded(path)) continue;
      const fs::file_type type = fs::symlink_status(path, error).type();
      if (type == fs::file_type::symlink)
        skip(Skipped::link);
      else if (type == fs::file_type::directory)
        visit_folder(path);
      else if (type == fs::file_type::regular)
        visit_file(path);
      else if (type == fs::file_type::none)
        skip_unreadable(path);
    }
  }

  void visit_file(const fs::path& path) {
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    if (error)
      skip_unreadable(path);
    else if (bytes > uintmax_t(max_file_bytes))
      skip(Skipped::too_large);
    else if (!is_utf8(path.string()))
      skip(Skipped::name);
    else
      found_({path.string(), int64_t(bytes)});
  }

  const WalkOptions& options_;
  SkippedCounts& skipped_;
  const std::function<void(const FoundFile&)>& found_;
  const std::function<void(const std::string& path)>& unreadable_;
  size_t below_root_ = 0;  // where the path below the root begins
};

}  // namespace

bool is_below(const std::string& path, const std::string& folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || folder == "/" || path[folder.size()] == '/');
}

bool path_less(std::string_view a, std::string_view b) {
  // A folder's end comes before every character of a name.
  const auto rank = [](char c) { return c == '/' ? 0 : int(static_cast<unsigned char>(c)); };
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [&](char x, char y) { return rank(x) < rank(y); });
}

std::vector<fs::path> roots_of(const std::vector<std::string>& paths) {
  check<UsageError>(!paths.empty(), "expected the PATH of a file or a folder to index");
  std::vector<fs::path> roots;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::path root = fs::canonical(path, error);
    check<UsageError>(!error, path, ": cannot be indexed: ", error);
    check<UsageError>(fs::is_directory(root, error) || fs::is_regular_file(root, error), path,
                      ": expected a file or a folder");
    roots.push_back(root);
  }
  std::sort(roots.begin(), roots.end(),
            [](const fs::path& a, const fs::path& b) { return path_less(a.string(), b.string()); });
  // What is below another follows it.
  std::vector<fs::path> apart;
  for (fs::path& root : roots)
    if (apart.empty() || !is_below(root, apart.back())) apart.push_back(std::move(root));
  return apart;
}

void walk(const WalkOptions& options, SkippedCounts& skipped, const std::function<void(const FoundFile&)>& found,
          const std::function<void(const std::string& path)>& unreadable) {
  Walk walk(options, skipped, found, unreadable);
  for (const fs::path& root : options.roots) walk.visit_root(root);
}

std::vector<std::string> split_patterns(const std::vector<std::string>& lists) {
  std::vector<std::string> patterns;
  for (const std::string& list : lists)
    for (size_t begin = 0, end; begin < list.size(); begin = end + 1) {
      end = std::min(list.find(',', begin), list.size());
      std::string pattern = list.substr(begin, end - begin);
      while (pattern.ends_with('/')) pattern.pop_back();
      check<UsageError>(!pattern.empty(), "--exclude: an empty pattern among ", list);
      patterns.push_back(pattern);
    }
  return patterns;
}

}  // namespace cairn::text_search

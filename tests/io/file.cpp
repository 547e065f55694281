#include "nn/io/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <future>
#include <iterator>
#include <typeinfo>

#include "nn/io/hash.h"
#include "tests/io/io_test.h"

using namespace cairn;
using Catch::Matchers::ContainsSubstring;

static std::string write_error(const std::filesystem::path& path, const std::vector<std::string_view>& pieces) {
  try {
    write_file(path, pieces);
  } catch (const Error& error) {
    CHECK(typeid(error) == typeid(Error));
    return error.what();
  }
  return "no error";
}

TEST_CASE("a file is replaced in one step, and a device or pipe is written in place", "[io]") {
  const TemporaryFolder folder;
  for (const char* text : {"one", "another"}) {
    const int before = open((folder / "file").c_str(), O_RDONLY);
    replace_file(folder / "file", {text});
    CHECK(read_file(folder / "file") == text);
    char old[8] = "";
    if (before >= 0)
      CHECK(std::string(old, size_t(read(before, old, sizeof old))) == "one");  // an open reader sees the old file
    close(before);
  }
  std::filesystem::create_symlink("file", folder / "link");
  replace_file(folder / "link", {"through the link"});
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(read_file(folder / "file") == "through the link");
  std::filesystem::create_symlink("/dev/null", folder / "null");  // (root can replace the device itself)
  replace_file(folder / "null", {"gone"});
  CHECK(std::filesystem::is_symlink(folder / "null"));
  std::filesystem::create_directories(folder / "full/inside");
  CHECK_THROWS_AS(replace_file(folder / "full", {"x"}), Error);
  CHECK_THROWS_AS(replace_file(folder / "nowhere/file", {"x"}), Error);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 4);  // no temporary file is left
}

TEST_CASE("two writers of a file, with one process id, leave a whole one", "[io]") {
  const TemporaryFolder folder;
  const std::string text(300'000, 'x');
  const auto write = [&] {
    for (int i = 0; i < 200; ++i) {
      replace_file(folder / "file", {text});
      check(read_file(folder / "file") == text, "half a file");
    }
  };
  auto other = std::async(std::launch::async, write);
  CHECK_NOTHROW(write());
  CHECK_NOTHROW(other.get());
}

TEST_CASE("a file that is replaced keeps its permission bits", "[io]") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "file";
  const auto bits = [&] { return int(std::filesystem::status(file).permissions()); };
  const mode_t before = umask(022);
  replace_file(file, {"a new file"});
  CHECK(bits() == 0644);
  for (const int chosen : {0600, 0664, 0444}) {
    std::filesystem::permissions(file, std::filesystem::perms(chosen));
    replace_file(file, {"another"});
    CHECK(bits() == chosen);
  }
  umask(before);
}

TEST_CASE("parts of any size are written in order, and read back", "[io]") {
  const TemporaryFolder folder;
  std::string all;
  std::vector<std::string_view> pieces;
  for (size_t i = 0; i < 3'000'000; ++i) all += char(i * 31 >> 3);
  size_t at = 0;
  for (size_t size = 1; at < all.size(); size = size * 3 % 700'001) {
    pieces.push_back(std::string_view(all).substr(at, size));
    at += size;
  }
  Xxh128 hash;
  write_file(folder / "file", pieces, &hash);
  CHECK((bytes_of_file(folder / "file") == all));
  CHECK((read_file(folder / "file") == all));
  CHECK(hash.text() == xxh128(all));
  write_file(folder / "file", {"shorter", "", "than before"});
  CHECK(read_file(folder / "file") == "shorterthan before");
  write_file(folder / "file", {});
  CHECK(read_file(folder / "file").empty());
}

TEST_CASE("a failed read or write gives one line with the file and the reason", "[io]") {
  const TemporaryFolder folder;
  put_file(folder / "file", "x");
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);  // nobody writes to it
  std::filesystem::create_symlink("loop", folder / "loop");
  const std::pair<std::filesystem::path, const char*> unreadable[] = {
      {folder / "missing", "No such file"},        {folder / ".", "is a folder"},
      {folder / "file/within", "Not a directory"}, {folder / "pipe", "not a regular file"},
      {folder / "loop", "symbolic links"},         {"/dev/zero", "not a regular file"}};
  for (const auto& each : unreadable)
    CHECK_THAT(data_error([&] { read_file(each.first); }),
               ContainsSubstring(each.first) && ContainsSubstring(each.second));
  std::signal(SIGXFSZ, SIG_IGN);  // as in the programs
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{1000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string text(1001, 'x');
  const std::string too_large = write_error(folder / "file", {text});  // the first write is short, the second fails
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK_THAT(too_large, ContainsSubstring("file: cannot be written") && ContainsSubstring("large"));
  CHECK_THAT(write_error(folder / "missing/file", {"x"}),
             ContainsSubstring("missing/file: cannot be created: No such file"));
  CHECK_THAT(write_error("/dev/full", {"x"}),
             ContainsSubstring("/dev/full") && ContainsSubstring("No space left on device; free some space there"));
  CHECK(write_error("/dev/null", {"x"}) == "no error");  // a device needs no sync
}

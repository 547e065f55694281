#include "nn/io/file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "tests/io/io_test.h"

using namespace cairn;
using Catch::Matchers::ContainsSubstring;

static std::string write_error(const std::filesystem::path& path, const std::vector<std::string_view>& pieces) {
  try {
    write_file(path, pieces);
  } catch (const Error& error) {
    CHECK(error.exit_code() == 1);
    return error.what();
  }
  return "no error";
}

TEST_CASE("what is written is read back", "[io]") {
  const TemporaryFolder folder;
  const std::string odd("a\0b\n\xff", 5), large(3 << 20, 'x');
  write_file(folder / "file", {"longer than what replaces it, so that a rest would show"});
  write_file(folder / "file", {odd, "", large.substr(0, 7)});
  CHECK(read_file(folder / "file") == odd + "xxxxxxx");
  CHECK(bytes_of_file(folder / "file") == odd + "xxxxxxx");
  write_file(folder / "file", {large, odd});
  CHECK(read_file(folder / "file") == large + odd);
  write_file(folder / "file", {});
  CHECK(read_file(folder / "file").empty());
  sync_folder(folder.path());
}

TEST_CASE("what cannot be read is one line that names it", "[io]") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& name, const char* why) {
    const std::string message = data_error([&] { read_file(folder / name); });
    CHECK_THAT(message, ContainsSubstring((folder / name).string()) && ContainsSubstring(why));
  };
  refused("missing", "No such file");
  refused(".", "is a folder");
  put_file(folder / "file", "x");
  refused("file/within", "Not a directory");
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);  // nobody will ever write
  refused("pipe", "not a regular file");
  std::filesystem::create_symlink("loop", folder / "loop");
  refused("loop", "symbolic links");
  CHECK_THAT(data_error([] { read_file("/dev/zero"); }), ContainsSubstring("not a regular file"));
  // Its size is said to be 0, and it is not empty: as a file that grows.
  CHECK_THAT(data_error([] { read_file("/proc/self/status"); }), ContainsSubstring("changed its size"));
}

TEST_CASE("what cannot be written is an error that says why", "[io]") {
  const TemporaryFolder folder;
  CHECK_THAT(write_error(folder / "missing/file", {"x"}),
             ContainsSubstring("missing/file") && ContainsSubstring("No such file"));
  CHECK_THAT(write_error(folder.path(), {"x"}),
             ContainsSubstring("cannot be created") && ContainsSubstring("directory"));
  CHECK_THAT(write_error("/dev/full", {"x"}), ContainsSubstring("/dev/full") && ContainsSubstring("No space left"));
  CHECK_THROWS_WITH(sync_folder(folder / "missing"), ContainsSubstring("missing") && ContainsSubstring("No such file"));
}

TEST_CASE("a limit of a file's size is an error, not the end of the process", "[io]") {
  const TemporaryFolder folder;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{1000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string text(1001, 'x');
  // The first write is short, the second fails.
  const std::string message = write_error(folder / "file", {text});
  const std::string fits = write_error(folder / "small", {std::string_view(text).substr(1)});
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK_THAT(message, ContainsSubstring("file: cannot be written") && ContainsSubstring("large"));
  CHECK(fits == "no error");
  sigset_t pending, blocked;
  sigpending(&pending);
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  CHECK_FALSE(sigismember(&pending, SIGXFSZ));
  CHECK_FALSE(sigismember(&blocked, SIGXFSZ));
}

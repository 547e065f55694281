// What programs do within the limits of control groups: as many threads as the quota, and an error in the place of a
// kill. The groups are files in a folder that CAIRN_SYSTEM_ROOT names.
#include <filesystem>
#include <string>

#include "tests/apps/process.h"
#include "tests/io/io_test.h"

using namespace cairn;

namespace {

ProcessResult run_within(const std::string& file, const std::string& limit, const std::string& program,
                         const std::string& arguments) {
  const TemporaryFolder root;
  std::filesystem::create_directories(root / "proc/self");
  std::filesystem::create_directories(root / "sys/fs/cgroup");
  put_file(root / "proc/self/cgroup", "0::/\n");
  put_file(root / ("sys/fs/cgroup/" + file), limit + "\n");
  return run_process(program, arguments, "CAIRN_SYSTEM_ROOT=" + root.path().string() + " ");
}

}  // namespace

TEST_CASE("a program takes as many threads as its control group has processors", "[limits][fault]") {
  const auto one = run_within("cpu.max", "50000 100000", "copy-task", "train --help");
  CHECK_THAT(one.out, Catch::Matchers::ContainsSubstring("(1 here)"));
}

TEST_CASE("a program that would exceed its control group's memory says so", "[limits][fault]") {
  const std::string wide =
      "train --quiet --length 3 --layers 1 --heads 4 --head-size 64 --feed-forward 16 --iterations 1 ";
  const auto fits = run_within("memory.max", "100000000", "copy-task", wide + "--batch 8");
  INFO(fits.err);
  CHECK(fits.exit_code == 0);
  const auto exceeds = run_within("memory.max", "100000000", "copy-task", wide + "--batch 8192");
  INFO(exceeds.err);
  CHECK(exceeds.exit_code == 4);
  CHECK_THAT(exceeds.err, Catch::Matchers::StartsWith("copy-task: error: out of memory on cpu: "));
  CHECK_THAT(exceeds.err, Catch::Matchers::EndsWith(" in use by tensors, 93750000 there for this process\n"));

  const auto model = run_within("memory.max", "100000000", "copy-task", "train --layers 100");
  CHECK(model.exit_code == 4);
  CHECK_THAT(model.err, Catch::Matchers::ContainsSubstring("this process may have 0.1 GB"));

  // A file is not read that cannot be held. (What is behind its beginning is a hole, which takes no room on the disk.)
  const TemporaryFolder folder;
  const auto large_file = [&folder](const std::string& beginning) {
    put_file(folder / "file", beginning);
    std::filesystem::resize_file(folder / "file", 200'000'000 + beginning.size());
    return (folder / "file").string();
  };
  const auto settings = run_within("memory.max", "100000000", "copy-task", "train --config " + large_file(""));
  INFO(settings.err);
  CHECK(settings.exit_code == 4);
  CHECK_THAT(settings.err, Catch::Matchers::ContainsSubstring("out of memory: the file has 200000000 bytes"));

  const std::string header = R"({"q":{"dtype":"F32","shape":[50000000],"data_offsets":[0,200000000]}})";
  std::string size(8, '\0');
  size[0] = char(header.size());
  const auto tensors =
      run_within("memory.max", "100000000", "attend", "--attention full --in " + large_file(size + header));
  INFO(tensors.err);
  CHECK(tensors.exit_code == 4);
  CHECK_THAT(tensors.err, Catch::Matchers::ContainsSubstring("out of memory on cpu: 200000000 bytes requested"));
}

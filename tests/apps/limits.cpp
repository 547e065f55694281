// A file that is larger than memory is refused in the place of a kill. (What is behind its beginning is a hole, which
// takes no room on the disk.)
#include <filesystem>
#include <string>

#include "core/storage.h"
#include "tests/apps/process.h"
#include "tests/io/io_test.h"

using namespace cairn;

TEST_CASE("a program does not read a file that is larger than memory", "[limits][fault]") {
  const size_t bytes = available_memory(Device::cpu) / 4 * 4 + 4;
  const TemporaryFolder folder;
  const auto large_file = [&](const std::string& beginning) {
    put_file(folder / "file", beginning);
    std::filesystem::resize_file(folder / "file", beginning.size() + bytes);
    return (folder / "file").string();
  };
  const auto settings = run_process("copy-task", "train --config " + large_file(""));
  INFO(settings.err);
  CHECK(settings.exit_code == 4);
  CHECK_THAT(settings.err,
             Catch::Matchers::ContainsSubstring("out of memory: the file has " + std::to_string(bytes) + " bytes"));

  const std::string header = R"({"q":{"dtype":"F32","shape":[)" + std::to_string(bytes / 4) +
                             R"(],"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
  std::string size(8, '\0');
  size[0] = char(header.size());
  const auto tensors = run_process("attend", "--attention full --in " + large_file(size + header));
  INFO(tensors.err);
  CHECK(tensors.exit_code == 4);
  CHECK_THAT(tensors.err,
             Catch::Matchers::ContainsSubstring("out of memory on cpu: " + std::to_string(bytes) + " bytes requested"));
}

#include "core/limits.h"

#include <filesystem>
#include <limits>
#include <map>
#include <string>

#include "core/parallel.h"
#include "core/storage.h"
#include "tests/io/io_test.h"

using namespace cairn;

TEST_CASE("limits of a control group and of one around it, in both versions", "[limits]") {
  const TemporaryFolder folder;
  CHECK(read_limits(folder.path()).processors == std::numeric_limits<int>::max());
  CHECK(read_limits(folder.path()).memory == std::numeric_limits<size_t>::max());
  std::filesystem::create_directories(folder / "pod/init");
  put_file(folder / "pod/cpu.max", "700000 100000");
  put_file(folder / "pod/memory.max", "2000000000");
  put_file(folder / "groups", "0::/pod/init\n");
  const auto found = [&] { return limits_of_process(folder / "groups", folder.path()); };
  constexpr int no_processors = 7;  // those of pod
  for (const auto& [text, processors] : std::map<std::string, int>{{"100000 100000", 1},
                                                                   {"100001 100000", 2},
                                                                   {"250000 100000\n", 3},
                                                                   {"9000000000000000000 1", no_processors},
                                                                   {"max 100000", no_processors},
                                                                   {"", no_processors},
                                                                   {"0 100000", no_processors},
                                                                   {"100000 0", no_processors},
                                                                   {"x", no_processors}}) {
    INFO(text);
    put_file(folder / "pod/init/cpu.max", text);
    CHECK(found().processors == processors);
  }
  constexpr size_t no_memory = 2000000000;
  for (const auto& [text, bytes] : std::map<std::string, size_t>{{"1073741824\n", 1073741824},
                                                                 {"4096", 4096},
                                                                 {"max", no_memory},
                                                                 {"", no_memory},
                                                                 {"0", no_memory},
                                                                 {"-1", no_memory}}) {
    INFO(text);
    put_file(folder / "pod/init/memory.max", text);
    CHECK(found().memory == bytes);
  }
  std::filesystem::create_directories(folder / "cpu/job/task");
  put_file(folder / "cpu/job/cpu.cfs_quota_us", "150000");
  put_file(folder / "cpu/job/cpu.cfs_period_us", "50000");
  put_file(folder / "cpu/job/task/cpu.cfs_quota_us", "-1");
  put_file(folder / "memory.limit_in_bytes", "9000000");
  put_file(folder / "groups", "5:cpuacct,cpu:/job/task\n4:memory:/of/the/host\n1:name=systemd:/a:b\n0::/\n");
  CHECK((found().processors == 3 && found().memory == 9000000));
}

TEST_CASE("threads and memory stay within the limits of this process", "[limits]") {
  CHECK(threads() <= limits().processors);
  CHECK(available_memory(Device::cpu) <= limits().memory);
}

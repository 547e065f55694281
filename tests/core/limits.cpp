#include "core/limits.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>

#include "tests/io/io_test.h"

using namespace cairn;

namespace {

// The limits that a system with these files would tell.
Limits limits_of(const std::map<std::string, std::string>& files) {
  const TemporaryFolder root;
  for (const auto& [name, text] : files) {
    const std::filesystem::path path = root / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  return read_limits(root.path().string());
}

constexpr int no_processors = std::numeric_limits<int>::max();
constexpr size_t no_memory = std::numeric_limits<size_t>::max();

}  // namespace

TEST_CASE("limits of control groups, versions 1 and 2", "[limits]") {
  const std::string group = "proc/self/cgroup", at = "sys/fs/cgroup/", memory = at + "memory/", cpu = at + "cpu/";
  for (const auto& [quota, processors] : std::map<std::string, int>{{"100000 100000", 1},
                                                                    {"100001 100000", 2},
                                                                    {"250000 100000", 3},
                                                                    {"1000 100000", 1},
                                                                    {"max 100000", no_processors},
                                                                    {"", no_processors},
                                                                    {"100000", no_processors},
                                                                    {"0 100000", no_processors},
                                                                    {"100000 0", no_processors},
                                                                    {"x", no_processors}}) {
    INFO(quota);
    CHECK(limits_of({{group, "0::/\n"}, {at + "cpu.max", quota + "\n"}}).processors == processors);
  }
  for (const auto& [text, bytes] : std::map<std::string, size_t>{
           {"1073741824", 1073741824}, {"max", no_memory}, {"", no_memory}, {"-1", no_memory}, {"4096", 4096}}) {
    INFO(text);
    CHECK(limits_of({{group, "0::/a\n"}, {at + "a/memory.max", text + "\n"}}).memory == bytes);
  }
  // The tightest of the group and of those around it.
  const std::string version_1 = "5:cpuset:/\n4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n1:name=systemd:/y\n0::/\n";
  const std::map<std::string, std::string> nested[] = {{{group, "0::/a/b/c\n"},
                                                        {at + "memory.max", "max\n"},
                                                        {at + "a/memory.max", "7000\n"},
                                                        {at + "a/b/memory.max", "5000\n"},
                                                        {at + "a/b/c/memory.max", "8000\n"},
                                                        {at + "a/cpu.max", "200000 100000\n"},
                                                        {at + "a/b/c/cpu.max", "600000 100000\n"},
                                                        {at + "a/b/other/cpu.max", "1 100000\n"}},
                                                       {{group, version_1},
                                                        {memory + "memory.limit_in_bytes", "9223372036854771712\n"},
                                                        {memory + "docker/x/memory.limit_in_bytes", "5000\n"},
                                                        {memory + "docker/memory.limit_in_bytes", "7000\n"},
                                                        {cpu + "docker/x/cpu.cfs_quota_us", "150000\n"},
                                                        {cpu + "docker/x/cpu.cfs_period_us", "100000\n"},
                                                        {cpu + "cpu.cfs_quota_us", "-1\n"},
                                                        {cpu + "cpu.cfs_period_us", "100000\n"}}};
  for (const auto& files : nested) {
    INFO(files.at(group));
    CHECK(limits_of(files).memory == 5000);
    CHECK(limits_of(files).processors == 2);
  }
  // A container sees its own group as the root of what is mounted, under a path of the system outside.
  CHECK(limits_of({{group, version_1}, {memory + "memory.limit_in_bytes", "6000\n"}}).memory == 6000);
}

TEST_CASE("what cannot be read of control groups is no limit", "[limits]") {
  for (const std::string text :
       {"", "\n", ":", "::", "0:", "0::", "x", "0::a/b", "0::////", "4:memory", "4:memory:a"}) {
    INFO(text);
    const Limits none = limits_of({{"proc/self/cgroup", text}});
    CHECK(none.processors == no_processors);
    CHECK(none.memory == no_memory);
  }
  CHECK(limits_of({}).memory == no_memory);
}

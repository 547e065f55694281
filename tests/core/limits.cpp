#include "core/limits.h"

#include <fstream>
#include <limits>
#include <map>
#include <string>

#include "core/parallel.h"
#include "core/storage.h"
#include "tests/io/io_test.h"

using namespace cairn;

TEST_CASE("limits of a control group", "[limits]") {
  const TemporaryFolder folder;
  constexpr int no_processors = std::numeric_limits<int>::max();
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
    std::ofstream(folder / "cpu.max") << text;
    CHECK(read_limits(folder.path()).processors == processors);
  }
  constexpr size_t no_memory = std::numeric_limits<size_t>::max();
  for (const auto& [text, bytes] : std::map<std::string, size_t>{{"1073741824\n", 1073741824},
                                                                 {"4096", 4096},
                                                                 {"max", no_memory},
                                                                 {"", no_memory},
                                                                 {"0", no_memory},
                                                                 {"-1", no_memory}}) {
    INFO(text);
    std::ofstream(folder / "memory.max") << text;
    CHECK(read_limits(folder.path()).memory == bytes);
  }
}

TEST_CASE("threads and memory stay within the limits of this process", "[limits]") {
  CHECK(threads() <= limits().processors);
  CHECK(available_memory(Device::cpu) <= limits().memory);
}

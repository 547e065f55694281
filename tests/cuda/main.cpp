// The tests of cuda/. Without a CUDA device the exit code is 77, which CTest shows as skipped.
#define CATCH_CONFIG_RUNNER
#include "tests/catch.h"

#include <cstdio>

#include "core/kernels/memory.h"
#include "core/parallel.h"
#include "core/storage.h"

int main(int argc, char** argv) {
  if (cairn::gpu::device_count() == 0) {
    std::fprintf(stderr, "skipped: %s\n", cairn::gpu::device_problem().c_str());
    return 77;
  }
  cairn::keep_freed_memory(false);  // so that a read of unwritten memory shows
  cairn::set_threads(2);            // so that the emulator can run two blocks at a time
  return Catch::Session().run(argc, argv);
}

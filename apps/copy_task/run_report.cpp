#include "apps/copy_task/run_report.h"

#include "nn/io/file.h"

namespace cairn::copy_task {

void write_report(const Trained& trained, const std::filesystem::path& run, const std::filesystem::path& file) {
  (void)trained, (void)run;
  write_file(file, {"to come"});
}

}  // namespace cairn::copy_task

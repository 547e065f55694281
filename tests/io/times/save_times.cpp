// save-times FOLDER [PARAMETERS TENSORS]: what a save and a restore of a model with R-Adam take, beside `cp` and an
// fsync of the same bytes, in turn. A table on standard output: medians in milliseconds, and their ratios to the
// copy's. Tests assert none of it.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/storage.h"
#include "nn/io/checkpoint.h"
#include "nn/optim/r_adam.h"

using namespace cairn;
namespace fs = std::filesystem;

namespace {

// So many parameters in so many tensors.
struct Many : Module {
  Many(int64_t tensors, int64_t elements) {
    for (int64_t i = 0; i < tensors; ++i) parameters.push_back(constant_parameter({elements / tensors}, 0.5));
  }
  void fields(Fields& f) override {
    for (size_t i = 0; i < parameters.size(); ++i) f(concat("layers.", i, ".attention.weight"), parameters[i]);
  }
  std::vector<Variable> parameters;
};

double milliseconds(const std::function<void()>& measured) {
  sync();  // what is left of earlier writes
  const auto start = std::chrono::steady_clock::now();
  measured();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// cp, and an fsync of what it made.
void copy_folder(const fs::path& from, const fs::path& to) {
  check(std::system(concat("cp -r ", from, ' ', to).c_str()) == 0, "cp failed");
  for (const auto& entry : fs::directory_iterator(to)) {
    const int file = open(entry.path().c_str(), O_RDONLY);
    check(file >= 0 && fsync(file) == 0, "fsync failed");
    close(file);
  }
}

// A line of the table: `rounds` of a copy, a save and a restore in turn.
void measure(const fs::path& folder, int64_t elements, int64_t tensors, int rounds) {
  const fs::path run = folder / "run", copied = folder / "copied";
  fs::remove_all(run);
  Many model(tensors, elements);
  RAdam optimizer(parameters(model), 0.1);
  const auto save = [&] { save_checkpoint(run, model, optimizer, {{"step", 1}}); };
  save();
  std::vector<double> copies, saves, restores;
  for (int i = 0; i < rounds; ++i) {
    fs::remove_all(copied);
    copies.push_back(milliseconds([&] { copy_folder(run / "checkpoint", copied); }));
    saves.push_back(milliseconds(save));
    release_cached_memory();
    restores.push_back(milliseconds([&] { restore(*find_checkpoint(run), model, &optimizer); }));
  }
  double bytes = 0;
  for (const auto& entry : fs::directory_iterator(run / "checkpoint")) bytes += double(entry.file_size());
  const double copy = median(copies), saved = median(saves), restored = median(restores);
  std::printf("%12lld %8lld %8.1f %9.1f %9.1f %9.1f %7.2f %7.2f\n", (long long)elements, (long long)tensors,
              bytes / 1e6, copy, saved, restored, saved / copy, restored / copy);
  std::fflush(stdout);
  fs::remove_all(copied);
}

}  // namespace

int main(int argc, char** argv) try {
  check<UsageError>(argc == 2 || argc == 4, "usage: save-times FOLDER [PARAMETERS TENSORS]");
  const fs::path folder = argv[1];
  fs::create_directories(folder);
  std::printf("%12s %8s %8s %9s %9s %9s %7s %7s\n", "parameters", "tensors", "MB", "cp+fsync", "save", "restore",
              "save", "restore");
  if (argc == 4)
    measure(folder, std::atoll(argv[2]), std::atoll(argv[3]), 15);
  else
    for (const int64_t elements : {2'000'000, 100'000'000})
      for (const int64_t tensors : {10, 10'000}) measure(folder, elements, tensors, elements > 10'000'000 ? 5 : 15);
  fs::remove_all(folder);
} catch (const std::exception& error) {
  std::fprintf(stderr, "save-times: error: %s\n", error.what());
  return 1;
}

#pragma once
// The command `train`, which makes a run: a trained model in a folder, with all that belongs to it. And how other
// commands read a run.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "apps/common/program.h"
#include "apps/common/training.h"

namespace cairn {

// The command `train` of a program, which has declared its settings: adds --out, --resume and --trace, and calls
// `train` with the run that the user asks for. Prints its result: `text_of` has the program's metrics as text. `train`
// checks the settings first, so that a rejected command creates no folder. With several processes, rank 0 alone has the
// folder, and all have its settings.
void run_training(CommandLine& line, const std::string& examples, const std::function<Json(const Run&)>& train,
                  const std::function<std::string(const Json&)>& text_of);

// train(run). The message of a DivergedError that it throws then says what is saved, and how to find the operation.
Json trained(const Run& run, const std::function<Json(const Run&)>& train);

// Takes the settings of a run, which `settings` declares, and finds its weights. `option` names the folder in messages.
// Errors: UsageError: no folder is given; DataError: there is no run; its settings or checkpoints are damaged.
FoundCheckpoint open_run(const char* option, const std::string& folder, SettingFields& settings);

// A run that was trained: its settings, its model on the CPU, and the steps that this model has made. Errors: as
// open_run() and Model(); DataError: the weights are another model's.
template <class Settings, class Model>
struct SavedRun {
  std::string folder;
  Settings settings;
  std::unique_ptr<Model> model;
  int64_t step = 0;

  SavedRun(const char* option, const std::string& of_run) : folder(of_run) {
    SettingFields fields;
    settings.fields(fields);
    const FoundCheckpoint checkpoint = open_run(option, folder, fields);
    step = state_of(checkpoint).step;
    Generator generator(uint64_t(settings.compute.seed));
    model = std::make_unique<Model>(settings, generator);
    restore(checkpoint, *model, nullptr);
  }
};

// Which model a result is of: "best model, of step 100", or "last model" if no checkpoint of the best was kept.
std::string evaluated_model(const Json& result);

}  // namespace cairn

#pragma once
// A run: a trained model in a folder, with all that belongs to it. The command `train` makes it, and others read it.
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/common/program.h"
#include "apps/common/training.h"

namespace cairn {

// What a program trains: the task, how its trained model is evaluated, and its report.
struct RunTask : Task {
  virtual const TrainingOptions& options() const = 0;
  // What the training computes from its data: a file of the run's folder. If it differs, the run is not continued.
  struct Data {
    std::string file, source;         // its name (empty: the run has no such file); names the data in a message
    nlohmann::ordered_json computed;  // an object; a run of an earlier version may lack keys
  };
  virtual Data data() { return {}; }
  // The attention and the metrics of the trained model: the beginning of result.json. Ends early if the user asks to
  // stop.
  virtual nlohmann::ordered_json final_evaluation() = 0;
  // The metrics of a result as text.
  virtual std::string metrics_text(const nlohmann::ordered_json& result) const = 0;
  // Writes report.html from metrics.jsonl and the result (null: the run was interrupted). The same run gives the same
  // page. It computes on the CPU, where the model then stays. Error (DataError): metrics.jsonl is another program's.
  virtual void write_report(RunFolder& run, const TrainState& state, const nlohmann::ordered_json& result) = 0;
};

// Trains the run in the folder, or a new one. Then takes the best model, if the options keep it, evaluates it, and
// writes result.json and the report. Returns the result: metrics, steps, seconds, parameters, peak memory. For a
// finished run, it only writes the report again. With several processes, all return the result. Errors: as train();
// Interrupted, after saving: there is no result, but a report of the training so far.
nlohmann::ordered_json train_run(RunTask& task, RunFolder& run, bool quiet, Communicator& ranks);
// Which model a result is of: "best model, of step 100", or "last model" if no checkpoint of the best was kept.
std::string evaluated_model(const nlohmann::ordered_json& result);

class TrainCommand : public Command {
 public:
  void fields(SettingFields& f) override;  // --out, --resume and --trace; a program adds its settings
  void run(Communicator& ranks) override;

 protected:
  TrainCommand(const char* summary, const std::string& examples);
  // Checks the settings, and makes the task of this process. `begins`: with the weights of --init-from, if it is given;
  // otherwise the weights will come from a checkpoint, or from rank 0.
  virtual std::unique_ptr<RunTask> make_task(bool begins, Communicator& ranks) = 0;

  std::string out, trace;
  bool resume = false;
};

// The run that a command reads. A program adds its settings and its model.
struct RunToRead {
  std::string folder;
  const char* option = "--run";  // which names the folder
  int64_t threads = 0;
  int64_t step = 0;  // of the weights, after find()

  // Declares --run and --threads.
  void fields(SettingFields& f, const std::string& help);
  // Takes the run's settings, which `settings` declares, and finds its weights. Errors: UsageError: --run is missing;
  // DataError: there is no run; its settings or checkpoints are damaged.
  FoundCheckpoint find(SettingFields& settings);
};

}  // namespace cairn

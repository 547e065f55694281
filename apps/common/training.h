#pragma once
// A training in its folder. The program writes the loop (apps/copy_task/train.cpp). This class has what is around a
// step: resume, learning rate, several processes, metrics, evaluations, checkpoints, interruptions, and the end.
//
//   Training training(run, options, model);
//   while (training.next()) {
//     const Share mine = training.share(examples);
//     training.learn(mine.size() > 0 ? loss_of(mine) : Variable());
//     training.evaluate([&] { return evaluation(); });
//   }
//   const Json result = training.result([&] { return final_metrics(); });
//   if (training.keeps()) write_report(training.folder(), training.state(), result);
//   return training.finish(result);
//
// A resume restores the weights, the optimizer's moments and counts, and TrainState. Settings come from config.json;
// random numbers follow from the step and the seed.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/run_folder.h"
#include "apps/common/training_options.h"
#include "autograd/check_finite.h"
#include "core/trace.h"
#include "nn/io/checkpoint.h"
#include "nn/io/trace_file.h"
#include "nn/parallel/data_parallel.h"

namespace cairn {

// Where a training is kept, what is shown of it, and who computes it.
struct Run {
  std::filesystem::path folder;  // empty: nothing is kept, as on all ranks but 0
  Json config;                   // for config.json
  bool quiet = false;
  std::string trace{};  // the file for the times of all operations; empty: none
  Communicator& ranks = processes();

  // Do its first weights come from this process? Otherwise they come from a checkpoint, or from rank 0.
  bool begins() const { return ranks.rank() == 0 && (folder.empty() || !has_checkpoint(folder)); }
};

// The state of a training, without the weights and the optimizer.
struct TrainState {
  int64_t step = 0;
  double seconds = 0;            // of training and evaluation so far
  Json metrics;                  // of the latest evaluation; null: none yet
  bool ended = false;            // solved, or out of patience (TrainingOptions)
  double best = INFINITY;        // the best score
  int64_t since_best = 0;        // evaluations since then
  std::vector<double> schedule;  // Schedule::state()
  int64_t saved = -1;            // the step of the newest checkpoint; -1: there is none
};

// The newest good checkpoint of a run, if there is any. A line on standard error says if a newer one is damaged. Error
// (DataError): all are damaged.
std::optional<FoundCheckpoint> newest_checkpoint(const std::filesystem::path& run);
// The best model of a run, or else the newest; `option` names the run. Error (DataError): there is none; or as above.
FoundCheckpoint checkpoint_of(const char* option, const std::filesystem::path& run);
// Gives the model the weights of checkpoint_of(), of the run that --init-from names. Errors (DataError): there is no
// checkpoint; all are damaged; the weights are another model's.
void initialize(Module& model, const std::filesystem::path& run);
// The training state in a checkpoint. Error (DataError): another program wrote it.
TrainState state_of(const FoundCheckpoint& checkpoint);

struct Evaluation {
  Json metrics;         // names and numbers, or null; shown, and written to metrics.jsonl
  double score = NAN;   // less is better; for the plateau schedule, early stopping and the best model
  bool solved = false;  // training may end here
  std::string note{};   // a line to show; empty: none
};

// What a training computes from its data. With other data, a run that goes on would have other bits.
struct DataRecord {
  std::string file{}, source{};  // its file in the folder (empty: none); names the data in a message
  Json computed{};               // an object; a run of an earlier version may lack keys
};
// Error (DataError): the run in the folder began with other data. The message ends with the remedy.
void expect_same(const DataRecord& data, const std::filesystem::path& run, const char* remedy);

class Training {
 public:
  // Opens the folder, and takes the newest checkpoint, if there is one. The model is on its device. From here on the
  // user's interruption ends the loop. Errors: as TraceFile and RunFolder; UsageError: the run has made more steps;
  // DataError: it began with other data, and nothing has changed; its checkpoint is damaged or another model's.
  Training(const Run& run, const TrainingOptions& options, Module& model, const DataRecord& data = {});

  // Ends the step, if there is one: its line in metrics.jsonl, its checkpoint. Then begins another one, and returns
  // true; or saves, and returns false: all steps are done, an evaluation ended the training, or the user interrupts.
  // What a step computes may depend on step(), the seed and the checkpoint alone. Otherwise a resumed run has other
  // bits.
  bool next();
  int64_t step() const { return state_.step; }  // steps that are done

  // This process's part of so many examples. A step that does not call it weighs all processes equally.
  Share share(int64_t examples);
  // Goes a step against the gradient of the loss, a mean over this process's examples. Without examples, the loss is
  // undefined. Error (DivergedError): the loss is not finite, or too many gradients in a row are not (Optimizer).
  void learn(const Variable& loss);
  // If an evaluation is due after this step, f() evaluates the model, on rank 0.
  void evaluate(const std::function<Evaluation()>& f);

  // After the loop. Takes the best model, if the options keep it; f() evaluates it, on rank 0, and may throw
  // Interrupted. Returns f()'s metrics, which have a loss, with the time and the memory of this process. The
  // metrics are the same on all ranks. A finished run returns its result without f(). Null: the user has interrupted.
  Json result(const std::function<Json()>& f);
  // Writes result.json, last, when nothing is left to do, and returns the result. Throws Interrupted if it is null.
  Json finish(const Json& result);

  bool keeps() const { return folder_.keeps(); }  // on rank 0, with a folder
  RunFolder& folder() { return folder_; }
  const TrainState& state() const { return state_; }

 private:
  TrainState begun();
  bool goes_on();
  void end_step();
  void save();
  void save_to(const std::filesystem::path& folder);

  const TrainingOptions& options_;
  Module& model_;
  Communicator& ranks_;
  TraceFile trace_;
  RunFolder folder_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Schedule> schedule_;
  TrainState state_;
  Progress progress_;
  Stopwatch clock_;
  std::optional<CheckFinite> finite_;
  std::optional<trace::Span> span_;  // from next() to learn(); none: outside
  double weight_ = 1;                // of this process's loss in the step
  Json line_;                        // of metrics.jsonl, of the step that has learned; null: none
  bool is_new_ = true;               // the result
  int64_t average_every_;
};

}  // namespace cairn

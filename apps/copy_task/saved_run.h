#pragma once
// A run as its folder holds it: the trained model, its records, its result, and the report that they make.
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "apps/common/run_folder.h"
#include "apps/copy_task/report_page.h"
#include "apps/copy_task/settings.h"
#include "apps/copy_task/train.h"
#include "nn/io/checkpoint.h"

namespace cairn::copy_task {

// A run as its newest good checkpoint holds it.
struct Trained {
  Settings settings;
  FoundCheckpoint checkpoint;
  std::unique_ptr<Model> model;
  int64_t step = 0;

  // Evaluates with another variant. Error (UsageError): not for these weights.
  void swap_attention(const std::string& spec);
  // The variant of all layers, and the positions of a sequence.
  const Attention& attention() const { return *model->encoder.layers[0]->attention.attention; }
  int64_t positions() const { return model->positions.size(0); }
};

// The newest good checkpoint of the run in the folder that `option` names. Error (DataError): there is none.
FoundCheckpoint checkpoint_of_run(const char* option, const std::filesystem::path& run);
// Reads the run in the folder that --run names. Errors (DataError): as checkpoint_of_run; settings that are none.
std::unique_ptr<Trained> read_run(const std::filesystem::path& run);
// The newest good checkpoint, if there is any. Which is used in the place of a damaged one is said on standard error,
// and, where training goes on from it, what becomes of the damaged one. Error (DataError): all are damaged.
std::optional<FoundCheckpoint> find_checkpoint_of(const std::filesystem::path& run, bool to_train);

// Trains a run, from its checkpoint if there is one. Without a folder nothing is kept. Of several ranks only rank 0 may
// have a folder. Errors: as train().
TrainResult train_run(const Options& options, const TrainOptions& train, RunFolder* folder,
                      std::optional<FoundCheckpoint>& found, bool quiet, Communicator& ranks);
// The result that a run recorded, if it has nothing left to do: it made its iterations, or stopped by itself.
std::optional<nlohmann::ordered_json> finished_result(const std::filesystem::path& run, const FoundCheckpoint& found,
                                                      int64_t iterations);
// What is to be known before the run goes on. Its own records are right: else an error (DataError), not a training that
// ends without its report. Where it goes on with another device, or other vectors of the processor, and so with other
// rounding, it says that on standard error.
void check_resumed(const std::filesystem::path& run, const FoundCheckpoint& found, const TrainOptions& train);
// Records the result of a run that ended, and writes its report. Error: the folder cannot be written.
void finish_run(RunFolder& folder, const nlohmann::ordered_json& result);
// Writes the report of a run that had this result, from what its folder holds. Errors: as read_run; DataError for its
// metrics.jsonl; it cannot be written.
void write_report(RunFolder& folder, const nlohmann::ordered_json& result);

}  // namespace cairn::copy_task

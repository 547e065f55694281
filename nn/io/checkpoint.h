#pragma once
// A model and its optimizer on disk, so that training goes on where it was whenever it was stopped: bit for bit on the
// same device with the same build, for any number of threads. Another processor level (cpu_vectors()), device or build
// rounds differently.
//
//   run/checkpoint/            the newest: weights.safetensors, optimizer.safetensors, checkpoint.json, checksums
//   run/checkpoint.previous/   the one before
//   run/checkpoint.new/        being written
//   run/checkpoint.damaged/    put aside by adopt()
//
// checkpoint.json has the format's version, the files' sizes and hashes, and what the caller says about the run.
// checksums lists all three files: `xxh128sum --check checksums` verifies them, and no byte of the four can change
// unnoticed.
//
// A save is written beside, synced and read back - headers, JSON, hashes - before anything is renamed. So a kill
// or a loss of power, at any point, loses no complete checkpoint. find_checkpoint looks into checkpoint.new/ too.
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "nn/io/safetensors.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"

namespace cairn {

// Saves into the folder `run`, which is made if it is not there. `about` is an object: configuration, provenance,
// progress; it must not hold NaN or infinity, which JSON cannot. Errors, after which what was saved before stays:
// something cannot be written, or not be read back as it was (exit code 1); a weight or a moment is not finite
// (DivergedError).
void save_checkpoint(const std::filesystem::path& run, Module& model, const Optimizer& optimizer,
                     const nlohmann::ordered_json& about);

// A checkpoint that was read, whose hashes are right and whose numbers are finite.
struct FoundCheckpoint {
  std::filesystem::path folder;
  std::shared_ptr<const nlohmann::ordered_json> about;  // as it was saved
  TensorFile weights, optimizer;
  std::vector<std::string> passed_over;  // one line for each newer checkpoint: which it is, and what is wrong with it
};

// The newest usable checkpoint of a run; none if nothing was ever saved there. Changes nothing. Error (DataError): all
// are damaged; says what is wrong with each.
std::optional<FoundCheckpoint> find_checkpoint(const std::filesystem::path& run);

// Puts the numbers into the model and, unless it is null, the optimizer: moments, counts, learning rate. Both are
// changed only when everything fits. Errors (DataError): a tensor is missing or nobody's, has another dtype or shape,
// or a number that is not finite.
void restore(const FoundCheckpoint& found, Module& model, Optimizer* optimizer);

// Makes the found checkpoint the newest again, before training goes on: a damaged one that was passed over is moved to
// checkpoint.damaged/, for otherwise the next save would keep it and drop the good one. Changes found.folder. Error
// (exit code 1): cannot be renamed.
void adopt(FoundCheckpoint& found);

}  // namespace cairn

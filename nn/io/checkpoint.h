#pragma once
// A module's weights on disk, and a model with its optimizer, so that training goes on where it was whenever it was
// stopped: bit for bit on the same device with the same build, for any number of threads. Another processor level
// (cpu_vectors()), device or build rounds differently.
//
//   run/checkpoint/            the newest: weights.safetensors, optimizer.safetensors, checkpoint.json, checksums
//   run/checkpoint.previous/   the one before
//   run/checkpoint.new/        being written, or what is left of a save that was stopped
//
// checkpoint.json has what the caller says about the run. checksums lists the hashes of all three files:
// `xxh128sum --check checksums` verifies them, and no byte of the four can change unnoticed.
//
// A save is written to checkpoint.new/ and brought to the disk; then the newest becomes the previous, and the new one
// the newest. So a kill or a loss of power, at any point, leaves one of the last two.
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "nn/io/safetensors.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"

namespace cairn {

// A module's parameters under their names, as a safetensors file. Error: as write_safetensors.
void save(const std::filesystem::path& file, Module& module);
// Reads them back, all or none. Error (DataError): the file is damaged; a tensor is missing or no parameter's, or has
// another dtype or shape.
void load(const std::filesystem::path& file, Module& module);

// Saves into the folder `run`, which is made if it is not there. `about`: configuration, provenance, progress; it must
// not hold NaN or infinity, which JSON cannot. Errors, after which what was saved before stays: something cannot be
// written (exit code 1); a weight or a moment is not finite (DivergedError).
void save_checkpoint(const std::filesystem::path& run, Module& model, const Optimizer& optimizer,
                     const nlohmann::ordered_json& about);

// A checkpoint that was read, and whose hashes are right.
struct FoundCheckpoint {
  std::filesystem::path folder;
  std::shared_ptr<const nlohmann::ordered_json> about;  // as it was saved
  TensorFile weights, optimizer;
  // What is wrong with the newest, if this is the one before. Whoever saves here must remove run/checkpoint/ first: it
  // would become the previous one, and this one would go.
  std::string damage;
};

// The newest usable checkpoint of a run; none if nothing was ever saved there. Changes nothing. Error (DataError): both
// are damaged; says what is wrong with each.
std::optional<FoundCheckpoint> find_checkpoint(const std::filesystem::path& run);

// Puts the numbers into the model and, unless it is null, the optimizer: moments, counts, learning rate. Both are
// changed only when everything fits. Errors (DataError): a tensor is missing or nobody's, or has another dtype or
// shape; the optimizer's state is impossible.
void restore(const FoundCheckpoint& found, Module& model, Optimizer* optimizer);

}  // namespace cairn

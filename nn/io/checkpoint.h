#pragma once
// A module's weights on disk, and checkpoints of a model with its optimizer. A training that was stopped at any moment
// continues from its checkpoint bit for bit, on the same device with the same build, for any number of threads. Another
// processor level (cpu_vectors()), device or build rounds differently.
//
//   run/checkpoint/            the newest: weights.safetensors, optimizer.safetensors, checkpoint.json, checksums
//   run/checkpoint.previous/   the one before
//   run/checkpoint.new/        being written, or the rest of a save that was stopped
//
// checkpoint.json has what the caller says about the run. checksums lists the hashes of the other three files, so
// `xxh128sum --check checksums` verifies them, and no byte of the four can change unnoticed.
//
// A save writes checkpoint.new/ and waits until it is on the disk. Then the newest becomes the previous, and the new
// one the newest. So a kill or a loss of power, at any point, leaves a whole checkpoint: the last saved or the one
// before.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "nn/io/json.h"
#include "nn/io/safetensors.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"

namespace cairn {

// A module's parameters under their names, as a safetensors file. Error: as write_safetensors.
void save(const std::filesystem::path& file, Module& module);
// Reads them back, all or none, unless the disk fails meanwhile. Error (DataError): the file is damaged; a tensor is
// missing, belongs to no parameter, or has another dtype or shape.
void load(const std::filesystem::path& file, Module& module);

// Saves into the folder `run`, and creates it if necessary. `about`: configuration, provenance, progress; it must not
// contain NaN or infinity, which JSON lacks. Errors, which leave earlier saves as they are: something cannot be written
// (exit code 1); a weight or a moment is not finite (DivergedError).
void save_checkpoint(const std::filesystem::path& run, Module& model, const Optimizer& optimizer, const Json& about);

// A checkpoint whose hashes are right. Its files are open: restore() reads the tensors, also where a later save has
// moved or removed the folder.
struct FoundCheckpoint {
  std::filesystem::path folder;
  std::shared_ptr<const Json> about;  // as it was saved
  TensorReader weights, optimizer;
  // Empty if this is the newest. Otherwise this is the previous one, and `damage` says what is wrong with the newest.
  // Then remove run/checkpoint/ before the next save, which would put the damaged one in the place of this one.
  std::string damage;
};

// Was anything saved there?
bool has_checkpoint(const std::filesystem::path& run);

// The newest good checkpoint of a run: `checkpoint`, or `checkpoint.previous` where the former is damaged or missing.
// It is missing where a save was stopped between its two renames; then the previous one is the last that was saved.
// None if nothing was saved there. Changes nothing. Error (DataError): both are damaged; says what is wrong with each.
std::optional<FoundCheckpoint> find_checkpoint(const std::filesystem::path& run);

// Reads the checkpoint into the model and, unless it is null, the optimizer (moments and counts; not the learning
// rate). Both change only if everything fits. Errors (DataError): a tensor is missing, superfluous, or of another dtype
// or shape; the optimizer's state is impossible; the disk fails, and then part of both has changed.
void restore(const FoundCheckpoint& found, Module& model, Optimizer* optimizer);

}  // namespace cairn

#include "nn/io/checkpoint.h"

#include <fcntl.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "autograd/check_finite.h"
#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr const char *newest = "checkpoint", *previous = "checkpoint.previous", *unfinished = "checkpoint.new";
constexpr const char *json_name = "checkpoint.json", *weights_name = "weights.safetensors",
                     *optimizer_name = "optimizer.safetensors", *checksums_name = "checksums";

// ---- the tensors, on the CPU

// The parts of the optimizer's state, by name.
template <class State, class F>
void each_part(State& state, F&& f) {
  f("state.step", state.step);
  f("state.gradient_norm", state.gradient_norm);
  f("state.gradient_scale", state.gradient_scale);
  f("state.skip", state.skip);
  f("state.skipped", state.skipped);
  f("state.skipped_in_a_row", state.skipped_in_a_row);
}

TensorFile tensors_of(Module& model) {
  TensorFile file;
  for (auto& [name, parameter] : named_parameters(model))
    file.tensors.emplace_back(name, parameter.value().to(Device::cpu));
  return file;
}

// The parts of its state, and then its moments.
TensorFile tensors_of(const Optimizer& optimizer) {
  TensorFile file;
  const OptimizerState state = optimizer.state();
  each_part(state, [&file]<class T>(const char* name, const T& part) {
    file.tensors.emplace_back(name, Tensor::from(std::vector<T>{part}, {}));
  });
  for (auto& [name, moment] : optimizer.moments()) file.tensors.emplace_back(name, moment.to(Device::cpu));
  return file;
}

// Error (DivergedError): a number is not finite. Such weights are useless, so they must not replace a good checkpoint.
void check_finite(const std::string& name, const Tensor& tensor) {
  const std::string fault = first_fault(tensor);
  check<DivergedError>(fault.empty(), "training diverged: tensor ", in_quotes(name), ": ", fault,
                       "; lower the learning rate");
}

// Error (DataError): `found` has other tensors than `expected`, or of another dtype or shape.
void expect_match(const TensorReader& found, const TensorFile& expected) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : expected.tensors) {
    const TensorReader::Entry& from = found.at(name);
    check<DataError>(from.dtype == tensor.dtype() && from.shape == tensor.shape(), found.where, ": tensor ",
                     in_quotes(name), ": expected ", cairn::name(tensor.dtype()), " of shape ", tensor.shape(),
                     ", got ", cairn::name(from.dtype), " of shape ", from.shape);
    names.insert(name);
  }
  for (const TensorReader::Entry& entry : found.entries)
    if (!names.contains(entry.name))
      throw DataError(concat(found.where, ": tensor ", in_quotes(entry.name), " is not part of what is being restored",
                             expected.suggest(entry.name)));
}

void put(const TensorReader& file, Module& module) {
  for (auto& [name, parameter] : named_parameters(module)) file.read(name, parameter.mutable_value());
}

// ---- one folder

// A file's line in checksums, in the format of xxh128sum.
std::string checksum_line(const std::string& hash, const char* name) { return concat(hash, "  ", name, '\n'); }

// Writes a file and returns its line in checksums. `old` is the checkpoint that is replaced.
std::string write_part(const fs::path& folder, const fs::path& old, const char* name,
                       const std::vector<std::string_view>& pieces) {
  Xxh128 hash;
  write_file(folder / name, pieces, &hash, old / name);
  return checksum_line(hash.text(), name);
}
std::string write_tensors(const fs::path& folder, const fs::path& old, const char* name, const TensorFile& file) {
  std::string header;
  return write_part(folder, old, name, safetensors_pieces(file, header));
}

// Error (DataError): anything in it is damaged or missing.
FoundCheckpoint read_checkpoint(const fs::path& folder) {
  const std::string json = read_file(folder / json_name), checksums = read_file(folder / checksums_name);
  FoundCheckpoint found{folder, {}, TensorReader(folder / weights_name), TensorReader(folder / optimizer_name), {}};
  check<DataError>(checksums == checksum_line(xxh128(json), json_name) +
                                    checksum_line(found.weights.hash(), weights_name) +
                                    checksum_line(found.optimizer.hash(), optimizer_name),
                   folder / checksums_name, ": damaged: not the hashes of the files beside it");
  const Json parsed = parse_json(json, (folder / json_name).string());
  check<DataError>(parsed.contains("about"), folder / json_name, ": not that of a checkpoint: expected \"about\"");
  found.about = std::make_shared<const Json>(parsed["about"]);
  return found;
}

std::optional<FoundCheckpoint> newest_usable(const fs::path& run) {
  std::string damage;
  for (const char* name : {newest, previous}) {
    std::error_code ignored;
    if (!fs::exists(run / name, ignored)) continue;
    try {
      FoundCheckpoint found = read_checkpoint(run / name);
      found.damage = damage;
      return found;
    } catch (const DataError& error) {
      damage += concat(damage.empty() ? "" : "; ", error.what());
    }
  }
  check<DataError>(damage.empty(), run, ": no usable checkpoint: ", damage);
  return std::nullopt;
}

}  // namespace

void save(const fs::path& file, Module& module) { write_safetensors(file, tensors_of(module)); }

void load(const fs::path& file, Module& module) {
  const TensorReader found(file);
  expect_match(found, tensors_of(module));
  put(found, module);
}

void save_checkpoint(const fs::path& run, Module& model, const Optimizer& optimizer, const Json& about) {
  const TensorFile weights = tensors_of(model), state = tensors_of(optimizer);
  for (const auto& [name, tensor] : weights.tensors) check_finite(name, tensor);
  for (const auto& [name, tensor] : state.tensors)  // but the norm of a gradient that was skipped may be infinite
    if (!name.starts_with("state.")) check_finite(name, tensor);
  const fs::path folder = run / unfinished;
  try {
    if (fs::create_directories(run)) sync_folder(fs::absolute(run).parent_path());
    fs::remove_all(folder);
    // The newest is missing where a save was stopped between the two renames: then the previous is all there is.
    const fs::path old = run / (fs::exists(run / newest) ? newest : previous);
    if (fs::exists(old))
      fs::create_directory(folder, old);  // with its permission bits
    else
      fs::create_directory(folder);
    OpenFile(folder, O_RDONLY | O_DIRECTORY, "cannot be opened").take_access(old);
    const std::string json = Json{{"about", about}}.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
    std::string checksums = write_part(folder, old, json_name, {json});
    checksums += write_tensors(folder, old, weights_name, weights);
    checksums += write_tensors(folder, old, optimizer_name, state);
    write_part(folder, old, checksums_name, {checksums});
    sync_folder(folder);
    if (old == run / newest) {
      fs::remove_all(run / previous);
      fs::rename(run / newest, run / previous);
    }
    fs::rename(folder, run / newest);
    sync_folder(run);
  } catch (const fs::filesystem_error& error) {
    throw Error(concat(error.path1(), ": cannot be made, moved or removed: ", error.code()));
  }
}

bool has_checkpoint(const fs::path& run) { return fs::exists(run / newest) || fs::exists(run / previous); }

std::optional<FoundCheckpoint> find_checkpoint(const fs::path& run) {
  // A run that saves meanwhile moves the folders. So if a checkpoint seems damaged, look once more.
  try {
    auto found = newest_usable(run);
    if (!found || found->damage.empty()) return found;
  } catch (const DataError&) {
  }
  return newest_usable(run);
}

void restore(const FoundCheckpoint& found, Module& model, Optimizer* optimizer) {
  expect_match(found.weights, tensors_of(model));
  if (optimizer) {
    expect_match(found.optimizer, tensors_of(*optimizer));
    OptimizerState state;
    each_part(state,
              [&]<class T>(const char* name, T& value) { value = *found.optimizer.read(name).template data<T>(); });
    optimizer->set_state(state);
    for (auto& [name, moment] : optimizer->moments()) found.optimizer.read(name, moment);
  }
  put(found.weights, model);
}

}  // namespace cairn

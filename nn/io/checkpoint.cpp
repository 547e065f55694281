#include "nn/io/checkpoint.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "nn/io/file.h"
#include "nn/io/finite.h"
#include "nn/io/hash.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char *newest = "checkpoint", *previous = "checkpoint.previous", *unfinished = "checkpoint.new";
constexpr const char *json_name = "checkpoint.json", *weights_name = "weights.safetensors",
                     *optimizer_name = "optimizer.safetensors", *checksums_name = "checksums";

// Also what may not be looked at, and what is no folder: it is there, and cannot be used.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

// ---- the tensors, on the CPU

// The parts of the optimizer's state, by name.
template <class State, class F>
void each_part(State& state, F&& f) {
  f("state.step", state.step);
  f("state.learning_rate", state.learning_rate);
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
  for (auto& moment : optimizer.moments()) file.tensors.emplace_back(moment.name, moment.tensor.to(Device::cpu));
  return file;
}

// Error (E): a number is not finite; the message begins with `where` and ends with `advice`. Of an
// optimizer's `state.` nothing is asked: the norm of a gradient that was skipped may be infinite.
template <class E>
void check_finite(const TensorFile& file, bool is_optimizer, const std::string& where, const char* advice = "") {
  for (const auto& [name, tensor] : file.tensors)
    if (!(is_optimizer && name.starts_with("state."))) check_finite<E>(tensor, name, where, advice);
}

// The tensors of `found` in the order of `expected`. Error (DataError): it has other ones, or of another dtype or
// shape.
std::vector<const Tensor*> matched(const TensorFile& found, const TensorFile& expected) {
  std::map<std::string_view, const Tensor*> left;
  for (const auto& [name, tensor] : found.tensors) left.emplace(name, &tensor);
  std::vector<const Tensor*> result;
  for (const auto& [name, tensor] : expected.tensors) {
    const auto at = left.find(name);
    const Tensor& from = at == left.end() ? found.at(name) : *at->second;
    check<DataError>(from.dtype() == tensor.dtype() && from.shape() == tensor.shape(), found.where, ": tensor ",
                     in_quotes(name), ": expected ", cairn::name(tensor.dtype()), " of shape ", tensor.shape(),
                     ", got ", cairn::name(from.dtype()), " of shape ", from.shape());
    result.push_back(&from);
    left.erase(at);
  }
  if (!left.empty()) {
    const std::string_view name = left.begin()->first;
    throw DataError(concat(found.where, ": tensor ", in_quotes(name), " is not part of what is being restored",
                           expected.suggest(name)));
  }
  return result;
}

// ---- one folder

// A file's line in checksums, in the format of xxh128sum.
std::string checksum_line(const Xxh128& hash, const char* name) { return concat(hash.text(), "  ", name, '\n'); }

// Writes a file and returns its line in checksums.
std::string write_part(const fs::path& folder, const char* name, const std::vector<std::string_view>& pieces) {
  Xxh128 hash;
  write_file(folder / name, pieces, &hash);
  return checksum_line(hash, name);
}
std::string write_tensors(const fs::path& folder, const char* name, const TensorFile& file) {
  std::string header;
  return write_part(folder, name, safetensors_pieces(file, header));
}

// Reads a file for the line that it should have in checksums.
std::string line_of(const fs::path& folder, const char* name) {
  const FileReader file(folder / name);
  Xxh128 hash;
  std::vector<char> block(size_t{1} << 18);
  for (uint64_t at = 0; at < file.size(); at += block.size()) {
    block.resize(std::min(block.size(), file.size() - at));
    file.read_at(at, block.data(), block.size());
    hash.add(block.data(), block.size());
  }
  return checksum_line(hash, name);
}

// Error (DataError): anything in it is damaged or missing.
FoundCheckpoint read_checkpoint(const fs::path& folder) {
  const std::string checksums = read_file(folder / checksums_name);
  std::string expected;
  for (const char* name : {json_name, weights_name, optimizer_name}) {
    const std::string line = line_of(folder, name);
    check<DataError>(checksums.find(line) != std::string::npos, folder / name,
                     ": damaged, its hash is not that in checksums");
    expected += line;
  }
  check<DataError>(checksums == expected, folder / checksums_name, ": damaged");
  // Older ones also have "version" and "files", which say nothing that is needed.
  const Json json = read_json(folder / json_name);
  check<DataError>(json.is_object() && json.contains("about"), folder / json_name,
                   ": not that of a checkpoint: expected \"about\"");
  return {folder, std::make_shared<const Json>(json["about"]), read_safetensors(folder / weights_name),
          read_safetensors(folder / optimizer_name), ""};
}

std::optional<FoundCheckpoint> newest_usable(const fs::path& run) {
  std::string damage;
  for (const char* name : {newest, previous}) {
    if (!is_there(run / name)) continue;
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

void save_checkpoint(const fs::path& run, Module& model, const Optimizer& optimizer, const Json& about) {
  const TensorFile weights = tensors_of(model), state = tensors_of(optimizer);
  // Weights that are not finite train no further and answer nothing: they must not replace what can.
  check_finite<DivergedError>(weights, false, "training diverged", "; lower the learning rate");
  check_finite<DivergedError>(state, true, "training diverged", "; lower the learning rate");
  const fs::path folder = run / unfinished;
  try {
    fs::remove_all(folder);
    fs::create_directories(folder);
    const std::string json = Json{{"about", about}}.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
    std::string checksums = write_part(folder, json_name, {json});
    checksums += write_tensors(folder, weights_name, weights);
    checksums += write_tensors(folder, optimizer_name, state);
    write_file(folder / checksums_name, {checksums});
    sync_folder(folder);
    // The newest is missing where a save was stopped between the two renames: then the previous is all there is.
    if (is_there(run / newest)) {
      fs::remove_all(run / previous);
      fs::rename(run / newest, run / previous);
    }
    fs::rename(folder, run / newest);
    sync_folder(run);
  } catch (const fs::filesystem_error& error) {
    throw Error(concat(error.path1(), ": cannot be made, moved or removed: ", error.code()));
  }
}

std::optional<FoundCheckpoint> find_checkpoint(const fs::path& run) {
  // A run that saves meanwhile moves the folders: what seems damaged is looked at once more.
  try {
    auto found = newest_usable(run);
    if (!found || found->damage.empty()) return found;
  } catch (const DataError&) {
  }
  return newest_usable(run);
}

void restore(const FoundCheckpoint& found, Module& model, Optimizer* optimizer) {
  const std::vector<const Tensor*> weights = matched(found.weights, tensors_of(model));
  check_finite<DataError>(found.weights, false, found.weights.where);
  if (optimizer) {
    const std::vector<const Tensor*> parts = matched(found.optimizer, tensors_of(*optimizer));
    check_finite<DataError>(found.optimizer, true, found.optimizer.where);
    auto part = parts.begin();
    OptimizerState state;
    each_part(state, [&part]<class T>(const char*, T& value) { value = *(*part++)->template data<T>(); });
    try {
      optimizer->set_state(state);
    } catch (const DataError& error) {
      throw DataError(concat(found.optimizer.where, ": ", error.what()));
    }
    for (Optimizer::Moment moment : optimizer->moments()) moment.tensor.copy_from(**part++);
  }
  auto weight = weights.begin();
  for (auto& [name, parameter] : named_parameters(model)) parameter.mutable_value().copy_from(**weight++);
}

}  // namespace cairn

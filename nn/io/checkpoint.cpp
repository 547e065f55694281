#include "nn/io/checkpoint.h"

#include <sys/stat.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/dispatch.h"
#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int format_version = 1;
constexpr const char* tensor_files[] = {"weights.safetensors", "optimizer.safetensors"};

// The folders of a run.
struct Folders {
  explicit Folders(const fs::path& run)
      : newest(run / "checkpoint"),
        previous(run / "checkpoint.previous"),
        unfinished(run / "checkpoint.new"),
        damaged(run / "checkpoint.damaged") {}
  fs::path newest, previous, unfinished, damaged;
};

template <class E = Error>
bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  check<E>(status.type() != fs::file_type::none, path, ": cannot be looked at: ", error);
  return fs::exists(status);
}

void move_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  check(!error, from, ": cannot be renamed to ", to, ": ", error);
}

void remove_folder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  check(!error, path, ": cannot be removed: ", error);
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  check(!error, path, ": cannot be made: ", error);
}

// A line of checksums, in the format of xxh128sum.
std::string checksum_line(std::string_view bytes, const std::string& name) {
  return xxh128(bytes) + "  " + name + '\n';
}

// ---- the tensors

// The parts of the optimiser's state, by name.
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

TensorFile on_cpu(TensorFile file) {
  for (auto& [name, tensor] : file.tensors) tensor = tensor.to(Device::cpu);
  return file;
}

TensorFile tensors_of(Module& model) {
  TensorFile file;
  for (const auto& [name, parameter] : named_parameters(model)) file.tensors.emplace_back(name, parameter.value());
  return file;
}

TensorFile tensors_of(const Optimizer& optimizer) {
  TensorFile file;
  const OptimizerState state = optimizer.state();
  each_part(state, [&file]<class T>(const char* name, const T& part) {
    file.tensors.emplace_back(name, Tensor::from(std::vector<T>{part}, {}));
  });
  for (const auto& moment : optimizer.moments()) file.tensors.emplace_back(moment.name, moment.tensor);
  return file;
}

// Error (DataError): `found` has other tensors than `expected`, or of another dtype or shape.
void check_fits(const TensorFile& found, const TensorFile& expected) {
  for (const auto& [name, tensor] : expected.tensors) {
    const Tensor& from = found.at(name);
    check<DataError>(from.dtype() == tensor.dtype() && from.shape() == tensor.shape(), found.where, ": tensor ",
                     in_quotes(name), ": expected ", cairn::name(tensor.dtype()), " of shape ", tensor.shape(),
                     ", got ", cairn::name(from.dtype()), " of shape ", from.shape());
  }
  for (const auto& [name, tensor] : found.tensors)
    check<DataError>(expected.find(name) != nullptr, found.where, ": tensor ", in_quotes(name),
                     " is not part of what is being restored", expected.suggest(name));
}

// Error (E): a number on the CPU is not finite; the message begins with `where` and ends with `advice`. Of an
// optimiser's `state.` nothing is asked: the norm of a gradient that was skipped may be infinite.
template <class E>
void check_finite(const TensorFile& file, bool is_optimizer, const std::string& where, const char* advice = "") {
  for (const auto& each : file.tensors) {
    const std::string& name = each.first;
    const Tensor& tensor = each.second;
    if (!is_floating(tensor.dtype()) || (is_optimizer && name.starts_with("state."))) continue;
    visit_floating(tensor.dtype(), "checkpoint", [&]<class T>(T) {
      const T* data = tensor.data<T>();
      for (int64_t i = 0; i < tensor.elements(); ++i)
        check<E>(std::isfinite(double(Accum<T>(data[i]))), where, ": tensor ", in_quotes(name), ": element ", i, " of ",
                 tensor.elements(), " is not finite", advice);
    });
  }
}

// ---- one folder

// Error (DataError): anything in it is damaged or missing, of another version, or not finite.
FoundCheckpoint read_checkpoint(const fs::path& folder) {
  const std::string checksums = read_file(folder / "checksums");
  const fs::path json_path = folder / "checkpoint.json";
  const std::string where = json_path.string(), text = read_file(json_path);
  std::string computed = checksum_line(text, "checkpoint.json");
  check<DataError>(checksums.compare(0, computed.size(), computed) == 0, where,
                   ": damaged, its hash is not that in checksums");

  Json json = parse_json(text, where);
  FoundCheckpoint found;
  found.folder = folder;
  // The hash is right, so what is missing was never there.
  try {
    const Json& version = json.at("version");
    check<DataError>(version == format_version, where, ": format version ", version.dump(), ", expected ",
                     format_version, "; it was made by another version of Cairn");
    TensorFile* targets[] = {&found.weights, &found.optimizer};
    for (size_t i = 0; i < std::size(tensor_files); ++i) {
      const fs::path path = folder / tensor_files[i];
      const std::string bytes = read_file(path);
      const Json& file = json.at("files").at(tensor_files[i]);
      const auto size = file.at("bytes").get<uint64_t>();
      check<DataError>(bytes.size() == size, path, ": damaged, ", bytes.size(), " bytes, expected ", size);
      check<DataError>(xxh128(bytes) == file.at("xxh128").get<std::string>(), path,
                       ": damaged, its hash is not that in checkpoint.json");
      computed += checksum_line(bytes, tensor_files[i]);
      *targets[i] = parse_safetensors(bytes, path.string());
    }
    found.about = std::make_shared<const Json>(std::move(json.at("about")));
  } catch (const Json::exception&) {
    throw DataError(where + ": not a checkpoint of this version: expected version, files and about");
  }
  check<DataError>(checksums == computed, folder / "checksums", ": damaged");
  check_finite<DataError>(found.weights, false, found.weights.where);
  check_finite<DataError>(found.optimizer, true, found.optimizer.where);
  return found;
}

// The checkpoint in a folder, or what is wrong with it.
std::optional<FoundCheckpoint> try_checkpoint(const fs::path& folder, std::vector<std::string>& wrong) try {
  return read_checkpoint(folder);
} catch (const DataError& error) {
  wrong.emplace_back(error.what());
  return std::nullopt;
}

// A save that ended between its two renames left no newest checkpoint, but a complete new one.
void finish_rotation(const Folders& folders) {
  if (is_there(folders.newest) || !is_there(folders.unfinished)) return;
  std::vector<std::string> wrong;
  if (try_checkpoint(folders.unfinished, wrong)) move_folder(folders.unfinished, folders.newest);
}

void write_checkpoint(const fs::path& folder, const TensorFile& weights, const TensorFile& optimizer,
                      const Json& about) {
  Json json{{"version", format_version}, {"files", Json::object()}, {"about", about}};
  std::string checksums;
  const auto write_tensors = [&](const char* name, const TensorFile& file) {
    const std::string bytes = safetensors_bytes(file);
    write_file(folder / name, {bytes});
    json["files"][name] = {{"bytes", bytes.size()}, {"xxh128", xxh128(bytes)}};
    checksums += checksum_line(bytes, name);
  };
  write_tensors(tensor_files[0], weights);
  write_tensors(tensor_files[1], optimizer);
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  parse_json(text, "checkpoint");  // what could not be read again, nested too deep, must not replace what can
  write_file(folder / "checkpoint.json", {text});
  write_file(folder / "checksums", {checksum_line(text, "checkpoint.json"), checksums});
  sync_folder(folder);
}

// The newest usable one as things stand.
std::optional<FoundCheckpoint> look_for_checkpoint(const Folders& folders) {
  std::vector<std::string> wrong;
  bool any = false;
  for (const fs::path& folder : {folders.newest, folders.unfinished, folders.previous}) {
    if (!is_there<DataError>(folder)) continue;
    // A new one that is not complete is what a save left that was stopped, and nothing that was lost.
    std::vector<std::string> unfinished;
    const bool is_unfinished = folder == folders.unfinished;
    any = any || !is_unfinished;
    if (auto found = try_checkpoint(folder, is_unfinished ? unfinished : wrong)) {
      found->passed_over = std::move(wrong);
      return found;
    }
  }
  if (!any) return std::nullopt;
  std::string all;
  for (const std::string& line : wrong) all += (all.empty() ? "" : "; ") + line;
  throw DataError(concat(folders.newest.parent_path().string(), ": no usable checkpoint: ", all));
}

// Which folder it is that has this name now: another save, another identity.
std::array<int64_t, 4> identity(const fs::path& folder) {
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return {};
  return {int64_t(status.st_dev), int64_t(status.st_ino), status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
}

}  // namespace

void save_checkpoint(const fs::path& run, Module& model, const Optimizer& optimizer, const Json& about) {
  check(about.is_object(), "checkpoint: expected `about` to be an object, got ", about.type_name());
  const Folders folders(run);
  // Weights that are not finite train no further and answer nothing: they must not replace what can.
  const TensorFile weights = on_cpu(tensors_of(model)), state = on_cpu(tensors_of(optimizer));
  check_finite<DivergedError>(weights, false, "training diverged", "; lower the learning rate");
  check_finite<DivergedError>(state, true, "training diverged", "; lower the learning rate");
  make_folder(run);
  finish_rotation(folders);
  remove_folder(folders.unfinished);
  try {
    make_folder(folders.unfinished);
    write_checkpoint(folders.unfinished, weights, state, about);
    sync_folder(run);
  } catch (...) {
    std::error_code ignored;  // what went wrong first is what matters
    fs::remove_all(folders.unfinished, ignored);
    throw;
  }
  // From here on two folders are complete: the new one, and the newest until then under either of its names.
  if (is_there(folders.newest)) {
    remove_folder(folders.previous);
    move_folder(folders.newest, folders.previous);
  }
  move_folder(folders.unfinished, folders.newest);
  sync_folder(run);
}

std::optional<FoundCheckpoint> find_checkpoint(const fs::path& run) {
  // A run that saves meanwhile moves the folders under us: then what seems damaged or missing is not, and we look
  // again.
  const Folders folders(run);
  for (int look = 0;; ++look) {
    const auto before = identity(folders.newest);
    const bool last = look == 100;
    try {
      auto found = look_for_checkpoint(folders);
      const bool newest = found && found->passed_over.empty();
      if (newest || last || identity(folders.newest) == before) return found;
    } catch (const DataError&) {
      if (last || identity(folders.newest) == before) throw;
    }
  }
}

void restore(const FoundCheckpoint& found, Module& model, Optimizer* optimizer) {
  const TensorFile weights = tensors_of(model);
  check_fits(found.weights, weights);
  check_finite<DataError>(found.weights, false, found.weights.where);
  if (optimizer) {
    const TensorFile expected = tensors_of(*optimizer);
    check_fits(found.optimizer, expected);
    OptimizerState state;
    each_part(state, [&]<class T>(const char* name, T& part) { part = *found.optimizer.at(name).data<T>(); });
    const auto moments = optimizer->moments();
    check_finite<DataError>(found.optimizer, true, found.optimizer.where);
    try {
      optimizer->set_state(state);
    } catch (const DataError& error) {
      throw DataError(found.optimizer.where + ": " + error.what());
    }
    for (Optimizer::Moment moment : moments) moment.tensor.copy_from(found.optimizer.at(moment.name));
  }
  for (auto& [name, parameter] : named_parameters(model)) parameter.mutable_value().copy_from(found.weights.at(name));
}

void adopt(FoundCheckpoint& found) {
  const fs::path run = found.folder.parent_path();
  const Folders folders(run);
  if (found.folder == folders.newest) return;
  if (is_there(folders.newest)) {
    remove_folder(folders.damaged);
    move_folder(folders.newest, folders.damaged);
  }
  move_folder(found.folder, folders.newest);
  sync_folder(run);
  found.folder = folders.newest;
}

}  // namespace cairn

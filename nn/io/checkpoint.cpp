#include "nn/io/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "core/dispatch.h"
#include "nn/io/file.h"
#include "nn/io/finite.h"
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
std::string checksum_line(const std::string& hash, const std::string& name) { return hash + "  " + name + '\n'; }

// ---- the tensors

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

TensorFile on_cpu(TensorFile file) {
  for (auto& [name, tensor] : file.tensors)
    if (tensor.device() != Device::cpu) tensor = tensor.to(Device::cpu);
  return file;
}

TensorFile tensors_of(Module& model) {
  TensorFile file;
  auto parameters = named_parameters(model);
  file.tensors.reserve(parameters.size());
  for (auto& [name, parameter] : parameters) file.tensors.emplace_back(std::move(name), parameter.value());
  return file;
}

TensorFile tensors_of(const Optimizer& optimizer) {
  TensorFile file;
  const OptimizerState state = optimizer.state();
  each_part(state, [&file]<class T>(const char* name, const T& part) {
    file.tensors.emplace_back(name, Tensor::from(std::vector<T>{part}, {}));
  });
  auto moments = optimizer.moments();
  file.tensors.reserve(file.tensors.size() + moments.size());
  for (auto& moment : moments) file.tensors.emplace_back(std::move(moment.name), std::move(moment.tensor));
  return file;
}

// The tensors of a file by their names, which are mostly asked for in their order. Of a name that is not there find()
// returns null, and at() throws (DataError).
class ByName {
 public:
  explicit ByName(const TensorFile& file) : file_(file) {}
  const Tensor* find(std::string_view name) {
    const auto& tensors = file_.tensors;
    if (next_ < tensors.size() && tensors[next_].first == name) return &tensors[next_++].second;
    if (numbers_.empty())
      for (size_t i = 0; i < tensors.size(); ++i) numbers_.emplace(tensors[i].first, i);
    const auto found = numbers_.find(name);
    if (found == numbers_.end()) return nullptr;
    next_ = found->second + 1;
    return &tensors[found->second].second;
  }
  const Tensor& at(std::string_view name) {
    const Tensor* found = find(name);
    return found ? *found : file_.at(name);
  }

 private:
  const TensorFile& file_;
  size_t next_ = 0;
  std::unordered_map<std::string_view, size_t> numbers_;  // empty until a name is out of order
};

// Error (DataError): `found` has other tensors than `expected`, or of another dtype or shape.
void check_fits(const TensorFile& found, const TensorFile& expected) {
  ByName by_name(found), expected_by_name(expected);
  for (const auto& [name, tensor] : expected.tensors) {
    const Tensor& from = by_name.at(name);
    check<DataError>(from.dtype() == tensor.dtype() && from.shape() == tensor.shape(), found.where, ": tensor ",
                     in_quotes(name), ": expected ", cairn::name(tensor.dtype()), " of shape ", tensor.shape(),
                     ", got ", cairn::name(from.dtype()), " of shape ", from.shape());
  }
  for (const auto& [name, tensor] : found.tensors)
    check<DataError>(expected_by_name.find(name) != nullptr, found.where, ": tensor ", in_quotes(name),
                     " is not part of what is being restored", expected.suggest(name));
}

// Error (E): a number on the CPU is not finite; the message begins with `where` and ends with `advice`. Of an
// optimizer's `state.` nothing is asked: the norm of a gradient that was skipped may be infinite.
template <class E>
void check_finite(const TensorFile& file, bool is_optimizer, const std::string& where, const char* advice = "") {
  for (const auto& [name, tensor] : file.tensors)
    if (!(is_optimizer && name.starts_with("state."))) check_finite<E>(tensor, name, where, advice);
}

// ---- one folder

// A file of tensors; `entry` is what checkpoint.json says of it. Adds its line to `computed`. Error (DataError): it is
// damaged.
TensorFile read_tensors(const fs::path& path, const Json& entry, bool values, std::string& computed) {
  FileReader reader(path);
  const auto size = entry.at("bytes").get<uint64_t>();
  check<DataError>(reader.size() == size, path, ": damaged, ", reader.size(), " bytes, expected ", size);
  Xxh128 hash;
  uint64_t left = size;
  // Each part goes to the hash while it is in the processor's cache.
  const auto read = [&](void* to, size_t bytes) {
    for (char* next = static_cast<char*>(to); bytes > 0;) {
      const size_t part = std::min(bytes, size_t{1} << 18);
      reader.read(next, part);
      hash.add(next, part);
      next += part, bytes -= part, left -= part;
    }
  };
  TensorFile file;
  std::exception_ptr wrong;
  try {
    file = parse_safetensors(size, read, path.string(), values);
  } catch (const DataError&) {
    wrong = std::current_exception();
    for (char rest[4096]; left > 0;) read(rest, size_t(std::min<uint64_t>(left, sizeof rest)));
  }
  const std::string found = hash.text();
  check<DataError>(found == entry.at("xxh128").get<std::string>(), path,
                   ": damaged, its hash is not that in checkpoint.json");
  if (wrong) std::rethrow_exception(wrong);
  computed += checksum_line(found, path.filename().string());
  return file;
}

// Error (DataError): anything in it is damaged or missing, of another version, or not finite. Without `values` the
// tensors are left out; the hashes say that their numbers are what was written.
FoundCheckpoint read_checkpoint(const fs::path& folder, bool values = true) {
  const std::string checksums = read_file(folder / "checksums");
  const fs::path json_path = folder / "checkpoint.json";
  const std::string where = json_path.string(), text = read_file(json_path);
  std::string computed = checksum_line(xxh128(text), "checkpoint.json");
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
    for (size_t i = 0; i < std::size(tensor_files); ++i)
      *targets[i] = read_tensors(folder / tensor_files[i], json.at("files").at(tensor_files[i]), values, computed);
    found.about = std::make_shared<const Json>(std::move(json.at("about")));
  } catch (const Json::exception&) {
    throw DataError(where + ": not a checkpoint of this version: expected version, files and about");
  }
  check<DataError>(checksums == computed, folder / "checksums", ": damaged");
  if (!values) return found;
  check_finite<DataError>(found.weights, false, found.weights.where);
  check_finite<DataError>(found.optimizer, true, found.optimizer.where);
  return found;
}

// The checkpoint in a folder, or what is wrong with it.
std::optional<FoundCheckpoint> try_checkpoint(const fs::path& folder, std::vector<std::string>& wrong,
                                              bool values = true) try {
  return read_checkpoint(folder, values);
} catch (const DataError& error) {
  wrong.emplace_back(error.what());
  return std::nullopt;
}

// Renames the newest to the previous, and the new one to the newest. Wherever it is stopped, the new checkpoint is
// complete, and the old one is in checkpoint/ or checkpoint.previous/.
void rotate(const Folders& folders) {
  if (is_there(folders.newest)) {
    remove_folder(folders.previous);
    move_folder(folders.newest, folders.previous);
  }
  move_folder(folders.unfinished, folders.newest);
  sync_folder(folders.newest.parent_path());
}

// If a save stopped after its last write, checkpoint.new is complete: it becomes the newest. It cannot be older,
// because each save removes that folder first.
void finish_rotation(const Folders& folders) {
  std::vector<std::string> wrong;
  if (is_there(folders.unfinished) && try_checkpoint(folders.unfinished, wrong, false)) rotate(folders);
}

void write_checkpoint(const fs::path& folder, const TensorFile& weights, const TensorFile& optimizer,
                      const Json& about) {
  Json json{{"version", format_version}, {"files", Json::object()}, {"about", about}};
  std::string checksums;
  const auto write_tensors = [&](const char* name, const TensorFile& file) {
    const std::string header = safetensors_header(file);
    std::vector<std::string_view> pieces{header};
    pieces.reserve(1 + file.tensors.size());
    for (const auto& each : file.tensors)
      pieces.emplace_back(static_cast<const char*>(each.second.raw()), each.second.bytes());
    size_t bytes = 0;
    for (const std::string_view piece : pieces) bytes += piece.size();
    Xxh128 hash;
    write_file(folder / name, pieces, &hash);
    json["files"][name] = {{"bytes", bytes}, {"xxh128", hash.text()}};
    checksums += checksum_line(hash.text(), name);
  };
  write_tensors(tensor_files[0], weights);
  write_tensors(tensor_files[1], optimizer);
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  write_file(folder / "checkpoint.json", {text});
  write_file(folder / "checksums", {checksum_line(xxh128(text), "checkpoint.json"), checksums});
  sync_folder(folder);
}

// The newest usable one as things stand.
std::optional<FoundCheckpoint> look_for_checkpoint(const Folders& folders) {
  std::vector<std::string> wrong;
  bool any = false;
  for (const fs::path& folder : {folders.unfinished, folders.newest, folders.previous}) {
    if (!is_there<DataError>(folder)) continue;
    // An incomplete checkpoint.new is only a save that was stopped: its errors are not reported.
    std::vector<std::string> not_reported;
    const bool is_unfinished = folder == folders.unfinished;
    any = any || !is_unfinished;
    if (auto found = try_checkpoint(folder, is_unfinished ? not_reported : wrong)) {
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
    // What cannot be read again must not replace what can.
    try {
      read_checkpoint(folders.unfinished, false);
    } catch (const DataError& error) {
      throw Error(concat("checkpoint: what was saved cannot be read back: ", error.what()));
    }
  } catch (...) {
    std::error_code ignored;  // what went wrong first is what matters
    fs::remove_all(folders.unfinished, ignored);
    throw;
  }
  rotate(folders);
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
      const bool newest = found && found->passed_over.empty() && is_there(found->folder);
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
    ByName by_name(found.optimizer);
    const TensorFile expected = tensors_of(*optimizer);
    check_fits(found.optimizer, expected);
    OptimizerState state;
    each_part(state, [&]<class T>(const char* name, T& part) { part = *by_name.at(name).data<T>(); });
    const auto moments = optimizer->moments();
    check_finite<DataError>(found.optimizer, true, found.optimizer.where);
    try {
      optimizer->set_state(state);
    } catch (const DataError& error) {
      throw DataError(found.optimizer.where + ": " + error.what());
    }
    for (Optimizer::Moment moment : moments) moment.tensor.copy_from(by_name.at(moment.name));
  }
  ByName by_name(found.weights);
  for (auto& [name, parameter] : named_parameters(model)) parameter.mutable_value().copy_from(by_name.at(name));
}

void adopt(FoundCheckpoint& found) {
  const fs::path run = found.folder.parent_path();
  const Folders folders(run);
  if (found.folder == folders.newest) return;
  if (found.folder == folders.unfinished) {
    rotate(folders);
  } else {
    if (is_there(folders.newest)) {
      remove_folder(folders.damaged);
      move_folder(folders.newest, folders.damaged);
    }
    move_folder(found.folder, folders.newest);
    sync_folder(run);
  }
  found.folder = folders.newest;
}

}  // namespace cairn

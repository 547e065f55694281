#pragma once
// A program's commands, and what all of them can be told.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/settings.h"
#include "core/device.h"
#include "core/dtype.h"

namespace cairn {

class Communicator;

// A command. All that can be set is a member with its default, which fields() declares. What counts, from the weakest
// to the strongest: the default, what --quick sets, the run that is continued, --config FILE, --set key=value, the
// option.
class Command {
 public:
  using Json = nlohmann::ordered_json;

  // Without a name it is the program itself. The footer stands at the end of its help.
  Command(const char* name, const char* summary, std::string footer);
  virtual ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  virtual void fields(SettingFields& f) = 0;  // its own; --json --quiet --config --set are everybody's
  virtual void run(Communicator& ranks) = 0;  // once the settings are taken

  // Adds it, or itself, to a program, which runs on these processes.
  void define(CLI::App& app, Communicator& ranks);

 protected:
  // Continues the run in the folder --out. Errors: as read_run(); UsageError: the user gave something that a run keeps
  // another value, names the keys.
  void continue_run(const std::filesystem::path& folder);
  // Takes the settings of a configuration alone: those of the first of several processes.
  void follow(const Json& configuration);
  // Has the user set it?
  bool given(const std::string& key) const;
  // For a run's config.json; a valid --config.
  Json config() const;
  // Prints the result: the text, or with --json the object on the last line.
  void tell(const Json& result, const std::string& text) const;

  bool json = false, quiet = false;
  bool many_processes = false;  // may it be started by mpirun?

 private:
  const char* name_;
  const char* summary_;
  std::string footer_, config_file_;
  std::vector<std::string> sets_;
  std::unique_ptr<SettingFields> fields_;
  std::unique_ptr<Json> given_;
};

// Takes the settings of the run in the folder that `option` names, and returns them. Error (DataError): there is no
// run, or its settings are not valid.
nlohmann::ordered_json read_run(SettingFields& fields, const char* option, const std::filesystem::path& folder);

// Where a program computes, and the element type of its activations.
struct Place {
  Device device = Device::cpu;
  DType activations = DType::float32;
};

// Settings of every program that computes.
struct ComputeSettings {
  std::optional<Device> device;  // none: CUDA where there is a GPU that this build has code for, never the emulated one
  enum class Precision { float32, tf32, bf16 } precision = Precision::float32;
  int64_t threads = 0;  // 0: as many as the machine gives this process
  int64_t seed = 1;

  void fields(SettingFields& f);
  // Sets the number of threads and how float32 is multiplied. Errors: DeviceError: built without CUDA, or the GPU
  // cannot be used; UsageError: a precision that the CPU does not have.
  Place apply() const;
};

// Declares --threads; 0 stands for its default.
void threads_field(SettingFields& f, int64_t& threads);

}  // namespace cairn

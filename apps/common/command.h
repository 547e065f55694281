#pragma once
// A program's commands, and the settings that all of them have.
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

// A command. Each setting is a member that holds its default and that fields() declares. From the weakest source of a
// value to the strongest: the default, --quick, the run that is continued, --config FILE, --set key=value, the option.
class Command {
 public:
  using Json = nlohmann::ordered_json;

  // An empty name: the program has no commands, and this is its only action. The footer ends the help text.
  Command(const char* name, const char* summary, std::string footer);
  virtual ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  virtual void fields(SettingFields& f) = 0;  // its own; all have --json --quiet --config --set
  virtual void run(Communicator& ranks) = 0;  // when all settings have their values

  // Adds the command to a program, which runs on these processes.
  void define(CLI::App& app, Communicator& ranks);

 protected:
  // Takes the settings of the run in the folder --out. Errors: as read_run(); UsageError: the user gave another value
  // to settings that a run keeps; the message names them.
  void continue_run(const std::filesystem::path& folder);
  // Takes all settings from a configuration: with several processes, that of rank 0.
  void follow(const Json& configuration);
  // The settings for a run's config.json, which is a valid --config.
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

// Takes the settings of the run in the folder, and returns them. `option` begins the message. Error (DataError): there
// is no run, or its settings are not valid.
nlohmann::ordered_json read_run(SettingFields& fields, const char* option, const std::filesystem::path& folder);

// Where a program computes, and the element type of its activations.
struct Place {
  Device device = Device::cpu;
  DType activations = DType::float32;
};

// Settings of every program that computes.
struct ComputeSettings {
  std::optional<Device> device;  // none: CUDA if this build can use a GPU; never the emulator
  enum class Precision { float32, tf32, bf16 } precision = Precision::float32;
  int64_t threads = 0;  // 0: all that this process may use
  int64_t seed = 1;

  void fields(SettingFields& f);
  // Sets the number of threads and the precision of float32 matrix products. Errors: DeviceError: built without CUDA,
  // or the GPU cannot be used; UsageError: a precision that the CPU does not have.
  Place apply() const;
};

// Declares --threads; 0 stands for its default.
void threads_field(SettingFields& f, int64_t& threads);

}  // namespace cairn

#pragma once
// Settings. One declaration gives a setting its option on the command line, its line in --help, its check, its key in
// configurations (the name with underscores), and the rule whether a resume may change it.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "nn/io/json.h"
#include "nn/module.h"

namespace CLI {
class App;
}

namespace cairn {

struct Setting;  // one of them (settings.cpp)

// CLI11 makes a list of a word [a, b]. A NUL at its end, which no user can give, prevents that.
std::string for_cli11(std::string word);
std::string as_given(std::string word);  // without it

// fixed: in config.json, and a resume must not change it. may_change: a resume may.
enum class Keep { fixed, may_change, not_in_config };
// What a text is: any text, the name of a file or of a folder, or what a program says.
struct Text {
  const char* type;                                   // of the value, in --help
  bool is_path = false;                               // in config.json it works from any folder
  void (*check)(const std::string& value) = nullptr;  // of all but the default. Error (UsageError): it is not valid
  static const Text any, file, folder;
};

// The range of a number.
template <class T>
struct Between {
  T low, high;
};
// The names of an enumeration's values.
template <class E>
using Choices = std::vector<std::pair<const char*, E>>;

// Receives the settings, as nn's Fields receives parameters. A variable holds its default; it must outlive this object.
class SettingFields {
 public:
  // With a command, each setting becomes an option of it. Without one, settings come from configurations alone.
  explicit SettingFields(CLI::App* command = nullptr);
  ~SettingFields();
  SettingFields(const SettingFields&) = delete;
  SettingFields& operator=(const SettingFields&) = delete;

  void operator()(const char* name, int64_t& value, Between<int64_t> range, const std::string& help,
                  Keep keep = Keep::fixed);
  void operator()(const char* name, double& value, Between<double> range, const std::string& help,
                  Keep keep = Keep::fixed);
  void operator()(const char* name, bool& value, const std::string& help, Keep keep = Keep::fixed);
  void operator()(const char* name, std::string& value, Text kind, const std::string& help, Keep keep = Keep::fixed);
  template <class E>
  void operator()(const char* name, E& value, const Choices<E>& choices, const std::string& help,
                  Keep keep = Keep::fixed) {
    std::vector<std::string> names;
    std::string initial;
    for (const auto& [word, meaning] : choices) {
      names.push_back(word);
      if (meaning == value) initial = word;
    }
    const auto choose = [&value, choices](const std::string& word) {
      for (const auto& choice : choices)
        if (choice.first == word) value = choice.second;
    };
    add_choice(name, names, initial, choose, help, keep);
  }
  // Takes all arguments that are not options. They are not in config.json.
  void words(const char* name, std::vector<std::string>& values, const std::string& help);
  // The defaults under --quick, by key. The help of --quick lists them.
  void quick(const Json& values);

  // The configuration, if it is valid. `where` begins a message. Error (UsageError): it is not an object; a key is
  // unknown (the message suggests a similar one); a value has another type or is out of range.
  Json checked(const Json& configuration, const std::string& where) const;
  // "key=value" as an object. Error (UsageError) as checked().
  Json set(const std::string& text) const;
  // The values of the options on the command line. Error (UsageError) as checked().
  Json options() const;
  // Gives every setting its value in `values`, or its default (with --quick, that of --quick).
  void assign(const Json& values);
  // All settings except those of Keep::not_in_config: a valid configuration, in which paths work from any folder.
  Json config() const;
  // Error (UsageError): settings in `given` differ from a run's and must not. The message names the folder of the run
  // and these settings. Both have passed checked().
  void check_kept(const Json& given, const Json& of_run, const std::filesystem::path& run) const;

 private:
  void add(const char* name, const char* type, const std::string& help, Keep keep, Setting setting);
  void add_choice(const char* name, const std::vector<std::string>& names, const std::string& initial,
                  const std::function<void(const std::string&)>& choose, const std::string& help, Keep keep);
  // Error (UsageError): configurations have no such key; the message suggests a similar one.
  const Setting& known(const std::string& key, const std::string& where) const;

  CLI::App* command_;
  std::vector<std::unique_ptr<Setting>> settings_;
  std::unique_ptr<Json> quick_;
};

// Takes the settings of the run in the folder, and returns them. `option` begins the message. Error (DataError): there
// is no run, or its settings are not valid.
Json read_run(SettingFields& fields, const char* option, const std::filesystem::path& folder);

// "512,1024": whole numbers from 1 to `maximum`, each larger than the one before. Error (UsageError): otherwise.
std::vector<int64_t> rising_integers(const std::string& list, int64_t maximum);

// Calls f. The message of a UsageError that it throws then begins with the name of this option.
template <class F>
void name_in_errors(const std::string& option, F&& f) try {
  f();
} catch (const UsageError& error) {
  throw UsageError(concat(option, ": ", error.what()));
}

// Settings of every program that computes.
struct ComputeSettings {
  std::optional<Device> device;  // none: CUDA if this build can use a GPU; never the emulator
  enum class Precision { float32, tf32, bf16 } precision = Precision::float32;
  int64_t threads = 0;  // 0: all that this process may use
  int64_t seed = 1;

  void fields(SettingFields& f);
  // Sets the number of threads and the precision of float32 matrix products. Errors: DeviceError: built without CUDA,
  // or the GPU cannot be used; UsageError: a precision that the CPU does not have.
  DeviceAndDType apply() const;
};

// Declare --threads, where 0 stands for its default, and --device.
void threads_field(SettingFields& f, int64_t& threads);
void device_field(SettingFields& f, std::optional<Device>& device);

}  // namespace cairn

#pragma once
// A program's settings, each declared once: that makes the option on the command line, its line in --help, its check,
// its key in configuration files (the name with underscores) and its place in a run's config.json.
//
// What counts, from the weakest to the strongest: the default, what a flag such as --quick presets, --config FILE,
// --set key=value, the option itself.
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/settings.h"
#include "core/error.h"

namespace CLI {
class App;
}

namespace cairn {

// May a run be resumed with another value of the setting? "Run" belongs to what a run is; "free" may change.
enum class Belongs { to_the_run, free };

// What f refuses (UsageError) stands in a run's own file: DataError.
template <class F>
void of_a_run(F&& f) try {
  f();
} catch (const UsageError& error) {
  throw DataError(concat(error.what(), "; was it made by another version of Cairn?"));
}

class Options {
 public:
  using Json = nlohmann::ordered_json;

  // With a command, each setting becomes an option of it; without, only configurations are read.
  explicit Options(CLI::App* command = nullptr);
  ~Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  // Settings. `value` holds the default, and after assign() what was set; it outlives this object's use.
  void integer(const std::string& name, int64_t& value, int64_t minimum, int64_t maximum, const std::string& help,
               Belongs belongs = Belongs::to_the_run);
  void real(const std::string& name, double& value, double minimum, double maximum, const std::string& help);
  void choice(const std::string& name, std::string& value, const std::vector<std::string>& choices,
              const std::string& help, Belongs belongs = Belongs::to_the_run);
  void text(const std::string& name, std::string& value, const std::string& help,
            Belongs belongs = Belongs::to_the_run);
  void flag(const std::string& name, bool& value, const std::string& help);
  // What the flag sets where nothing else does: options and values as one would write them, which its help lists.
  void presets(const std::string& flag, std::vector<std::pair<std::string, std::string>> values);
  // Keys of settings that older versions had, each with the default that it had: an object. A configuration may hold
  // such a key with that value, which changes nothing; another value is refused by the key's name. No option has it.
  void withdrawn(const Json& values);

  // Adds --config and --set.
  void add_configuration_options();
  // Reads what the user gave: --config, --set and options. Errors (UsageError): a file that cannot be read or is not a
  // JSON object, unknown keys (says what was close), wrong types, values out of range.
  void read();
  // Reads a configuration alone; `where` names it in errors (UsageError).
  void load(const Json& configuration, const std::string& where);
  // Continues a run: its configuration counts wherever the user gave nothing, and a key that it lacks has the default.
  // Errors: what is wrong in it (DataError); the user gave something that belongs to the run another value, names the
  // keys (UsageError).
  void continue_run(const Json& configuration, const std::string& where);
  // Has anything been given at all, here or by the run that is continued?
  bool any_given() const;
  // Has the setting of this key?
  bool given(const std::string& key) const;
  // Writes the settings into their variables.
  void assign();
  // All settings as they are now; a valid --config. A number below its range stands for "not set" and is left out.
  Json configuration() const;

 private:
  struct Setting;
  template <class T>
  Setting& add(const std::string& name, T& value, const std::string& help, Belongs belongs, std::string expected,
               std::function<bool(const Json&)> valid);
  Setting* find(const std::string& key) const;
  // Error (UsageError): there is none, says what was close.
  Setting& known(const std::string& key, const std::string& where) const;

  CLI::App* command_;
  std::vector<std::unique_ptr<Setting>> settings_;
  std::unique_ptr<const Json> withdrawn_;
  std::string config_file_;
  std::vector<std::string> sets_;
};

}  // namespace cairn

#pragma once
// What can be set, each declared once. That makes the option on the command line, its line in --help, its check, its
// key in configurations (the name with underscores), its place in a run's config.json, and the rule of what a resume
// may change.
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace CLI {
class App;
}

namespace cairn {

struct Setting;  // one of them (settings.cpp)

// In config.json: never another value in a resumed run; a resume may change it. no: not in config.json.
enum class Keep { fixed, may_change, no };
// What a text is: a file or folder has a name; a variant, or several with a comma between, is one of attention.
enum class Text { any, file, folder, variant, variants };

// The values that a number may have. A default outside of them stands for "not set": it is not in config.json.
template <class T>
struct Between {
  T low, high;
};
// The names of an enumeration's values.
template <class E>
using Choices = std::vector<std::pair<const char*, E>>;

// Receives what can be set, as nn's Fields receives parameters. A value holds its default; it outlives this object.
class SettingFields {
 public:
  using Json = nlohmann::ordered_json;

  // With a command each setting becomes an option of it; without, only configurations are read.
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
  // All words that are no options. They are not in config.json.
  void words(const char* name, std::vector<std::string>& values, const std::string& help);
  // What --quick sets where nothing else does, by key; its help lists it.
  void quick(const Json& values);
  // Keys of older versions. A configuration may have such a key with this value, its old default, which changes
  // nothing; another value is refused by the key's name.
  void withdrawn(const Json& values);

  // A configuration without withdrawn keys; `where` begins a message. Error (UsageError): no object, an unknown key
  // (says what was close), a value of another type or out of range.
  Json checked(const Json& configuration, const std::string& where) const;
  // The value of "key=value", as an object. Error (UsageError) as checked().
  Json set(const std::string& text) const;
  // The values that options on the command line have. Error (UsageError) as checked().
  Json options() const;
  // Gives every setting its value in `values`, or its default; what --quick sets counts before the default.
  void assign(const Json& values);
  // All settings as they were assigned, but those of Keep::no: a valid configuration.
  Json config() const;
  // What of `given` differs from a run's configuration and may not, both checked: "length (3 in the run, 4 now)".
  std::string differences(const Json& given, const Json& of_run) const;

 private:
  void add(const char* name, const char* type, const std::string& help, Keep keep, Setting setting);
  void add_choice(const char* name, const std::vector<std::string>& names, const std::string& initial,
                  const std::function<void(const std::string&)>& choose, const std::string& help, Keep keep);
  // Error (UsageError): there is none in configurations, says what was close.
  const Setting& known(const std::string& key, const std::string& where) const;

  CLI::App* command_;
  std::vector<std::unique_ptr<Setting>> settings_;
  std::unique_ptr<Json> quick_, withdrawn_;
};

// "full,i-clustered-15:topk=16,bits=32" is two specifications: a comma before option=value belongs to the one before.
std::vector<std::string> split_specs(const std::string& list);

// "512,1024": whole numbers from 1 to `maximum`, each larger than the one before. Error (UsageError): it is not that.
std::vector<int64_t> rising_integers(const std::string& list, int64_t maximum);

// Calls f. The message of a UsageError that it throws then begins with the name of this option.
template <class F>
void name_in_errors(const std::string& option, F&& f) try {
  f();
} catch (const UsageError& error) {
  throw UsageError(concat(option, ": ", error.what()));
}

}  // namespace cairn

#include "apps/common/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <system_error>
#include <type_traits>
#include <utility>

#include "apps/common/program.h"
#include "core/did_you_mean.h"
#include "core/error.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// A value as it stands in a message, cut where it is long.
struct Shown {
  const nlohmann::ordered_json& value;
};
void append(std::string& text, const Shown& shown) {
  std::string value = shown.value.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  text += value.size() > 60 ? value.substr(0, 57) + "..." : value;
}

// Text from outside as programs quote it; in_quotes has JSON's.
struct QuotedText {
  const std::string& text;
};
void append(std::string& text, const QuotedText& quoted) {
  std::string result = concat(in_quotes(quoted.text));
  result.front() = result[result.rfind('"')] = '\'';
  text += result;
}

// A text as a T; null: it is not one. Numbers are decimal, in every locale the same. (CLI11's own conversions take
// hexadecimal and octal numbers, infinity and the locale's point too.)
template <class T>
nlohmann::ordered_json from_text(const std::string& text) {
  if constexpr (std::is_same_v<T, std::string>) return text;
  if constexpr (std::is_same_v<T, bool>)
    return text == "true" || text == "false" ? nlohmann::ordered_json(text == "true") : nlohmann::ordered_json();
  if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
    T number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
    return nullptr;
  }
}

}  // namespace

struct Options::Setting {
  std::string key;  // "head_size"
  Belongs belongs;
  std::string expected;                          // "a whole number from 1 to 1024"
  std::function<bool(const Json&)> valid;        // never of null
  std::function<Json(const std::string&)> read;  // null: the text is none
  std::function<void(const Json&)> assign;
  std::function<Json()> current;                               // null: not set
  Json initial;                                                // the default
  std::vector<std::pair<std::string, std::string>> presets{};  // what a flag sets
  CLI::Option* option = nullptr;
  Json given{};  // null: not given

  // The value of a text from the command line. Error (UsageError): not a valid one.
  Json value_of(const std::string& text, const std::string& where) const {
    Json value = read(text);
    check<UsageError>(valid(value), where, ": expected ", expected, ", got ", QuotedText{text});
    return value;
  }
};

Options::Options(CLI::App* command) : command_(command), withdrawn_(new Json(Json::object())) {}
Options::~Options() = default;

template <class T>
Options::Setting& Options::add(const std::string& name, T& value, const std::string& help, Belongs belongs,
                               std::string expected, std::function<bool(const Json&)> valid) {
  Setting& setting = *settings_.emplace_back(new Setting{
      with_underscores(name), belongs, std::move(expected), std::move(valid), from_text<T>,
      [&value](const Json& json) { value = json.get<T>(); }, [&value] { return Json(value); }, Json(value)});
  if (!command_) return setting;
  if constexpr (std::is_same_v<T, bool>)
    setting.option = command_->add_flag("--" + name, help)->disable_flag_override();
  else
    setting.option = command_->add_option("--" + name, CLI::callback_t(), help)->default_str(concat(value));
  return setting;
}

void Options::integer(const std::string& name, int64_t& value, int64_t minimum, int64_t maximum,
                      const std::string& help, Belongs belongs) {
  Setting& setting =
      add(name, value, help, belongs, concat("a whole number from ", minimum, " to ", maximum), [=](const Json& json) {
        if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t(maximum)) return false;
        return json.is_number_integer() && json.get<int64_t>() >= minimum && json.get<int64_t>() <= maximum;
      });
  setting.current = [&value, minimum] { return value < minimum ? Json() : Json(value); };
  setting.initial = setting.current();
  if (setting.option) setting.option->type_name("N")->default_str(value < minimum ? "" : std::to_string(value));
}

void Options::real(const std::string& name, double& value, double minimum, double maximum, const std::string& help) {
  Setting& setting =
      add(name, value, help, Belongs::to_the_run, concat("a finite number from ", minimum, " to ", maximum),
          [=](const Json& json) { return json.is_number() && json >= minimum && json <= maximum; });
  if (setting.option) setting.option->type_name("X");
}

void Options::text(const std::string& name, std::string& value, const std::string& help, Belongs belongs) {
  Setting& setting = add(name, value, help, belongs, "text", [](const Json& json) { return json.is_string(); });
  if (setting.option) setting.option->type_name("TEXT");
}

void Options::choice(const std::string& name, std::string& value, const std::vector<std::string>& choices,
                     const std::string& help, Belongs belongs) {
  Setting& setting = add(name, value, help, belongs, "one of " + joined(choices), [choices](const Json& json) {
    return json.is_string() && std::find(choices.begin(), choices.end(), json.get<std::string>()) != choices.end();
  });
  if (setting.option) setting.option->type_name("NAME");
}

void Options::flag(const std::string& name, bool& value, const std::string& help) {
  add(name, value, help, Belongs::to_the_run, "true or false", [](const Json& json) { return json.is_boolean(); });
}

void Options::presets(const std::string& flag, std::vector<std::pair<std::string, std::string>> values) {
  Setting* setting = find(with_underscores(flag));
  check(setting, "presets of --", flag, ": there is no such flag");
  std::vector<std::string> words;
  for (const auto& [name, value] : values) words.push_back(concat("--", name, ' ', value));
  if (setting->option) setting->option->description(setting->option->get_description() + ": " + joined(words));
  setting->presets = std::move(values);
}

void Options::withdrawn(const Json& values) { withdrawn_ = std::make_unique<Json>(values); }

void Options::add_configuration_options() {
  command_->add_option("--config", config_file_, "read settings from a JSON file, such as a run's config.json")
      ->type_name("FILE");
  command_->add_option("--set", sets_, "one setting, named as in a configuration; may be repeated")
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->allow_extra_args(false);
}

Options::Setting* Options::find(const std::string& key) const {
  for (const auto& setting : settings_)
    if (setting->key == key) return setting.get();
  return nullptr;
}

bool Options::any_given() const {
  return std::any_of(settings_.begin(), settings_.end(), [](const auto& setting) { return !setting->given.is_null(); });
}

bool Options::given(const std::string& key) const { return !find(key)->given.is_null(); }

Options::Setting& Options::known(const std::string& key, const std::string& where) const {
  if (Setting* setting = find(key)) return *setting;
  std::vector<std::string> keys;
  for (const auto& setting : settings_) keys.push_back(setting->key);
  throw UsageError(concat(where, ": unknown key ", QuotedText{key}, did_you_mean(key, keys),
                          nearest(key, keys).empty() ? "; there is " + joined(keys) : ""));
}

void Options::load(const Json& configuration, const std::string& where) {
  check<UsageError>(configuration.is_object(), where, ": expected a JSON object of settings, got ",
                    configuration.type_name());
  for (const auto& [key, value] : configuration.items()) {
    if (const auto old = withdrawn_->find(key); old != withdrawn_->end()) {
      check<UsageError>(value == *old, where, ": key '", key, "': this setting no longer exists; only ", Shown{*old},
                        ", its old default, is accepted, got ", Shown{value});
      continue;
    }
    Setting& setting = known(key, where);
    check<UsageError>(setting.valid(value), where, ": key '", key, "': expected ", setting.expected, ", got ",
                      Shown{value});
    setting.given = value;
  }
}

void Options::read() {
  if (command_ && command_->get_option_no_throw("--config") && command_->count("--config") > 0) {
    try {
      load(read_json(config_file_), config_file_);
    } catch (const DataError& error) {
      throw UsageError(concat("--config: ", error.what()));
    }
  }
  for (const std::string& set : sets_) {
    const size_t equals = set.find('=');
    check<UsageError>(equals != std::string::npos && equals > 0, "--set: expected key=value, got ", QuotedText{set});
    Setting& setting = known(with_underscores(set.substr(0, equals)), "--set");
    setting.given = setting.value_of(set.substr(equals + 1), "--set " + setting.key);
  }
  for (const auto& setting : settings_)
    if (setting->option && setting->option->count() > 0)
      setting->given = setting->value_of(setting->option->results().back(), setting->option->get_name());
}

void Options::continue_run(const Json& configuration, const std::string& where) {
  std::vector<Json> given;
  for (const auto& setting : settings_) given.push_back(std::exchange(setting->given, Json()));
  of_a_run([&] { load(configuration, where); });
  std::string differences;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].is_null()) continue;
    Setting& setting = *settings_[i];
    // A run that was made before the setting existed has its default.
    const Json& run = setting.given.is_null() ? setting.initial : setting.given;
    if (setting.belongs == Belongs::to_the_run && run != given[i])
      differences += concat(differences.empty() ? "" : ", ", setting.key, " (",
                            setting.given.is_null() ? "unset" : concat(Shown{setting.given}), " in the run, ",
                            Shown{given[i]}, " now)");
    setting.given = std::move(given[i]);
  }
  check<UsageError>(differences.empty(), where,
                    ": a run is resumed with its own settings, but these differ: ", differences,
                    "; leave them out, or train into another folder");
}

void Options::assign() {
  for (const auto& flag : settings_) {
    if (flag->given != true) continue;
    for (const auto& [name, text] : flag->presets) {
      const Setting& setting = known(with_underscores(name), "--" + flag->key);
      setting.assign(setting.value_of(text, "--" + flag->key));
    }
  }
  for (const auto& setting : settings_)
    if (!setting->given.is_null()) setting->assign(setting->given);
}

Options::Json Options::configuration() const {
  Json result = Json::object();
  for (const auto& setting : settings_)
    if (Json value = setting->current(); !value.is_null()) result[setting->key] = std::move(value);
  return result;
}

}  // namespace cairn

#include "apps/common/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

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

// A decimal number, if the whole text is one; else null.
template <class T>
nlohmann::ordered_json number_from(const std::string& text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? nlohmann::ordered_json(number)
                                                                  : nlohmann::ordered_json();
}

}  // namespace

std::vector<std::string> split_specs(const std::string& list) {
  std::vector<std::string> specs;
  for (size_t begin = 0, end; !list.empty() && begin <= list.size(); begin = end + 1) {
    end = std::min(list.find(',', begin), list.size());
    std::string item = list.substr(begin, end - begin);
    item.erase(0, item.find_first_not_of(' '));
    item.erase(item.find_last_not_of(' ') + 1);
    check<UsageError>(!item.empty(), "expected attention variants with a comma between, got nothing before or behind ",
                      "one in ", in_quotes(list));
    if (!specs.empty() && item.find('=') != std::string::npos && item.find(':') == std::string::npos)
      specs.back() += "," + item;
    else
      specs.push_back(item);
  }
  return specs;
}

std::vector<int64_t> rising_integers(const std::string& list, int64_t maximum) {
  std::vector<int64_t> result;
  for (size_t begin = 0, end; begin <= list.size(); begin = end + 1) {
    end = std::min(list.find(',', begin), list.size());
    const Options::Json value = number_from<int64_t>(list.substr(begin, end - begin));
    check<UsageError>(value.is_number() && value >= 1 && value <= maximum, "expected whole numbers from 1 to ", maximum,
                      " with a comma between, got ", in_quotes(list));
    check<UsageError>(result.empty() || value > result.back(), "expected each larger than the one before, got ",
                      in_quotes(list));
    result.push_back(value);
  }
  return result;
}

struct Options::Setting {
  std::string name, key;  // "head-size", "head_size"
  Belongs belongs = Belongs::to_the_run;
  std::string expected;                               // "a whole number from 1 to 1024"
  std::function<Json(const std::string& text)> read;  // text as JSON; null: it cannot be
  std::function<bool(const Json&)> valid;
  std::function<void(const Json&)> assign;
  std::function<Json()> current;  // null: not set
  Json initial;                   // the default
  std::string text;               // as given on the command line
  CLI::Option* option = nullptr;
  bool is_flag = false, flag = false;
};

Options::Options(CLI::App* command) : command_(command) {}
Options::~Options() = default;

Options::Setting& Options::add(const std::string& name, const std::string& help, Belongs belongs) {
  settings_.push_back(std::make_unique<Setting>());
  Setting& setting = *settings_.back();
  setting.name = name, setting.key = with_underscores(name), setting.belongs = belongs;
  if (command_) setting.option = command_->add_option("--" + name, setting.text, help);
  return setting;
}

void Options::integer(const std::string& name, int64_t& value, int64_t minimum, int64_t maximum,
                      const std::string& help, Belongs belongs) {
  Setting& setting = add(name, help, belongs);
  setting.expected = concat("a whole number from ", minimum, " to ", maximum);
  setting.read = [](const std::string& text) -> Json { return number_from<int64_t>(text); };
  setting.valid = [=](const Json& json) {
    if (!json.is_number_integer()) return false;
    if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t(maximum)) return false;
    return json.get<int64_t>() >= minimum && json.get<int64_t>() <= maximum;
  };
  setting.assign = [&value](const Json& json) { value = json.get<int64_t>(); };
  setting.current = [&value, minimum] { return value < minimum ? Json() : Json(value); };
  setting.initial = setting.current();
  if (setting.option) setting.option->type_name("N")->default_str(value < minimum ? "" : std::to_string(value));
}

void Options::real(const std::string& name, double& value, double minimum, double maximum, const std::string& help) {
  Setting& setting = add(name, help, Belongs::to_the_run);
  setting.expected = concat("a finite number from ", minimum, " to ", maximum);
  setting.read = [](const std::string& text) -> Json { return number_from<double>(text); };
  setting.valid = [=](const Json& json) {
    return json.is_number() && std::isfinite(json.get<double>()) && json.get<double>() >= minimum &&
           json.get<double>() <= maximum;
  };
  setting.assign = [&value](const Json& json) { value = json.get<double>(); };
  setting.current = [&value] { return Json(value); };
  setting.initial = value;
  if (setting.option) setting.option->type_name("X")->default_str(concat(value));
}

void Options::text(const std::string& name, std::string& value, const std::string& help, Belongs belongs) {
  Setting& setting = add(name, help, belongs);
  setting.expected = "text";
  setting.read = [](const std::string& text) { return Json(text); };
  setting.valid = [](const Json& json) { return json.is_string(); };
  setting.assign = [&value](const Json& json) { value = json.get<std::string>(); };
  setting.current = [&value] { return Json(value); };
  setting.initial = value;
  if (setting.option) setting.option->default_str(value);
}

void Options::choice(const std::string& name, std::string& value, const std::vector<std::string>& choices,
                     const std::string& help, Belongs belongs) {
  text(name, value, help, belongs);
  Setting& setting = *settings_.back();
  setting.expected = "one of " + joined(choices);
  setting.valid = [=](const Json& json) {
    return json.is_string() && std::find(choices.begin(), choices.end(), json.get<std::string>()) != choices.end();
  };
  if (setting.option) setting.option->type_name("NAME");
}

void Options::flag(const std::string& name, bool& value, const std::string& help) {
  settings_.push_back(std::make_unique<Setting>());
  Setting& setting = *settings_.back();
  setting.name = name, setting.key = with_underscores(name), setting.is_flag = true;
  setting.expected = "true or false";
  setting.read = [](const std::string& text) {
    return text == "true" ? Json(true) : text == "false" ? Json(false) : Json();
  };
  setting.valid = [](const Json& json) { return json.is_boolean(); };
  setting.assign = [&value](const Json& json) { value = json.get<bool>(); };
  setting.current = [&value] { return Json(value); };
  setting.initial = value;
  if (command_) setting.option = command_->add_flag("--" + name, setting.flag, help)->disable_flag_override();
}

void Options::presets(const std::string& flag, std::vector<std::pair<std::string, std::string>> values) {
  const Setting* setting = find(with_underscores(flag));
  check(setting, "presets of --", flag, ": there is no such flag");
  if (setting->option) {
    std::vector<std::string> words;
    words.reserve(values.size());
    for (const auto& [name, value] : values) words.push_back(concat("--", name, ' ', value));
    setting->option->description(setting->option->get_description() + ": " + joined(words));
  }
  presets_[with_underscores(flag)] = std::move(values);
}

void Options::add_configuration_options() {
  command_->add_option("--config", config_file_, "read settings from a JSON file, such as a run's config.json")
      ->type_name("FILE");
  command_
      ->add_option_function<std::vector<std::string>>(
          "--set", [this](const std::vector<std::string>& sets) { sets_ = sets; },
          "one setting, named as in a configuration; may be repeated")
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->allow_extra_args(false);
}

const Options::Setting* Options::find(const std::string& key) const {
  for (const auto& setting : settings_)
    if (setting->key == key) return setting.get();
  return nullptr;
}

Options::Json Options::from_text(const Setting& setting, const std::string& text, const std::string& where) const {
  Json value = setting.read(text);
  check<UsageError>(!value.is_null() && setting.valid(value), where, ": expected ", setting.expected, ", got ",
                    QuotedText{text});
  return value;
}

void Options::give(const std::string& key, Json value, const std::string& where) {
  const Setting* setting = find(key);
  if (!setting) {
    std::vector<std::string> keys;
    for (const auto& known : settings_) keys.push_back(known->key);
    throw UsageError(concat(where, ": unknown key ", QuotedText{key}, did_you_mean(key, keys),
                            nearest(key, keys).empty() ? "; there is " + joined(keys) : ""));
  }
  check<UsageError>(setting->valid(value), where, ": key '", key, "': expected ", setting->expected, ", got ",
                    Shown{value});
  given_[key] = std::make_unique<Json>(std::move(value));
}

void Options::load(const Json& configuration, const std::string& where) {
  check<UsageError>(configuration.is_object(), where, ": expected a JSON object of settings, got ",
                    configuration.type_name());
  for (const auto& [key, value] : configuration.items()) give(key, value, where);
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
    const std::string key = with_underscores(set.substr(0, equals));
    const Setting* setting = find(key);
    give(key, setting ? from_text(*setting, set.substr(equals + 1), "--set " + key) : Json(), "--set");
  }
  for (const auto& setting : settings_)
    if (setting->option && setting->option->count() > 0)
      given_[setting->key] = std::make_unique<Json>(
          setting->is_flag ? Json(setting->flag) : from_text(*setting, setting->text, "--" + setting->name));
}

void Options::load_run(const Json& configuration, const std::string& where) {
  of_a_run([&] { load(configuration, where); });
}

void Options::continue_run(const Json& configuration, const std::string& where) {
  std::map<std::string, std::unique_ptr<Json>> given;
  given.swap(given_);
  load_run(configuration, where);
  std::string differences;
  for (auto& [key, value] : given) {
    const auto run = given_.find(key);
    // A run that was made before the setting existed has its default.
    const bool same = (run == given_.end() ? find(key)->initial : *run->second) == *value;
    if (find(key)->belongs == Belongs::to_the_run && !same)
      differences +=
          concat(differences.empty() ? "" : ", ", key, " (",
                 run == given_.end() ? "unset" : concat(Shown{*run->second}), " in the run, ", Shown{*value}, " now)");
    given_[key] = std::move(value);
  }
  check<UsageError>(differences.empty(), where,
                    ": a run is resumed with its own settings, but these differ: ", differences,
                    "; leave them out, or train into another folder");
}

void Options::assign() {
  for (const auto& [flag, values] : presets_) {
    const auto given = given_.find(flag);
    if (given == given_.end() || !given->second->get<bool>()) continue;
    for (const auto& [key, text] : values) {
      const Setting* setting = find(with_underscores(key));
      check(setting, "presets of --", flag, ": no setting '", key, "'");
      setting->assign(from_text(*setting, text, "--" + flag));
    }
  }
  for (const auto& [key, value] : given_) find(key)->assign(*value);
}

Options::Json Options::configuration() const {
  Json result = Json::object();
  for (const auto& setting : settings_)
    if (Json value = setting->current(); !value.is_null()) result[setting->key] = std::move(value);
  return result;
}

}  // namespace cairn

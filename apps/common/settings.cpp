#include "apps/common/settings.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <system_error>

#include "apps/common/program.h"
#include "core/did_you_mean.h"
#include "nn/attention/attention.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
std::string with_dashes(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

// A value as it stands in a message, cut where it is long.
std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}
// Text from outside as programs quote it.
std::string quoted(const std::string& text) {
  std::string result = concat(in_quotes(text));
  result.front() = result[result.rfind('"')] = '\'';
  return result;
}

// A text as a number, decimal and in every locale the same; null: it is none. (CLI11's own conversions take hexadecimal
// and octal numbers, infinity and the locale's point too.)
template <class T>
Json number_from(const std::string& text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? Json(number) : Json();
}

// The parts of "a,b,c"; of an empty list one empty part.
std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char c : list)
    if (c == ',')
      parts.emplace_back();
    else
      parts.back().push_back(c);
  return parts;
}

bool is_whole_number(const Json& json, Between<int64_t> range) {
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t(range.high)) return false;
  return json.is_number_integer() && json.get<int64_t>() >= range.low && json.get<int64_t>() <= range.high;
}

// Error (UsageError): attention variants that are none.
void check_variants(const std::string& text, Text kind) {
  if (kind == Text::variant) make_attention(text);
  if (kind == Text::variants)
    for (const std::string& spec : split_specs(text)) make_attention(spec);
}

}  // namespace

struct SettingFields::Setting {
  std::string expected;                               // "a whole number from 1 to 1024"
  std::function<bool(const Json&)> valid;             // may refuse with a UsageError of its own
  std::function<Json(const std::string&)> from_text;  // null: the text is no value
  std::function<void(const Json&)> assign;            // null: the default
  std::function<Json()> current;                      // null: not set
  std::string key{};                                  // "head_size"
  Keep keep = Keep::fixed;
  Json initial{};  // the default
  CLI::Option* option = nullptr;

  // Error (UsageError): not a valid value.
  void check_value(const Json& value, const std::string& where, const std::string& text) const {
    bool is_valid = false;
    about_option(where, [&] { is_valid = !value.is_null() && valid(value); });
    check<UsageError>(is_valid, where, ": expected ", expected, ", got ", text);
  }
  Json value_of(const std::string& text, const std::string& where) const {
    Json value = from_text(text);
    check_value(value, where, quoted(text));
    return value;
  }
};

SettingFields::SettingFields(CLI::App* command)
    : command_(command), quick_(new Json(Json::object())), withdrawn_(new Json(Json::object())) {}
SettingFields::~SettingFields() = default;

SettingFields::Setting& SettingFields::add(const char* name, const std::string& help, Keep keep, Setting setting) {
  Setting& added = *settings_.emplace_back(std::make_unique<Setting>(std::move(setting)));
  added.key = with_underscores(name);
  added.keep = keep;
  added.initial = added.current();
  if (!command_) return added;
  const std::string option = concat("--", name);
  if (added.initial.is_boolean()) {
    added.option = command_->add_flag(option, help)->disable_flag_override();
  } else {
    added.option = command_->add_option(option, CLI::callback_t(), help);
    const Json& value = added.initial;
    if (!value.is_null())
      added.option->default_str(value.is_string()         ? value.get<std::string>()
                                : value.is_number_float() ? concat(value.get<double>())
                                                          : value.dump());
  }
  return added;
}

void SettingFields::operator()(const char* name, int64_t& value, Between<int64_t> range, const std::string& help,
                               Keep keep) {
  const int64_t initial = value;
  Setting& setting =
      add(name, help, keep,
          {concat("a whole number from ", range.low, " to ", range.high),
           [range](const Json& json) { return is_whole_number(json, range); }, number_from<int64_t>,
           [&value, initial](const Json& json) { value = json.is_null() ? initial : json.get<int64_t>(); },
           [&value, range] { return value < range.low ? Json() : Json(value); }});
  if (setting.option) setting.option->type_name("N");
}

void SettingFields::operator()(const char* name, double& value, Between<double> range, const std::string& help,
                               Keep keep) {
  const double initial = value;
  Setting& setting =
      add(name, help, keep,
          {concat("a finite number from ", range.low, " to ", range.high),
           [range](const Json& json) { return json.is_number() && json >= range.low && json <= range.high; },
           number_from<double>,
           [&value, initial](const Json& json) { value = json.is_null() ? initial : json.get<double>(); },
           [&value] { return Json(value); }});
  if (setting.option) setting.option->type_name("X");
}

void SettingFields::operator()(const char* name, bool& value, const std::string& help, Keep keep) {
  const auto from_text = [](const std::string& text) {
    return text == "true" || text == "false" ? Json(text == "true") : Json();
  };
  const bool initial = value;
  add(name, help, keep,
      {"true or false", [](const Json& json) { return json.is_boolean(); }, from_text,
       [&value, initial](const Json& json) { value = json.is_null() ? initial : json.get<bool>(); },
       [&value] { return Json(value); }});
}

void SettingFields::operator()(const char* name, std::string& value, Text kind, const std::string& help, Keep keep) {
  const bool is_path = kind == Text::file || kind == Text::folder;
  const auto valid = [kind, initial = value](const Json& json) {
    if (json.is_string() && json != initial) check_variants(json.get_ref<const std::string&>(), kind);
    return json.is_string();
  };
  const auto from_text = [is_path](const std::string& text) {
    return is_path && text.empty() ? Json() : Json(text);  // in a configuration an empty path stands for none
  };
  const auto assign = [&value, initial = value](const Json& json) {
    value = json.is_null() ? initial : json.get<std::string>();
  };
  const char* expected = kind == Text::folder ? "the name of a folder" : is_path ? "the name of a file" : "text";
  Setting& setting = add(name, help, keep, {expected, valid, from_text, assign, [&value] { return Json(value); }});
  if (setting.option) setting.option->type_name(kind == Text::folder ? "DIR" : is_path ? "FILE" : "TEXT");
}

void SettingFields::add_choice(const char* name, const std::vector<std::string>& names, std::function<size_t()> chosen,
                               std::function<void(size_t)> choose, const std::string& help, Keep keep) {
  const auto number = [names](const Json& json) {
    return size_t(std::find(names.begin(), names.end(), json.get<std::string>()) - names.begin());
  };
  const size_t initial = chosen();
  Setting& setting = add(name, help, keep,
                         {"one of " + joined(names),
                          [names, number](const Json& json) { return json.is_string() && number(json) < names.size(); },
                          [](const std::string& text) { return Json(text); },
                          [=](const Json& json) { choose(json.is_null() ? initial : number(json)); },
                          [names, chosen] { return Json(names[chosen()]); }});
  if (setting.option) setting.option->type_name("NAME");
}

void SettingFields::words(const char* name, std::vector<std::string>& values, const std::string& help) {
  if (!command_) return;
  command_->add_option(name, values, help)->expected(0, -1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void SettingFields::quick(const Json& values) {
  *quick_ = values;
  const Setting* setting = find("quick");
  std::vector<std::string> words;
  for (const auto& [key, value] : values.items())
    words.push_back(concat("--", with_dashes(key), ' ', value.is_string() ? value.get<std::string>() : value.dump()));
  if (setting->option) setting->option->description(setting->option->get_description() + ": " + joined(words));
}

void SettingFields::withdrawn(const Json& values) { *withdrawn_ = values; }

const SettingFields::Setting* SettingFields::find(const std::string& key) const {
  for (const auto& setting : settings_)
    if (setting->key == key) return setting.get();
  return nullptr;
}

const SettingFields::Setting& SettingFields::known(const std::string& key, const std::string& where) const {
  const Setting* setting = find(key);
  if (setting && setting->keep != Keep::no) return *setting;
  std::vector<std::string> keys;
  for (const auto& each : settings_)
    if (each->keep != Keep::no) keys.push_back(each->key);
  throw UsageError(concat(where, ": unknown key ", quoted(key), did_you_mean(key, keys),
                          nearest(key, keys).empty() ? "; there is " + joined(keys) : ""));
}

Json SettingFields::checked(const Json& configuration, const std::string& where) const {
  check<UsageError>(configuration.is_object(), where, ": expected a JSON object of settings, got ",
                    configuration.type_name());
  Json result = Json::object();
  for (const auto& [key, value] : configuration.items()) {
    if (const auto old = withdrawn_->find(key); old != withdrawn_->end()) {
      check<UsageError>(value == *old, where, ": key '", key, "': this setting no longer exists; only ", shown(*old),
                        ", its old default, is accepted, got ", shown(value));
      continue;
    }
    known(key, where).check_value(value, concat(where, ": key '", key, "'"), shown(value));
    result[key] = value;
  }
  return result;
}

Json SettingFields::set(const std::string& text) const {
  const size_t equals = text.find('=');
  check<UsageError>(equals != std::string::npos && equals > 0, "--set: expected key=value, got ", quoted(text));
  const Setting& setting = known(with_underscores(text.substr(0, equals)), "--set");
  return {{setting.key, setting.value_of(text.substr(equals + 1), "--set " + setting.key)}};
}

Json SettingFields::options() const {
  Json result = Json::object();
  for (const auto& setting : settings_)
    if (setting->option && setting->option->count() > 0)
      result[setting->key] = setting->value_of(setting->option->results().back(), setting->option->get_name());
  return result;
}

void SettingFields::assign(const Json& values) {
  Json all = values.value("quick", Json(false)) == true ? *quick_ : Json::object();
  all.update(values);
  for (const auto& setting : settings_) setting->assign(all.value(setting->key, Json()));
}

Json SettingFields::config() const {
  Json result = Json::object();
  for (const auto& setting : settings_)
    if (Json value = setting->current(); setting->keep != Keep::no && !value.is_null())
      result[setting->key] = std::move(value);
  return result;
}

std::string SettingFields::differences(const Json& given, const Json& of_run) const {
  std::vector<std::string> found;
  for (const auto& setting : settings_) {
    if (setting->keep != Keep::fixed || !given.contains(setting->key)) continue;
    // A run that was made before the setting existed has its default.
    const Json run = of_run.value(setting->key, setting->initial), &now = given.at(setting->key);
    if (run != now)
      found.push_back(
          concat(setting->key, " (", run.is_null() ? "unset" : shown(run), " in the run, ", shown(now), " now)"));
  }
  return joined(found);
}

void read_settings(SettingFields& fields, const Json& config, const std::string& where) try {
  fields.assign(fields.checked(config, where));
} catch (const UsageError& error) {
  throw DataError(concat(error.what(), "; was it made by another version of Cairn?"));
}

std::vector<std::string> split_specs(const std::string& list) {
  std::vector<std::string> specs;
  if (list.empty()) return specs;
  for (std::string item : split(list)) {
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
  for (const std::string& item : split(list)) {
    const Json value = number_from<int64_t>(item);
    check<UsageError>(value.is_number() && value >= 1 && value <= maximum, "expected whole numbers from 1 to ", maximum,
                      " with a comma between, got ", in_quotes(list));
    check<UsageError>(result.empty() || value > result.back(), "expected each larger than the one before, got ",
                      in_quotes(list));
    result.push_back(value);
  }
  return result;
}

}  // namespace cairn

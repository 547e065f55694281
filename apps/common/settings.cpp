#include "apps/common/settings.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "apps/common/run_folder.h"
#include "core/did_you_mean.h"
#include "core/kernels/memory.h"
#include "core/parallel.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

std::string replaced(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

// A value as text for a message, cut if it is long.
std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

template <class T>
bool is_number(const std::string& text, T& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

// A text from the command line as JSON: a decimal number, true, false, or else the text. (CLI11's own conversions take
// hexadecimal and octal numbers, infinity and the locale's point too.)
Json value_of(const std::string& text) {
  int64_t whole = 0;
  double number = 0;
  if (is_number(text, whole)) return whole;
  if (is_number(text, number) && std::isfinite(number)) return number;
  if (text == "true" || text == "false") return text == "true";
  return text;
}

}  // namespace

struct Setting {
  Json initial;                            // the default
  std::string expected;                    // "a whole number from 1 to 1024"
  std::function<bool(const Json&)> valid;  // may throw a UsageError of its own
  std::function<void(const Json&)> set;    // gives the program's variable a value
  std::string key{};                       // "head_size"
  Keep keep = Keep::fixed;
  bool is_path = false;
  Json value{};  // the current value
  CLI::Option* option = nullptr;

  // A value that the user gave; a double for a setting of that type. Error (UsageError): it is not valid.
  Json checked(const Json& given, const std::string& where) const {
    bool is_valid = false;
    name_in_errors(where, [&] { is_valid = valid(given); });
    check<UsageError>(is_valid, where, ": expected ", expected, ", got ", shown(given));
    return initial.is_number_float() ? Json(given.get<double>()) : given;
  }
  // A value as config.json has it.
  Json stored(const Json& given) const { return is_path && given != "" ? Json(stored_path(given)) : given; }
  Json parsed(const std::string& text) const { return initial.is_string() ? Json(text) : value_of(text); }
};

namespace {

template <class T>
Setting setting_of(T& value, const std::string& expected, std::function<bool(const Json&)> valid) {
  return {value, expected, std::move(valid), [&value](const Json& json) { json.get_to(value); }};
}

}  // namespace

const Text Text::any{"TEXT"}, Text::file{"FILE", true}, Text::folder{"DIR", true};

std::string for_cli11(std::string word) {
  if (word.starts_with('[') && word.ends_with(']')) word += '\0';
  return word;
}

std::string as_given(std::string word) {
  if (word.ends_with('\0')) word.pop_back();
  return word;
}

SettingFields::SettingFields(CLI::App* command) : command_(command), quick_(new Json(Json::object())) {}
SettingFields::~SettingFields() = default;

void SettingFields::add(const char* name, const char* type, const std::string& help, Keep keep, Setting setting) {
  Setting& added = *settings_.emplace_back(std::make_unique<Setting>(std::move(setting)));
  added.key = replaced(name, '-', '_');
  added.keep = keep;
  added.value = added.initial;
  if (!command_) return;
  const std::string option = concat("--", name);
  if (added.initial.is_boolean()) {
    added.option = command_->add_flag(option, help);
    return;
  }
  added.option = command_->add_option(option, CLI::callback_t(), help)->type_name(type);
  added.option->default_str(added.initial.is_string() ? added.initial.get<std::string>() : added.initial.dump());
}

void SettingFields::operator()(const char* name, int64_t& value, Between<int64_t> range, const std::string& help,
                               Keep keep) {
  const auto valid = [range](const Json& json) {
    return json.is_number_integer() && json >= range.low && json <= range.high;
  };
  const std::string expected = concat("a whole number from ", range.low, " to ", range.high);
  add(name, "N", help, keep, setting_of(value, expected, valid));
}

void SettingFields::operator()(const char* name, double& value, Between<double> range, const std::string& help,
                               Keep keep) {
  const auto valid = [range](const Json& json) { return json.is_number() && json >= range.low && json <= range.high; };
  const std::string expected = concat("a finite number from ", range.low, " to ", range.high);
  add(name, "X", help, keep, setting_of(value, expected, valid));
}

void SettingFields::operator()(const char* name, bool& value, const std::string& help, Keep keep) {
  add(name, "", help, keep, setting_of(value, "true or false", [](const Json& json) { return json.is_boolean(); }));
}

void SettingFields::operator()(const char* name, std::string& value, Text kind, const std::string& help, Keep keep) {
  const auto valid = [kind, initial = value](const Json& json) {
    if (kind.check && json.is_string() && json != initial) kind.check(json.get<std::string>());
    return json.is_string();
  };
  Setting setting = setting_of(value, "text", valid);
  setting.is_path = kind.is_path;
  add(name, kind.type, help, keep, std::move(setting));
}

void SettingFields::add_choice(const char* name, const std::vector<std::string>& names, const std::string& initial,
                               const std::function<void(const std::string&)>& choose, const std::string& help,
                               Keep keep) {
  const auto valid = [names](const Json& json) {
    return json.is_string() && std::count(names.begin(), names.end(), json.get<std::string>()) > 0;
  };
  const auto set = [choose](const Json& json) { choose(json.get<std::string>()); };
  add(name, "NAME", help, keep, {initial, "one of " + joined(names), valid, set});
}

void SettingFields::words(const char* name, std::vector<std::string>& values, const std::string& help) {
  if (!command_) return;
  const auto take = [this, name, &values](const CLI::results_t&) {
    values = command_->get_option(name)->results();  // without CLI11's rules for "{}" and "%%"
    for (std::string& word : values) word = as_given(word);
    return true;
  };
  command_->add_option(name, CLI::callback_t(take), help + "; -- before those that begin with a dash")
      ->type_name("TEXT")
      ->expected(-1);
}

void SettingFields::quick(const Json& values) {
  *quick_ = values;
  std::vector<std::string> words;
  for (const auto& [key, value] : values.items())
    words.push_back(
        concat("--", replaced(key, '_', '-'), ' ', value.is_string() ? value.get<std::string>() : value.dump()));
  CLI::Option* option = known("quick", "").option;
  if (option) option->description(option->get_description() + ": " + joined(words));
}

const Setting& SettingFields::known(const std::string& key, const std::string& where) const {
  std::vector<std::string> keys;
  for (const auto& setting : settings_) {
    if (setting->keep == Keep::not_in_config) continue;
    if (setting->key == key) return *setting;
    keys.push_back(setting->key);
  }
  throw UsageError(concat(where, ": unknown key '", key, "'", did_you_mean(key, keys),
                          nearest(key, keys).empty() ? "; the keys are " + joined(keys) : ""));
}

Json SettingFields::checked(const Json& configuration, const std::string& where) const {
  check<UsageError>(configuration.is_object(), where, ": expected a JSON object of settings, got ",
                    configuration.type_name());
  Json result = Json::object();
  for (const auto& [key, value] : configuration.items())
    result[key] = known(key, where).checked(value, concat(where, ": key '", key, "'"));
  return result;
}

Json SettingFields::set(const std::string& text) const {
  const size_t equals = text.find('=');
  check<UsageError>(equals != std::string::npos && equals > 0, "--set: expected key=value, got '", text, "'");
  const std::string key = replaced(text.substr(0, equals), '-', '_');
  return checked({{key, known(key, "--set").parsed(text.substr(equals + 1))}}, "--set");
}

Json SettingFields::options() const {
  Json result = Json::object();
  for (const auto& setting : settings_) {
    if (!setting->option || setting->option->count() == 0) continue;
    const std::string name = setting->option->get_name(), text = as_given(setting->option->results().back());
    check<UsageError>(!text.empty(), name, ": expected a value after it");
    result[setting->key] = setting->checked(setting->parsed(text), name);
  }
  return result;
}

void SettingFields::assign(const Json& values) {
  Json all = values.value("quick", Json(false)) == true ? *quick_ : Json::object();
  all.update(values);
  for (const auto& setting : settings_) {
    setting->value = all.value(setting->key, setting->initial);
    setting->set(setting->value);
  }
}

Json SettingFields::config() const {
  Json result = Json::object();
  for (const auto& setting : settings_)
    if (setting->keep != Keep::not_in_config) result[setting->key] = setting->stored(setting->value);
  return result;
}

void SettingFields::check_kept(const Json& given, const Json& of_run, const std::filesystem::path& run) const {
  std::vector<std::string> found;
  for (const auto& setting : settings_) {
    if (setting->keep != Keep::fixed || !given.contains(setting->key)) continue;
    // A key that the run's config.json lacks has its default.
    const Json before = of_run.value(setting->key, setting->initial), &now = given.at(setting->key);
    if (setting->stored(before) != setting->stored(now))
      found.push_back(concat(setting->key, " (", shown(before), " in the run, ", shown(now), " now)"));
  }
  check<UsageError>(found.empty(), run / "config.json",
                    ": a resumed run keeps its settings, but these differ: ", joined(found),
                    "; leave them out, or choose another folder");
}

std::vector<int64_t> rising_integers(const std::string& list, int64_t maximum) {
  std::vector<int64_t> result;
  std::istringstream items(list + ",");
  for (std::string item; std::getline(items, item, ',');) {
    int64_t value = 0;
    check<UsageError>(is_number(item, value) && value >= 1 && value <= maximum, "expected whole numbers from 1 to ",
                      maximum, ", separated by commas, got ", in_quotes(list));
    check<UsageError>(result.empty() || value > result.back(), "expected each larger than the one before, got ",
                      in_quotes(list));
    result.push_back(value);
  }
  return result;
}

Json read_run(SettingFields& fields, const char* option, const std::filesystem::path& folder) try {
  const Json config = fields.checked(RunFolder::config(option, folder), (folder / "config.json").string());
  fields.assign(config);
  return config;
} catch (const UsageError& error) {
  throw DataError(error.what());
}

void threads_field(SettingFields& f, int64_t& threads) {
  f("threads", threads, {0, 4096},
    concat("CPU threads; 0: all that this program may use, ", cairn::threads(), " here; results do not depend on it"),
    Keep::may_change);
}

void device_field(SettingFields& f, std::optional<Device>& device) {
  f("device", device, {{"auto", std::nullopt}, {"cpu", Device::cpu}, {"cuda", Device::cuda}},
    "cpu, cuda, or auto: cuda if this build can use a GPU", Keep::may_change);
}

void ComputeSettings::fields(SettingFields& f) {
  device_field(f, device);
  f("precision", precision, {{"float32", Precision::float32}, {"tf32", Precision::tf32}, {"bf16", Precision::bf16}},
    "on CUDA: float32, tf32 (matrix products in TF32), or bf16 (activations in bfloat16; parameters, moments and sums "
    "stay float32)");
  threads_field(f, threads);
  f("seed", seed, {0, std::numeric_limits<int64_t>::max()}, "random seed");
}

static Device chosen_device(std::optional<Device> device) {
  if (device == Device::cpu) return Device::cpu;
#if CAIRN_HAS_CUDA
#if CAIRN_CUDA_HOST
  if (!device) return Device::cpu;  // never the emulator
#endif
  const std::string problem = gpu::device_problem();
  if (!device) return problem.empty() ? Device::cuda : Device::cpu;
  check<DeviceError>(problem.empty(), "--device cuda: ", problem, "; or use --device cpu");
  return Device::cuda;
#else
  check<DeviceError>(!device, "--device cuda: this program was built without CUDA (configure it with ",
                     "--preset cuda); use --device cpu");
  return Device::cpu;
#endif
}

DeviceAndDType ComputeSettings::apply() const {
  if (threads > 0) set_threads(int(threads));
  const DeviceAndDType compute{chosen_device(device), precision == Precision::bf16 ? DType::bfloat16 : DType::float32};
  check<UsageError>(compute.device == Device::cuda || precision == Precision::float32, "--precision ",
                    precision == Precision::bf16 ? "bf16" : "tf32",
                    ": the CPU computes in float32; use --device cuda, or --precision float32");
  set_float32_products(precision == Precision::tf32 ? Float32Products::tf32 : Float32Products::full);
  return compute;
}

}  // namespace cairn

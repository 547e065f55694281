#include "apps/common/command.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/common/artifact.h"
#include "apps/common/program.h"
#include "core/error.h"
#include "core/kernels/memory.h"
#include "core/parallel.h"
#include "nn/io/json.h"
#include "nn/parallel/communicator.h"

namespace cairn {

using Json = nlohmann::ordered_json;

Command::Command(const char* name, const char* summary, std::string footer)
    : name_(name), summary_(summary), footer_(std::move(footer)), given_(new Json(Json::object())) {}
Command::~Command() = default;

void Command::define(CLI::App& app, Communicator& ranks) {
  CLI::App& command = *name_ ? *app.add_subcommand(name_, summary_) : app;
  command.footer(footer_);
  fields_ = std::make_unique<SettingFields>(&command);
  fields(*fields_);
  command.add_option("--config", config_file_, "read settings from a JSON file, such as a run's config.json")
      ->type_name("FILE");
  command.add_option("--set", sets_, "set one key of the configuration; may be repeated")
      ->type_name("KEY=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->allow_extra_args(false);
  (*fields_)("json", json, "print results as JSON, one object on a line", Keep::no);
  (*fields_)("quiet", quiet, "print only the result, errors and warnings", Keep::no);
  command.callback([this, &command, &ranks] {
    check<UsageError>(many_processes || ranks.size() == 1, command.get_name(), ": runs as one process, and ",
                      ranks.size(), " were started; start it without mpirun");
    if (command.count("--config") > 0) try {
        given_->update(fields_->checked(read_json(config_file_), config_file_));
      } catch (const DataError& error) {
        throw UsageError(concat("--config: ", error.what()));
      }
    for (const std::string& set : sets_) given_->update(fields_->set(set));
    given_->update(fields_->options());
    fields_->assign(*given_);
    run(ranks);
  });
}

void Command::continue_run(const std::filesystem::path& folder) {
  Json all = read_run(*fields_, "--out", folder);
  fields_->check_kept(*given_, all, folder);
  all.update(*given_);
  fields_->assign(all);
}

void Command::follow(const Json& configuration) { fields_->assign(configuration); }

Json Command::config() const { return fields_->config(); }

void Command::tell(const Json& result, const std::string& text) const { print(json ? result.dump() + "\n" : text); }

Json read_run(SettingFields& fields, const char* option, const std::filesystem::path& folder) try {
  const Json config = fields.checked(Artifact::config(option, folder), (folder / "config.json").string());
  fields.assign(config);
  return config;
} catch (const UsageError& error) {
  throw DataError(concat(error.what(), "; was it made by another version of Cairn?"));
}

void threads_field(SettingFields& f, int64_t& threads) {
  f("threads", threads, {0, 4096},
    concat("CPU threads; 0: all that this program may use, ", cairn::threads(), " here; results do not depend on it"),
    Keep::may_change);
}

void ComputeSettings::fields(SettingFields& f) {
  f("device", device, {{"auto", std::nullopt}, {"cpu", Device::cpu}, {"cuda", Device::cuda}},
    "cpu, cuda, or auto: cuda if this build can use a GPU", Keep::may_change);
  f("precision", precision, {{"float32", Precision::float32}, {"tf32", Precision::tf32}, {"bf16", Precision::bf16}},
    "on CUDA: float32, tf32 (matrix products in TF32), or bf16 (activations in bfloat16; parameters, moments and sums "
    "stay float32)");
  threads_field(f, threads);
  f("seed", seed, {0, std::numeric_limits<int64_t>::max()}, "random seed");
}

#if CAIRN_CUDA_HOST
[[maybe_unused]] constexpr bool emulated = true;
#else
[[maybe_unused]] constexpr bool emulated = false;
#endif

static Device chosen_device(std::optional<Device> device) {
  if (device == Device::cpu) return Device::cpu;
#if CAIRN_HAS_CUDA
  const std::string problem = gpu::device_problem();
  if (!device) return problem.empty() && !emulated ? Device::cuda : Device::cpu;
  check<DeviceError>(problem.empty(), "--device cuda: ", problem, "; or use --device cpu");
  return Device::cuda;
#else
  check<DeviceError>(!device, "--device cuda: this program was built without CUDA (configure it with ",
                     "--preset cuda); use --device cpu");
  return Device::cpu;
#endif
}

Place ComputeSettings::apply() const {
  if (threads > 0) set_threads(int(threads));
  const Place place{chosen_device(device), precision == Precision::bf16 ? DType::bfloat16 : DType::float32};
  check<UsageError>(place.device == Device::cuda || precision == Precision::float32, "--precision ",
                    precision == Precision::bf16 ? "bf16" : "tf32",
                    ": the CPU computes in float32; use --device cuda, or --precision float32");
  set_float32_products(precision == Precision::tf32 ? Float32Products::tf32 : Float32Products::full);
  return place;
}

}  // namespace cairn

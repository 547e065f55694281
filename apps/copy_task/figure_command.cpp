// copy-task figure: the paper's figure 5, a training for each variant and length.
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "apps/common/artifact.h"
#include "apps/common/program.h"
#include "apps/copy_task/commands.h"
#include "apps/copy_task/figure.h"
#include "apps/copy_task/train.h"
#include "nn/attention/attention.h"
#include "nn/io/json.h"

namespace cairn::copy_task {
namespace {

namespace fs = std::filesystem;

constexpr const char* paper_variants =
    "full,clustered-15,clustered-30,clustered-60,clustered-100,i-clustered-15,i-clustered-30,i-clustered-60,"
    "i-clustered-100,lsh-1,lsh-4,lsh-8,lsh-16";
constexpr const char* quick_variants = "full,clustered-15,clustered-30,i-clustered-15,i-clustered-30,lsh-1,lsh-4";

struct FigureCommand : Command {
  FigureCommand()
      : Command("figure", "Train the paper's figure 5: every variant at every length",
                "Each training is a run in DIR/cells, which the other commands read. The same command again continues\n"
                "where it was stopped, at any point. Several at once share the work: each passes over the cells that\n"
                "others train. Writes figure.json, figure.svg and report.html.\n\n"
                "The whole grid is 52 trainings of 5000 steps: hours on a GPU, more than a day on two cores.\n\n"
                "Examples:\n"
                "  copy-task figure --quick --out figure5      14 trainings, about an hour on two cores\n"
                "  copy-task figure --out figure5 --device cuda") {}

  void fields(SettingFields& f) override {
    f("out", out, Text::folder, "keep the runs and the report in this folder", Keep::no);
    f("variants", variants, Text::variants, "attention variants, comma-separated");
    f("lengths", lengths, Text::any, "symbols in w, comma-separated");
    settings.fields_of_figure(f);
    Json quick = Settings::quick_values(2500);
    quick.update({{"variants", quick_variants}, {"lengths", "31,63"}});
    f.quick(quick);
  }

  void run(Communicator& ranks) override {
    check<UsageError>(!out.empty(), "expected --out with a folder; see copy-task figure --help");
    if (Artifact::is_in(out)) continue_run(Artifact::config("--out", out), (fs::path(out) / "config.json").string());
    const std::vector<std::string> specs = split_specs(variants);
    check<UsageError>(!specs.empty(), "--variants: expected at least one");
    std::vector<int64_t> sizes;
    about_option("--lengths", [&] { sizes = rising_integers(lengths, int64_t(1) << 20); });
    const Place place = settings.compute.apply();
    for (const std::string& spec : specs)
      for (const int64_t length : sizes) cells.push_back({spec, length, ""});
    for (Cell& cell : cells) {  // what is refused is refused before anything runs
      settings_of(cell).validate(place.device);
      const TransformerOptions model = settings_of(cell).transformer();
      const int64_t n = sequence_length(cell.length);
      cell.full = full_attention_note(*make_attention(model.attention, model.attention_defaults), n, n);
    }
    make_folder();
    catch_interrupts(quiet);
    for (size_t k = 0; k < cells.size() && !interrupted(); ++k) {
      Cell& cell = cells[k];
      note(concat(k + 1, " of ", cells.size(), ": ", cell.attention, ", length ", cell.length), quiet);
      if (!cell.full.empty()) note(cell.full, quiet);
      train_cell(cell, place, k == 0, ranks);
      if (!interrupted()) note(cell_text(cell), quiet);
      write();
    }
    finish();
  }

  // Makes the folder, unless another process is just doing so.
  void make_folder() const {
    try {
      const Artifact folder(out, config(), Resume::if_there);
    } catch (const InUse&) {
    }
  }

  fs::path folder_of(const Cell& cell) const {
    return fs::path(out) / "cells" / concat(cell.attention, ",length=", cell.length);
  }
  // What a cell is trained with.
  Settings settings_of(const Cell& cell) const {
    Settings result = settings;
    result.model.attention = cell.attention;
    result.length = cell.length;
    return result;
  }

  // Trains what is left of a cell. One that diverges is left out, and one that another process trains is passed over:
  // the others need not wait for them.
  void train_cell(Cell& cell, const Place& place, bool explain, Communicator& ranks) {
    const Settings of_cell = settings_of(cell);
    try {
      CopyTask task(of_cell, place, "", explain);
      Artifact run(folder_of(cell), config_of_cell(cell), Resume::if_there);
      const auto result = run.result();
      cell.result = result && is_finished(*result, of_cell) ? *result : train_run(task, run, quiet, ranks);
    } catch (const Interrupted&) {  // the loop ends
    } catch (const InUse&) {
      cell.trouble = "another process trains it";
    } catch (const DivergedError& error) {
      cell.trouble = error.what();
    }
  }

  // A cell's configuration is that of copy-task train. Error (UsageError): its folder has a run with other settings.
  Json config_of_cell(const Cell& cell) const {
    Settings of_cell = settings_of(cell);
    SettingFields fields;
    of_cell.fields(fields);
    const Json config = fields.config();
    const fs::path folder = folder_of(cell);
    if (!Artifact::is_in(folder)) return config;
    const std::string where = (folder / "config.json").string();
    const std::string differences =
        fields.differences(config, fields.checked(Artifact::config("--out", folder), where));
    check<UsageError>(differences.empty(), where, ": this run of the figure has other settings: ", differences,
                      "; choose another folder");
    return config;
  }

  // Writes the whole figure, with what other processes have finished meanwhile: who ends last writes all of it.
  void write() try {
    Artifact folder(out, config(), Resume::if_there);
    for (Cell& cell : cells) {
      const fs::path result = folder_of(cell) / "result.json";
      if (!cell.result.is_null() || !fs::exists(result)) continue;
      cell.result = read_json(result);
      cell.trouble.clear();
    }
    write_figure(cells, settings, folder);
  } catch (const InUse&) {  // another process writes it, perhaps without our last result
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    write();
  }

  void finish() {
    if (interrupted()) {
      note("Saved; the same command continues", quiet);
      throw Interrupted();
    }
    std::string text;
    for (const Cell& cell : cells) text += cell_text(cell) + "\n";
    tell(figure_json(cells, config()), text + "Report: " + (fs::absolute(out) / "report.html").string() + "\n");
    for (const Cell& cell : cells)
      check<DivergedError>(!cell.result.is_null() || cell.trouble.find("diverged") == std::string::npos, cell.trouble);
  }

  Settings settings;
  std::string out, variants = paper_variants, lengths = "31,63,127,255";
  std::vector<Cell> cells;
};

}  // namespace

std::unique_ptr<Command> make_figure() { return std::make_unique<FigureCommand>(); }

}  // namespace cairn::copy_task

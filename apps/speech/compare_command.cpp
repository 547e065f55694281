// speech compare: trained models, each with several attention variants. It makes the paper's tables 1 and 2 and figures
// 1a and 7a, and two tables of differences.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/bootstrap.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/report.h"
#include "apps/common/variants.h"
#include "apps/speech/train.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn::speech {

namespace {

namespace fs = std::filesystem;
using svg::number;
using Rows = Report::Rows;

// A model with an attention: means over its seeds.
struct Cell {
  std::vector<double> errors;    // of each sequence
  std::vector<double> rates;     // the error rate of each seed
  double rate = 0, seconds = 0;  // seconds of the forward pass of a sequence
  Difference minus_own{};        // to the model with the attention that it was trained with
};

// Runs that differ only in the seed, and in the run that they started from.
struct Trained {
  std::string name;  // its attention, and further settings that tell it from the other models
  std::vector<std::unique_ptr<SavedRun>> seeds;
  std::vector<std::vector<Sentence>> sequences;  // to evaluate with, of each seed
  std::vector<svg::Series> curves;               // the error on dev over seconds of training, of each seed
  std::vector<std::optional<Cell>> cells;        // for each attention of the table; none: the weights cannot take it
  // Means over the seeds: seconds of an epoch, and the evaluation with the lowest error on dev.
  double epoch = 0, best_error = 0, best_step = 0, best_seconds = 0;

  const std::string& attention() const { return seeds[0]->settings.model.attention; }
};

std::string percent(double rate) { return std::isnan(rate) ? "–" : formatted("%.1f%%", 100 * rate); }

std::string text_of(const std::optional<Cell>& cell) {
  if (!cell) return "–";
  if (cell->rates.size() == 1) return percent(cell->rate);
  const auto [low, high] = std::minmax_element(cell->rates.begin(), cell->rates.end());
  return concat(percent(cell->rate), formatted(" (%.1f to %.1f)", 100 * *low, 100 * *high));
}

struct Comparison {
  // Declares the settings, and takes those that the user gave.
  explicit Comparison(CommandLine& command_line) : line(command_line) {
    line("runs", runs, Text::any, "folders of runs, separated by commas");
    line("attention", attention, several_variants,
         "attention variants to evaluate with, separated by commas (those of the runs are added)");
    line("data", data, Text::file, "the prepared data (default: the first run's)");
    line("part", part, {{"test", "test"}, {"dev", "dev"}, {"train", "train"}},
         "train, dev or test: the part of the data");
    line("join", joined, {0, 100}, "sentences that are joined into one sequence; 0: as in the first run");
    line("out", out, Text::file, "write the tables and pictures to this page (HTML)");
    line.threads();
    device_field(line, device);
    line.footer(
        "Tables: the error of each model with each attention; how fast it learned. Pictures: error against\n"
        "the time of a forward pass, and against the time of the training. Runs that differ only in --seed\n"
        "and --init-from count as one model: its figures are means.\n\n"
        "Example:\n  speech compare --runs full-1,full-2,clustered --attention full,i-clustered-25 --out "
        "page.html");
    line.parse();
  }

  void run() {
    check<UsageError>(!runs.empty(), "expected --runs with folders of runs, separated by commas");
    const fs::path page = out.empty() ? fs::path() : output_path("--out", out, "");
    catch_interrupts(line.quiet);
    read_models();
    choose_variants();
    evaluate_all();
    add_tables();
    if (!page.empty()) write_page(page);
    line.tell(as_json(), text + (page.empty() ? "" : concat("Page: ", page.string(), "\n")));
  }

 private:
  // ---- what is compared

  void read_models() {
    std::vector<std::string> folders;
    std::istringstream all(runs);
    for (std::string folder; std::getline(all, folder, ',');) folders.push_back(folder);
    std::vector<std::unique_ptr<SavedRun>> saved;
    std::vector<Json> configs;
    for (const std::string& folder : folders) {
      saved.push_back(std::make_unique<SavedRun>("--runs", folder, device));
      SettingFields fields;
      saved.back()->settings.fields(fields);
      configs.push_back(fields.config());
    }
    std::set<std::pair<std::string, Json>> seen;
    for (size_t i = 0; i < folders.size(); ++i) {
      std::string name = name_of(configs[i], configs);
      if (!seen.insert({name, configs[i].at("seed")}).second) name += concat(", ", folders[i]);
      const auto same = std::find_if(models.begin(), models.end(), [&](const Trained& m) { return m.name == name; });
      Trained& model = same == models.end() ? models.emplace_back() : *same;
      model.name = name;
      model.seeds.push_back(std::move(saved[i]));
    }
    const SavedRun& first = *models[0].seeds[0];
    corpus = read_corpus(TensorReader(data.empty() ? first.settings.data : data));
    if (joined == 0) joined = first.settings.join;
    for (Trained& model : models) {
      for (const auto& run : model.seeds) {
        read_training(model, *run);
        run->settings.join = joined;
        model.sequences.push_back(join(sentences_of(corpus, part, run->front_end, run->settings), joined));
      }
      for (double* mean : {&model.epoch, &model.best_error, &model.best_step, &model.best_seconds})
        *mean /= double(model.seeds.size());
    }
  }

  // The attention, and the settings that tell a run from others with this attention.
  static std::string name_of(const Json& config, const std::vector<Json>& configs) {
    const std::set<std::string> ignored{"attention", "seed", "init_from", "device", "threads", "quick"};
    std::string name = config.at("attention");
    for (const auto& [key, value] : config.items()) {
      const auto differs = [&, &key = key, &value = value](const Json& other) {
        return other.value(key, Json()) != value;
      };
      if (ignored.count(key) == 0 && std::any_of(configs.begin(), configs.end(), differs))
        name += concat(", ", key, " ", value.is_string() ? value.get<std::string>() : value.dump());
    }
    return name;
  }

  // Adds a run's training to the sums of its model.
  void read_training(Trained& model, const SavedRun& run) const try {
    svg::Series& curve = model.curves.emplace_back();
    std::vector<double> steps;  // seconds of each; the median does not count evaluations and pauses
    double before = 0, best_step = 0, best_seconds = 0, best_error = INFINITY;
    for (const Json& record : RunFolder::lines_in(run.folder)) {
      const double seconds = record.at("seconds");
      steps.push_back(seconds - before);
      before = seconds;
      if (!record.contains("evaluation")) continue;
      const double error = number_or_nan(record.at("evaluation").at("phone_error_rate"));
      curve.x.push_back(seconds);
      curve.y.push_back(error);
      if (!(error < best_error)) continue;
      best_error = error;
      best_step = record.at("step");
      best_seconds = seconds;
    }
    check<DataError>(!curve.x.empty(), "--runs ", run.folder, ": has no evaluation yet");
    std::nth_element(steps.begin(), steps.begin() + long(steps.size() / 2), steps.end());
    const std::vector<Sentence> train =
        join(sentences_of(corpus, "train", run.front_end, run.settings), run.settings.join);
    model.epoch += steps[steps.size() / 2] * double(cut_batches(train, run.settings.batch_frames).size());
    model.best_error += best_error;
    model.best_step += best_step;
    model.best_seconds += best_seconds;
  } catch (const Json::exception&) {
    throw damaged(fs::path(run.folder) / "metrics.jsonl");
  }

  // The rows of the table: those that the user asks for, those of the models, and the controls.
  void choose_variants() {
    std::vector<std::string> all = split_specs(attention);
    for (const Trained& model : models) all.push_back(model.attention());
    const std::vector<std::string> controls{same_for_all, no_attention};
    const auto is_in = [](const std::vector<std::string>& list, const std::string& spec) {
      return std::find(list.begin(), list.end(), spec) != list.end();
    };
    for (const std::string& spec : all) {
      if (is_in(specs, spec) || is_in(controls, spec)) continue;
      name_in_errors("--attention", [&] { parse_attention(spec); });
      specs.push_back(spec);
    }
    specs.insert(specs.end(), controls.begin(), controls.end());
  }

  void evaluate_all() {
    for (Trained& model : models)
      for (const std::string& spec : specs) model.cells.push_back(evaluate(model, spec));
    for (Trained& model : models)
      for (std::optional<Cell>& cell : model.cells)
        if (cell) cell->minus_own = difference_of(cell->errors, own(model).errors, phones);
  }

  // None: the weights cannot take the attention.
  std::optional<Cell> evaluate(Trained& model, const std::string& spec) {
    if (model.attention() == no_attention && spec != no_attention) return {};  // its queries and keys learned nothing
    Cell cell;
    note(concat("evaluating ", model.name, " with ", spec), line.quiet);
    for (size_t seed = 0; seed < model.seeds.size(); ++seed) {
      const SavedRun& run = *model.seeds[seed];
      try {
        run.model->encoder.swap_attention(spec);
      } catch (const UsageError&) {
        return {};
      }
      const std::vector<Sentence>& sequences = model.sequences[seed];
      const Recognition found = recognize(*run.model, sequences, run.settings, true);
      const double seeds = double(model.seeds.size());
      cell.errors.resize(sequences.size());
      phones.resize(sequences.size());
      for (size_t i = 0; i < sequences.size(); ++i) {
        cell.errors[i] += double(found.errors[i]) / seeds;
        phones[i] = double(sequences[i].labels.size());
      }
      cell.rates.push_back(found.phone_error_rate);
      cell.rate += found.phone_error_rate / seeds;
      cell.seconds += found.seconds / double(sequences.size()) / seeds;
    }
    return cell;
  }

  // A model with the attention that it was trained with.
  const Cell& own(const Trained& model) const {
    const auto at = std::find(specs.begin(), specs.end(), model.attention()) - specs.begin();
    return *model.cells[size_t(at)];
  }

  // ---- what is shown

  struct Table {
    std::string title, caption;
    std::vector<std::string> names;
    Rows rows;
  };

  void add_tables() {
    std::vector<std::string> names{"evaluated with"};
    for (const Trained& model : models) names.push_back(model.name);
    Rows errors, changes, times, pairs, trainings;
    for (size_t i = 0; i < specs.size(); ++i) {
      errors.push_back({specs[i]});
      changes.push_back({specs[i]});
      times.push_back({specs[i]});
      for (const Trained& model : models) {
        const std::optional<Cell>& cell = model.cells[i];
        errors.back().push_back(text_of(cell));
        changes.back().push_back(cell ? in_points(cell->minus_own) : "–");
        times.back().push_back(cell ? formatted("%.1f", 1e3 * cell->seconds) : "–");
      }
    }
    for (size_t a = 0; a < models.size(); ++a) {
      const Trained& model = models[a];
      for (size_t b = 0; b < a; ++b)
        pairs.push_back({concat(model.name, " minus ", models[b].name),
                         in_points(difference_of(own(model).errors, own(models[b]).errors, phones))});
      trainings.push_back({model.name, formatted("%.1f s", model.epoch), number(model.best_step),
                           formatted("%.0f s", model.best_seconds), percent(model.best_error),
                           percent(own(model).rate)});
    }
    const std::string mean = "Where a model has several seeds: the mean, and the lowest and highest.";
    tables = {
        {"Error with each attention",
         concat("Phone error rate on ", part, ", in ", phones.size(), joined == 1 ? " sentences" : " sequences of ",
                joined == 1 ? "" : concat(joined, " sentences"),
                ". A column is a model, named by the attention that it was trained with; a row is the attention "
                "that it is evaluated with. No weight is changed. clustered-1 gives all queries the same "
                "attention, and none removes it: where they cost little, the model hardly uses its attention. ",
                mean),
         names, errors},
        {"What another attention costs",
         "The same, minus the model's error with its own attention, in points, with 95% intervals (a bootstrap "
         "over the sequences).",
         names, changes},
        {"Milliseconds with each attention", "The forward pass of a sequence, a mean.", names, times},
        {"How the models learned",
         "Seconds of an epoch without evaluations; the step and the time of the lowest error on dev. The error on "
         "the right is with the model's own attention.",
         {"model", "epoch", "best step", "time to it", "lowest error on dev", concat("error on ", part)},
         trainings}};
    if (!pairs.empty())
      tables.push_back({"Models beside each other",
                        "Each with its own attention: the difference of the errors, in points, with 95% intervals.",
                        {"models", "difference"},
                        pairs});
    for (const Table& table : tables) text += concat(table.title, "\n", table_text(table.names, table.rows));
  }

  // A color for each attention.
  int color_of(const std::string& spec) const {
    return int(std::find(specs.begin(), specs.end(), spec) - specs.begin());
  }

  void write_page(const fs::path& path) const {
    Report page("Speech recognition with other attention",
                "Transformers that write down phones, trained with one attention variant and evaluated with others.");
    for (const Table& table : tables) {
      page.section(table.title);
      page.text(table.caption);
      page.table(table.names, table.rows);
    }
    page.section("Error and time");
    svg::LineChart forward, learning;
    forward.title = "Error against the time of a forward pass";
    forward.x = {.label = "milliseconds a sequence", .low = 0};
    forward.y = {.label = concat("phone error rate on ", part), .percent = true};
    learning.title = "Error on dev against the time of the training";
    learning.x = {.label = "seconds of training", .low = 0};
    learning.y = {.label = "phone error rate on dev", .low = 0, .percent = true};
    std::map<std::string, std::vector<std::pair<double, double>>> points;  // by attention
    for (const Trained& model : models) {
      const size_t before = points[model.attention()].size();  // models with this attention
      points[model.attention()].emplace_back(1e3 * own(model).seconds, own(model).rate);
      for (size_t seed = 0; seed < model.curves.size(); ++seed) {
        svg::Series& curve = learning.series.emplace_back(model.curves[seed]);
        curve.color = color_of(model.attention());
        curve.dash = int(before % 3);
        if (seed == 0 && before == 0) curve.name = model.attention();  // short, and once for each color
      }
    }
    for (auto& [spec, all] : points) {
      std::sort(all.begin(), all.end());
      svg::Series& curve = forward.series.emplace_back(svg::Series{spec, {}, {}, color_of(spec), true});
      for (const auto& [x, y] : all) {
        curve.x.push_back(x);
        curve.y.push_back(y);
      }
    }
    page.figures({{svg::draw(forward),
                   "A point is a model with its own attention. Lower left is better. The paper's figure 1a."},
                  {svg::draw(learning),
                   "A line is a training. Of several models with one attention, the tables' first has solid lines, the "
                   "second dashes, the third points. The paper's figure 7a."}},
                 2);
    replace_file(path, {page.html()});
  }

  Json as_json() const {
    Json result{{"part", part}, {"join", joined}, {"sequences", phones.size()}};
    const auto interval = [](const Difference& d) { return Json{d.value, d.low, d.high}; };
    for (const Trained& model : models) {
      Json rows = Json::array();
      for (size_t i = 0; i < specs.size(); ++i)
        if (const auto& cell = model.cells[i])
          rows.push_back({{"attention", specs[i]},
                          {"phone_error_rate", finite_or_null(cell->rate)},
                          {"of_seeds", cell->rates},
                          {"minus_own", interval(cell->minus_own)},
                          {"seconds_per_sequence", cell->seconds}});
      result["models"].push_back({{"model", model.name},
                                  {"epoch_seconds", model.epoch},
                                  {"best_step", model.best_step},
                                  {"best_seconds", model.best_seconds},
                                  {"best_error_on_dev", finite_or_null(model.best_error)},
                                  {"rows", rows}});
      for (const Trained* other = models.data(); other != &model; ++other)
        result["pairs"].push_back(
            {{"model", model.name},
             {"minus", other->name},
             {"difference", interval(difference_of(own(model).errors, own(*other).errors, phones))}});
    }
    return result;
  }

  std::string runs, attention, data, part = "test", out, text;
  int64_t joined = 0;
  std::optional<Device> device;
  Corpus corpus;
  std::vector<Trained> models;
  std::vector<std::string> specs;
  std::vector<double> phones;  // of each sequence
  std::vector<Table> tables;
  CommandLine& line;
};

}  // namespace

void compare_command(CommandLine& line) { Comparison(line).run(); }

}  // namespace cairn::speech

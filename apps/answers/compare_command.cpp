// answers compare: trained models with other attention, as in the paper's table 4.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "apps/answers/train.h"
#include "apps/common/bootstrap.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/report.h"
#include "apps/common/variants.h"
#include "nn/io/json.h"

namespace cairn::answers {
namespace {

struct Comparison {
  // Declares the settings, and takes those that the user gave.
  explicit Comparison(CommandLine& command_line) : line(command_line) {
    line("runs", runs, Text::any, "folders of runs, separated by commas");
    line("attention", attention, several_variants, "attention variants beside full, separated by commas");
    line("data", data, Text::file, "the questions (default: the first run's)");
    line("part", part, {{"test", "test"}, {"dev", "dev"}, {"train", "train"}},
         "train, dev or test: the part of the data");
    line("questions", most, {1, 1 << 20}, "at most so many questions of the part, evenly spaced");
    line("batch", batch, {1, 4096}, "questions answered at once");
    line("seeds", seeds, {1, 1000}, "number of random seeds of the attention");
    compute.fields(line);
    line.footer(
        "No weight is changed (the paper's table 4). A row has means over runs and seeds.\n"
        "  exact match     in percent of the questions, with the lowest and the highest\n"
        "  kept            its share of full attention's, in percent, with a 95% interval\n"
        "  f1              of the positions of the answer\n"
        "  entry           how often the right entry is chosen; of five, by chance 20%\n"
        "  minus overlap   the same, minus that of word overlap weighted by rarity, with a 95% interval\n"
        "  most attended   how many of a question's tokens still give their largest weight to the token that full\n"
        "                  attention would (20 questions)\n"
        "  time            milliseconds of the model for a question\n"
        "Intervals are bootstraps over source packages. Word overlap knows where entries begin.\n\n"
        "Example:\n  answers compare --runs run-1,run-2");
    line.parse();
  }

  void run() {
    check<UsageError>(!runs.empty(), "expected --runs with folders of runs, separated by commas");
    catch_interrupts(line.quiet);
    const DeviceAndDType device = compute.apply();
    std::vector<SavedRun> models;
    std::istringstream folders(runs);
    for (std::string folder; std::getline(folders, folder, ',');) {
      models.emplace_back("--runs", folder);
      place(*models.back().model, device);
      const Model &own = *models.back().model, &first = *models[0].model;
      check<UsageError>(own.max_tokens == first.max_tokens && own.tokenizer.size() == first.tokenizer.size(),
                        "--runs: ", folder, " and ", models[0].folder, " differ in --max-tokens or in the vocabulary");
    }
    read(models[0]);
    std::vector<std::string> specs = split_specs(attention);
    specs.insert(specs.begin(), "full");
    name_in_errors("--attention", [&] {
      for (const std::string& spec : specs) models[0].model->bert->encoder.swap_attention(spec);  // checks it
    });
    for (const std::string& spec : specs) {
      std::vector<Answers> found;
      double same = 0;
      for (const SavedRun& each : models) {
        each.model->bert->encoder.swap_attention(spec);
        same += same_most_attended(*each.model, some, compute.seed) / double(models.size());
        for (int64_t i = 0; i < seeds; ++i)
          found.push_back(answer(*each.model, questions, answer_tokens, batch,
                                 int64_t(uint64_t(compute.seed) + uint64_t(i)), true));
      }
      add_row(spec, found, same);
    }
    std::vector<Answers> untrained;
    for (const SavedRun& each : models) {
      Generator generator(uint64_t(each.settings.compute.seed));
      Model model(each.settings, generator);
      model.bert->encoder.swap_attention("full");
      place(model, device);
      untrained.push_back(answer(model, questions, answer_tokens, batch, compute.seed, true));
    }
    add_row("full, not trained", untrained);
    for (const auto& [name, entry] : {std::pair("word overlap", &overlap), std::pair("weighted overlap", &idf_overlap)})
      add_row(name, {{std::vector<double>(questions.size(), NAN), std::vector<double>(questions.size(), NAN), *entry,
                      NAN, NAN}});
    line.tell(
        {{"part", part}, {"questions", questions.size()}, {"answer_tokens", answer_tokens}, {"rows", rows}},
        concat("Questions of ", part, ": ", questions.size(), "\n\n",
               table_text({"attention", "exact match", "kept", "f1", "entry", "minus overlap", "most attended", "time"},
                          table)));
  }

 private:
  void read(const SavedRun& first) {
    const std::vector<Question> all = read_questions(data.empty() ? first.settings.data : data, part,
                                                     first.model->tokenizer, first.model->max_tokens, INT64_MAX);
    answer_tokens = first.settings.answer_tokens;
    for (const Question& each : all) answer_tokens = std::max(answer_tokens, each.end - each.begin);
    const size_t n = std::min(all.size(), size_t(most));
    for (size_t i = 0; i < n; ++i) {
      questions.push_back(all[i * all.size() / n]);
      overlap.push_back(questions.back().overlap);
      idf_overlap.push_back(questions.back().idf_overlap);
    }
    for (size_t i = 0; i < std::min<size_t>(20, n); ++i) some.push_back(questions[i * n / std::min<size_t>(20, n)]);
  }

  // Sums over the questions of a source, because those are alike.
  std::vector<double> by_source(const std::vector<double>& values) const {
    std::map<std::string, double> sums;
    for (size_t i = 0; i < values.size(); ++i) sums[questions[i].source] += values[i];
    std::vector<double> result;
    for (const auto& [source, sum] : sums) result.push_back(sum);
    return result;
  }

  void add_row(const std::string& name, const std::vector<Answers>& found, double same = NAN) {
    Answers all;  // means
    for (const auto which : {&Answers::exact, &Answers::f1, &Answers::entry}) {
      (all.*which).resize(questions.size());
      for (const Answers& each : found)
        for (size_t i = 0; i < questions.size(); ++i) (all.*which)[i] += (each.*which)[i] / double(found.size());
    }
    std::vector<double> matches;
    for (const Answers& each : found) {
      matches.push_back(mean(each.exact));
      all.loss += each.loss / double(found.size());
      all.seconds += each.seconds / double(found.size());
    }
    if (full.empty()) full = by_source(all.exact);
    const Difference kept = difference_of(by_source(all.exact), std::vector<double>(full.size()), full);
    const Difference more = difference_of(by_source(all.entry), by_source(idf_overlap),
                                          by_source(std::vector<double>(questions.size(), 1)));
    const auto percent = [](double value) { return std::isnan(value) ? "–" : formatted("%.1f", 100 * value); };
    const auto interval = [&](double low, double high) {
      return std::isnan(low) ? "" : concat(" [", percent(low), ", ", percent(high), "]");
    };
    const auto [low, high] = std::minmax_element(matches.begin(), matches.end());
    table.push_back({name, percent(mean(all.exact)) + interval(*low, *high),
                     percent(kept.value) + interval(kept.low, kept.high), percent(mean(all.f1)),
                     percent(mean(all.entry)), in_points(more), percent(same),
                     std::isnan(all.seconds) ? "–" : formatted("%.1f", 1e3 * all.seconds)});
    Json row = as_json(all);
    row.update({{"attention", name},
                {"of_runs_and_seeds", matches},
                {"kept", {kept.value, kept.low, kept.high}},
                {"minus_overlap", {more.value, more.low, more.high}},
                {"same_most_attended", finite_or_null(same)},
                {"seconds", finite_or_null(all.seconds)}});
    rows.push_back(row);
    note(concat(name, ": exact match ", table.back()[1]), line.quiet);
  }

  std::string runs, data, part = "test";
  std::string attention =
      "clustered-25,clustered-25:refine=1,clustered-100,clustered-100:refine=1,i-clustered-25,i-clustered-25:refine=1,"
      "i-clustered-100,i-clustered-100:refine=1,oracle-top-32,position-25,local-32,local-64,longformer-32:global=16,"
      "strided-19,clustered-1";
  int64_t most = 1 << 20, batch = 8, seeds = 3;
  ComputeSettings compute;
  std::vector<Question> questions, some;  // some: those whose attention is compared
  int64_t answer_tokens = 0;              // as in the first run, but at least as many as the longest right answer has
  std::vector<double> overlap, idf_overlap;  // of the questions
  std::vector<double> full;                  // full attention's exact matches of each source
  Report::Rows table;
  Json rows = Json::array();
  CommandLine& line;
};

}  // namespace

void compare_command(CommandLine& line) { Comparison(line).run(); }

}  // namespace cairn::answers

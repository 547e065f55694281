// text-search compare: attention variants in a pretrained model, beside full attention.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/artifact.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/text_search/commands.h"
#include "apps/text_search/compare.h"
#include "apps/text_search/files.h"
#include "apps/text_search/labeled.h"
#include "core/parallel.h"
#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// 1 stands for itself; what only rounds to it has its digits.
std::string share_text(double value) { return value == 1 ? "1" : formatted("%.3f", std::min(value, 0.999)); }

struct CompareCommand : Command {
  CompareCommand()
      : Command(
            "compare", "Compare attention variants in a pretrained model on your own text",
            "Sequences of each length are cut from the files and embedded by full attention and by each variant, with\n"
            "the same weights. Told are the error (1 - the cosine of the embeddings), how many of ten nearest "
            "neighbors "
            "stay,\nand the time.\n"
            "With --labeled, the label of a text is also guessed from those of the five nearest, as in the paper's "
            "table 4."
            "\nEach line of that file is a JSON object with the strings text, label and group; groups are split by a "
            "hash\nof their names. apps/text_search/debian_sections.py makes such a file of Debian's packages.\n\n"
            "Examples:\n"
            "  text-search compare ~/notes --model model --lengths 128,512\n"
            "  text-search compare --labeled sections.jsonl --model model --lengths 128 --out rows.jsonl") {
    options.batch = 8;
  }

  void fields(SettingFields& f) override {
    search.fields(f);
    f("variants", variants, Text::variants, "attention variants, comma-separated");
    f("lengths", lengths, Text::any, "tokens of a sequence, comma-separated, rising; with --labeled, at most");
    f("sequences", sequences, {2, 1 << 20},
      "sequences of each length, at most; with --labeled, texts whose label is asked for");
    f("labeled", labeled, Text::file, "texts with labels (JSON lines), in the place of PATH", Keep::no);
    f("picture", picture, Text::file, "draw error against time here (SVG)", Keep::no);
    f("out", out, Text::file,
      "keep the rows here that are finished (JSON lines); those that are there are not measured again", Keep::no);
    options.fields(f);
  }

  void run(Communicator&) override {
    catch_interrupts(quiet);
    std::vector<int64_t> all;
    about_option("--lengths", [&] { all = rising_integers(lengths, int64_t(1) << 20); });
    check<UsageError>(all.front() >= 8, "--lengths: expected at least 8, got ", all.front());
    check<UsageError>(labeled.empty() || search.paths.empty(), "--labeled takes the place of PATH, got both");
    const std::filesystem::path drawn = picture.empty() ? "" : output_path("--picture", picture, labeled);
    read_texts();
    read_finished();
    Embedder embedder(options);
    check<UsageError>(all.back() <= embedder.max_tokens(), "--lengths: the model has ", embedder.max_tokens(),
                      " positions, got ", all.back());
    const std::vector<std::string> specs = variants_of(embedder, variants);

    Json rows = Json::array();
    std::string text = concat("Text: ", texts.size(), labeled.empty() ? " files\n" : " texts\n");
    for (const int64_t length : all) {
      const Json found = compare_at(embedder, length, specs);
      rows.insert(rows.end(), found.begin(), found.end());
      text += table_of(found);
    }
    const Json result = {{"model", std::filesystem::absolute(options.model).lexically_normal().string()},
                         {"device", name(embedder.device())},
                         {"batch", options.batch},
                         {"threads", threads()},
                         {"texts", texts.size()},
                         {"rows", rows}};
    if (!drawn.empty()) replace_file(drawn, {comparison_picture(rows)});
    tell(result,
         text +
             "\nError: 1 - the cosine with the embedding by full attention. Neighbors: ten a sequence. full/: how "
             "many times as fast as full attention.\n");
  }

  void read_texts() {
    if (!labeled.empty()) {
      split = split_by_group(read_examples(read_file(labeled), labeled), sequences);
      for (const auto* side : {&split->asked, &split->given})
        for (const Example& example : *side) texts.push_back(example.text);
      return;
    }
    SkippedCounts skipped;
    for (const auto& file : find_files(search, options.model))
      if (std::optional<std::string> text = read_text(file, skipped)) texts.push_back(std::move(*text));
  }

  void read_finished() {
    if (out.empty()) return;
    kept = output_path("--out", out, labeled);
    if (!is_there(kept)) return;
    lines = read_file(kept);
    for (const std::string& line : lines_of(lines)) {
      const std::string where = concat("--out ", out, ", line ", finished.size() + 1);
      finished.push_back(parse_json(line, where));
      check<DataError>(finished.back().is_object() && finished.back().contains("key"), where,
                       ": expected a row of text-search compare; choose another file");
    }
  }

  // The rows of a length, full attention first.
  Json compare_at(Embedder& embedder, int64_t length, const std::vector<std::string>& specs) {
    Sequences tokens;
    for (const std::string& text : texts)
      tokens.push_back(split ? embedder.tokenizer().encode(text, length) : embedder.tokenizer().tokenize(text));
    if (!split) tokens = cut_sequences(tokens, embedder.tokenizer(), length, sequences);
    // All that a row depends on but the variant.
    std::string key = concat(embedder.fingerprint(), ' ', options.compute.seed, ' ', options.batch, ' ', threads(), ' ',
                             name(embedder.device()), ' ', int(options.compute.precision));
    for (const auto& sequence : tokens)
      key += xxh128({reinterpret_cast<const char*>(sequence.data()), sequence.size() * sizeof(sequence[0])});
    if (split)
      for (const Example& example : split->asked) key += concat(' ', example.label, ' ', example.group);
    Json rows;
    Tensor full;  // the embeddings by full attention, once a row is to be measured
    for (const std::string& spec : specs) {
      const std::string row_key = xxh128(concat(key, ' ', spec));
      const auto known =
          std::find_if(finished.begin(), finished.end(), [&](const Json& row) { return row["key"] == row_key; });
      if (known != finished.end()) {
        rows.push_back(*known);
        continue;
      }
      double seconds = 0, unused = 0;
      const Tensor mine = embed(embedder, tokens, spec, seconds);
      if (!full.defined()) full = spec == "full" ? mine : embed(embedder, tokens, "full", unused);
      Json row = {{"key", row_key}, {"length", length}, {"attention", spec}, {"seconds_per_token", seconds}};
      row.update(difference_of(mine, full));
      if (split) row["right"] = knn_correct(*split, mine);
      if (split) add_accuracy(rows.empty() ? row : rows[0], row);
      rows.push_back(row);
      lines += row.dump() + "\n";
      if (!kept.empty()) replace_file(kept, {lines});
    }
    return rows;
  }

  // Embeds by a variant; tells the median of its batches' times.
  Tensor embed(Embedder& embedder, const Sequences& tokens, const std::string& spec, double& seconds_per_token) const {
    embedder.set_attention(spec);
    std::vector<double> seconds;
    auto before = Clock::now();
    const Tensor rows = embedder.embed(tokens, quiet, [&](const std::vector<size_t>& batch, const Tensor&) {
      int64_t count = 0;
      for (const size_t i : batch) count += int64_t(tokens[i].size());
      const auto now = Clock::now();
      seconds.push_back(std::chrono::duration<double>(now - before).count() / double(count));
      before = now;
    });
    const auto middle = seconds.begin() + std::ptrdiff_t(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    seconds_per_token = *middle;
    return rows;
  }

  // The share of texts that got their label, and how much more than by full attention.
  void add_accuracy(const Json& full, Json& row) const {
    const std::string right = row["right"], by_full = full["right"];
    std::vector<double> values, differences;
    for (size_t i = 0; i < right.size(); ++i) {
      values.push_back(right[i] - '0');
      differences.push_back(right[i] - by_full[i]);
    }
    const Interval accuracy = interval_of(values, split->asked), change = interval_of(differences, split->asked);
    row["accuracy"] = {accuracy.mean, accuracy.low, accuracy.high};
    row["minus_full"] = {change.mean, change.low, change.high};
  }

  std::string table_of(const Json& rows) const {
    std::string text = concat("\n", rows[0]["length"].get<int64_t>(), split ? " tokens at most\n" : " tokens\n");
    text += formatted("%-24s %10s %10s %14s %11s %6s", "attention", "mean error", "largest", "neighbors kept",
                      "us a token", "full/");
    text += split ? formatted(" %22s %23s\n", "accuracy [95%]", "minus full [95%]") : "\n";
    for (const Json& row : rows) {
      const auto number = [&](const char* key) { return row[key].get<double>(); };
      text += formatted("%-24s %10.2g %10.2g %14s %11.1f %6.2f", row["attention"].get<std::string>().c_str(),
                        number("mean_error"), number("largest_error"), share_text(number("neighbors_kept")).c_str(),
                        number("seconds_per_token") * 1e6,
                        rows[0]["seconds_per_token"].get<double>() / number("seconds_per_token"));
      if (split) {
        const std::vector<double> accuracy = row["accuracy"], change = row["minus_full"];
        text += formatted("    %.3f [%.3f, %.3f]  %+.3f [%+.3f, %+.3f]", accuracy[0], accuracy[1], accuracy[2],
                          change[0], change[1], change[2]);
      }
      text += "\n";
    }
    return text;
  }

  FileSearch search;
  EmbedderOptions options;
  std::string picture, labeled, out, lengths = "128,384,512";
  std::string variants =
      "clustered-25,clustered-25:refine=2,i-clustered-25,i-clustered-25:refine=1,i-clustered-25:refine=2,"
      "i-clustered-100,i-clustered-100:refine=1,oracle-top-32,position-25,i-position-25";
  int64_t sequences = 200;
  std::vector<std::string> texts;  // of files; with labels, of those asked for, then of the others
  std::optional<Split> split;      // with labels
  std::filesystem::path kept;      // --out, and its lines
  std::string lines;
  std::vector<Json> finished;
};

}  // namespace

std::unique_ptr<Command> make_compare() { return std::make_unique<CompareCommand>(); }

}  // namespace cairn::text_search

// text-search table: what variants of attention cost on a task with labels, as in the paper's table 4.
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/common/format.h"
#include "apps/common/progress.h"
#include "apps/common/run_folder.h"
#include "apps/text_search/commands.h"
#include "apps/text_search/model_command.h"
#include "apps/text_search/table.h"
#include "core/parallel.h"
#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

using Json = nlohmann::ordered_json;

// What was computed so far, in a folder's cells.jsonl: a line each for a variant, a seed and a task.
class Cells {
 public:
  Cells(const std::filesystem::path& folder, std::string settings)
      : file_(folder.empty() ? folder : folder / "cells.jsonl"), settings_(std::move(settings)) {
    if (file_.empty() || !is_there(file_)) return;
    text_ = read_file(file_);
    size_t line = 1;
    for (size_t begin = 0, end; begin < text_.size(); begin = end + 1, ++line) {
      end = std::min(text_.find('\n', begin), text_.size());
      const std::string where = concat(file_, ", line ", line);
      const Json json = parse_json(std::string_view(text_).substr(begin, end - begin), where);
      const bool is_cell = json.is_object() && json.contains("key") && json["key"].is_string() &&
                           json.contains("right") && json["right"].is_string() &&
                           json["right"].get_ref<const std::string&>().find_first_not_of("01") == std::string::npos;
      check<DataError>(is_cell, where, ": expected an object with the strings key and right, of 0 and 1");
      cells_[json["key"].get<std::string>()] = json["right"].get<std::string>();
    }
  }

  std::string key(const Task& task, const std::string& spec, uint64_t seed) const {
    return concat(settings_, ' ', task.length, ' ', spec, ' ', seed);
  }
  // "1" where a document of the test got its label, "0" where not; null: not computed yet.
  const std::string* find(const std::string& key) const {
    const auto found = cells_.find(key);
    return found == cells_.end() ? nullptr : &found->second;
  }
  void add(const std::string& key, const std::string& right) {
    cells_[key] = right;
    text_ += Json{{"key", key}, {"right", right}}.dump() + "\n";
    if (!file_.empty()) replace_file(file_, {text_});
  }

 private:
  std::filesystem::path file_;
  std::string settings_, text_;
  std::map<std::string, std::string> cells_;
};

struct TableCommand : ModelCommand {
  explicit TableCommand(CLI::App& app)
      : ModelCommand(
            app, "table", "Measure variants of attention on texts with labels: the paper's table 4",
            "Each line of --labeled is a JSON object with the strings text, label and group. A text gets the label "
            "that\n"
            "most of the nearest other texts have. Groups are split by a hash of their names. Texts are cut at "
            "--length\n"
            "tokens. With --out, what is finished is kept, and the same command goes on.\n"
            "apps/text_search/debian_sections.py makes such a file of Debian's packages.\n\nExample:\n"
            "  text-search table --labeled sections.jsonl --model model --out table4",
            16) {
    add_path(command, "--labeled", labeled, "FILE", "texts with labels (JSON lines)");
    add_path(command, "--out", out, "DIR", "write table.json into this folder, and keep what is finished there");
    options.text("variants", variants, "attention variants, comma-separated");
    options.integer("length", length, 8, 1 << 20, "tokens of a text at most");
    options.integer("train", train, 1, 1 << 24, "texts whose labels are given");
    options.integer("test", test, 1, 1 << 24, "texts whose labels are asked for");
    options.integer("nearest", nearest, 1, 1 << 20, "how many texts decide");
    options.integer("seeds", seeds, 1, 1000, "hash seeds for variants that draw random numbers");
    define_rest("texts that are embedded together");
    on_run(command, [this] { execute(); });
  }

  void execute() {
    read_options();
    check<UsageError>(!labeled.empty(), "expected --labeled with a file of texts; see text-search table --help");
    const EmbedderOptions embedder_options = this->embedder_options();
    const Examples examples = read_examples(labeled);
    const Split split = split_by_group(examples.all, train, test);
    Embedder embedder(embedder_options);
    check<UsageError>(length <= embedder.max_tokens(), "--length: the model has ", embedder.max_tokens(),
                      " positions, got ", length);
    const std::vector<std::string> specs = variants_of(embedder, variants);
    std::optional<FolderLock> lock;
    if (!out.empty()) lock.emplace(out);
    Cells cells(out, concat(xxh128(concat(embedder.fingerprint(), examples.hash)), ' ', train, ' ', test, ' ', nearest,
                            ' ', batch, ' ', name(embedder.device()), ' ', name(embedder.bert().activation_dtype)));
    const Task task = make_task(examples.all, split, embedder.tokenizer(), length);
    const TaskScore found = score(embedder, task, specs, cells);
    Json json = {{"labeled", labeled},     {"labeled_hash", examples.hash},
                 {"model", model},         {"device", name(embedder.device())},
                 {"threads", threads()},   {"batch", batch},
                 {"nearest", nearest},     {"length", length},
                 {"train", train},         {"test", test},
                 {"tokens", found.tokens}, {"variants", variants_json(found)}};
    if (!out.empty()) replace_file(std::filesystem::path(out) / "table.json", {json.dump(2) + "\n"});
    print(output.json ? json.dump() + "\n" : score_text(found));
  }

  // The seeds of a variant: one where the longest sequence's embedding is the same under two.
  int64_t seeds_of(Embedder& embedder, const Sequences& sequences, const std::string& spec) const {
    const Sequences longest{*std::max_element(sequences.begin(), sequences.end(),
                                              [](const auto& a, const auto& b) { return a.size() < b.size(); })};
    embedder.set_attention(spec);
    std::vector<float> first;
    for (const int64_t seed : {int64_t{0}, int64_t{1}}) {
      embedder.set_seed(uint64_t(common.seed + seed));
      const auto rows = embedder.embed(longest).to_vector<float>();
      if (seed == 1 && rows != first) return seeds;
      first = rows;
    }
    return 1;
  }

  TaskScore score(Embedder& embedder, const Task& task, const std::vector<std::string>& specs, Cells& cells) const {
    Sequences sequences;
    TaskScore result;
    for (const auto* side : {&task.train, &task.test})
      for (const Document& document : *side) {
        sequences.push_back(document.tokens);
        result.tokens += int64_t(document.tokens.size());
      }
    std::vector<int64_t> seeds_by_spec;
    int64_t all_cells = 0;
    for (const std::string& spec : specs) all_cells += seeds_by_spec.emplace_back(seeds_of(embedder, sequences, spec));

    Progress progress(all_cells * int64_t(sequences.size()), output.quiet);
    int64_t done = 0;
    std::vector<double> full;
    for (size_t v = 0; v < specs.size(); ++v) {
      std::vector<double> right(task.test.size());
      for (int64_t s = 0; s < seeds_by_spec[v]; ++s) {
        const auto seed = uint64_t(common.seed + s);
        const std::string key = cells.key(task, specs[v], seed);
        const std::string* known = cells.find(key);
        if (!known || known->size() != right.size()) {
          embedder.set_attention(specs[v]);
          embedder.set_seed(seed);
          const Tensor rows = embedder.embed(sequences, [&](int64_t n, int64_t) {
            if (interrupted()) throw Interrupted();
            progress.update(done + n, concat(task.length, " tokens, ", specs[v], ", seed ", seed));
          });
          std::string bits;
          for (const uint8_t bit : knn_correct(task, rows.slice(0, train), rows.slice(train, rows.size(0)), nearest))
            bits += bit ? '1' : '0';
          cells.add(key, bits);
          known = cells.find(key);
        } else {
          progress.start_at(done + int64_t(sequences.size()));
        }
        done += int64_t(sequences.size());
        for (size_t i = 0; i < right.size(); ++i) right[i] += double((*known)[i] == '1') / double(seeds_by_spec[v]);
      }
      if (v == 0) full = right;
      std::vector<double> difference;
      for (size_t i = 0; i < right.size(); ++i) difference.push_back(right[i] - full[i]);
      result.variants.push_back(
          {specs[v], seeds_by_spec[v], bootstrap(right, task.test), bootstrap(difference, task.test), 0});
    }
    progress.finish();
    add_times(embedder, sequences, specs, result);
    return result;
  }

  // The time of each variant, on some of the documents, one variant after another on each batch.
  void add_times(Embedder& embedder, const Sequences& sequences, const std::vector<std::string>& specs,
                 TaskScore& result) const {
    Sequences some;
    const auto n = std::min<int64_t>(20 * batch, int64_t(sequences.size()));
    for (int64_t i = 0; i < n; ++i) some.push_back(sequences[size_t(i * int64_t(sequences.size()) / n)]);
    const Measured measured = embed_by_each(embedder, some, specs, [](int64_t) {
      if (interrupted()) throw Interrupted();
    });
    for (size_t v = 0; v < specs.size(); ++v) result.variants[v].seconds_per_token = measured.seconds_per_token[v];
  }

  std::string score_text(const TaskScore& score) const {
    std::string text = concat(test, " texts by ", train, ", of ", length, " tokens at most\n");
    text += formatted("%-20s %5s %24s %28s %11s\n", "attention", "seeds", "accuracy [95%]", "minus full [95%]",
                      "us a token");
    for (const VariantScore& v : score.variants)
      text += formatted("%-20s %5lld     %.3f [%.3f, %.3f]     %+.3f [%+.3f, %+.3f] %11.1f\n", v.spec.c_str(),
                        (long long)v.seeds, v.accuracy.mean, v.accuracy.low, v.accuracy.high, v.difference.mean,
                        v.difference.low, v.difference.high, v.seconds_per_token * 1e6);
    return text;
  }

  static Json variants_json(const TaskScore& score) {
    const auto interval = [](const Interval& i) -> Json {
      return {{"mean", i.mean}, {"low", i.low}, {"high", i.high}};
    };
    Json variants = Json::array();
    for (const VariantScore& v : score.variants)
      variants.push_back({{"attention", v.spec},
                          {"seeds", v.seeds},
                          {"accuracy", interval(v.accuracy)},
                          {"difference", interval(v.difference)},
                          {"seconds_per_token", v.seconds_per_token}});
    return variants;
  }

  std::string labeled, out;
  std::string variants =
      "clustered-25,i-clustered-25,oracle-top-32,position-25,i-position-25,clustered-100,i-clustered-100";
  int64_t length = 128, train = 4000, test = 1000, nearest = 5, seeds = 5;
};

}  // namespace

void define_table(CLI::App& app) { define_command<TableCommand>(app); }

}  // namespace cairn::text_search

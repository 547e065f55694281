// text-search compare: compares attention variants in a pretrained model with full attention.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/run_folder.h"
#include "apps/common/variants.h"
#include "apps/text_search/compare.h"
#include "apps/text_search/files.h"
#include "core/error.h"
#include "nn/io/hash.h"

namespace cairn::text_search {
namespace {

namespace fs = std::filesystem;

// "1" only for exactly 1; a share that would round to 1 is shown as 0.999.
std::string share_text(double value) { return value == 1 ? "1" : formatted("%.3f", std::min(value, 0.999)); }

struct Texts {
  Sequences tokens;  // of each file
  std::string hash;  // of all texts
  Skipped skipped;
};

Texts read_texts(const std::vector<fs::path>& files, const WordPiece& tokenizer, Skipped skipped, bool quiet) {
  Texts found{{}, {}, std::move(skipped)};
  Progress progress(int64_t(files.size()), quiet);
  for (const fs::path& file : files) {
    if (interrupted()) throw Interrupted();
    progress.update(&file - files.data() + 1, "files");
    if (const std::optional<std::string> text = read_text(file, found.skipped)) {
      found.hash += xxh128(*text);
      found.tokens.push_back(tokenizer.tokenize(*text));
    }
  }
  progress.finish();
  return found;
}

// A hash of everything a row depends on, except the settings that all rows of the folder share.
std::string key_of(const Embedder& embedder, const Texts& texts, int64_t length, const std::string& spec) {
  return xxh128(
      concat(provenance(embedder.device()).dump(), embedder.fingerprint(), texts.hash, ' ', length, ' ', spec));
}

// The rows of one length, full attention first.
Json compare_at(Embedder& embedder, const Texts& texts, int64_t length, const std::vector<std::string>& specs,
                int64_t sequences, RunFolder& kept, bool quiet) {
  const Sequences tokens = cut_sequences(texts.tokens, embedder.tokenizer(), length, sequences);
  int64_t count = 0;
  for (const auto& sequence : tokens) count += int64_t(sequence.size());
  const std::vector<Json> finished = kept.lines();
  Json rows;
  Tensor full;  // the embeddings with full attention, computed before the first new row
  for (const std::string& spec : specs) {
    const std::string key = key_of(embedder, texts, length, spec);
    const auto known = std::find_if(finished.begin(), finished.end(),
                                    [&](const Json& row) { return row.value("key", Json()) == key; });
    if (known != finished.end()) {
      rows.push_back(*known);
      continue;
    }
    if (!full.defined()) {
      embedder.set_attention("full");
      full = embedder.embed(tokens, quiet);
    }
    embedder.set_attention(spec);
    const Stopwatch time;
    const Tensor mine = embedder.embed(tokens, quiet);
    Json row = {
        {"key", key}, {"length", length}, {"attention", spec}, {"seconds_per_token", time.seconds() / double(count)}};
    row.update(embedding_difference(mine, full));
    rows.push_back(row);
    kept.append(row);
  }
  return rows;
}

std::string table_of(const Json& rows) {
  std::string text = concat("\n", rows[0].at("length").get<int64_t>(), " tokens\n");
  text += formatted("%-24s %7s %7s %14s %8s %13s\n", "attention", "error", "largest", "neighbors kept", "us/token",
                    "speed vs full");
  for (const Json& row : rows) {
    const auto number = [&](const char* key) { return row.at(key).get<double>(); };
    text += formatted("%-24s %7.2g %7.2g %14s %8.1f %13.2f\n", row.at("attention").get<std::string>().c_str(),
                      number("mean_error"), number("largest_error"), share_text(number("neighbors_kept")).c_str(),
                      number("seconds_per_token") * 1e6,
                      rows[0].at("seconds_per_token").get<double>() / number("seconds_per_token"));
  }
  return text;
}

}  // namespace

void compare_command(CommandLine& line) {
  FileSearch search;
  EmbedderOptions options;
  options.batch = 8;
  std::string out, lengths = "128,384,512";
  std::string variants =
      "clustered-25,clustered-25:refine=2,i-clustered-25,i-clustered-25:refine=1,i-clustered-25:refine=2,"
      "i-clustered-100,i-clustered-100:refine=1,oracle-top-32,position-25,i-position-25";
  int64_t sequences = 200;
  search.fields(line);
  line("variants", variants, several_variants, "attention variants, comma-separated", Keep::may_change);
  line("lengths", lengths, Text::any, "tokens per sequence, comma-separated, ascending", Keep::may_change);
  line("sequences", sequences, {2, 1 << 20}, "maximum number of sequences of each length");
  line("out", out, Text::folder, "folder for finished rows, from which the same command continues",
       Keep::not_in_config);
  options.fields(line);
  line.footer(
      "It cuts sequences of each length from the files, and embeds them with full attention and with each\n"
      "variant, using the same weights. It reports the error (1 - the cosine of the embeddings), how many of\n"
      "the ten nearest neighbors stay the same, and the time.\n"
      "\nExample:\n"
      "  text-search compare ~/notes --model model --lengths 128,512 --out rows");
  line.parse();
  catch_interrupts(line.quiet);
  if (!out.empty() && RunFolder::is_in(out)) line.continue_run(out);
  Skipped skipped;
  const std::vector<fs::path> files = find_files(search, options.model, skipped, line.quiet);
  Embedder embedder(options);
  const Texts texts = read_texts(files, embedder.tokenizer(), std::move(skipped), line.quiet);
  std::vector<int64_t> all;
  name_in_errors("--lengths", [&] { all = rising_integers(lengths, embedder.positions()); });
  check<UsageError>(all.front() >= 3, "--lengths: expected at least 3, got ", all.front());
  std::vector<std::string> specs{"full"};
  for (const std::string& spec : split_specs(variants))
    if (std::count(specs.begin(), specs.end(), spec) == 0) specs.push_back(spec);
  name_in_errors("--variants", [&] {
    for (const std::string& spec : specs) embedder.set_attention(spec);  // checks it
  });
  cut_sequences(texts.tokens, embedder.tokenizer(), all.back(), sequences);  // is there enough text?
  RunFolder kept(out, line.config());
  Json rows = Json::array();
  std::string text = concat("Files: ", texts.tokens.size(), counts_of(texts.skipped), '\n');
  try {
    for (const int64_t length : all) {
      const Json found = compare_at(embedder, texts, length, specs, sequences, kept, line.quiet);
      rows.insert(rows.end(), found.begin(), found.end());
      text += table_of(found);
    }
  } catch (const Json::exception&) {
    if (out.empty()) throw;
    throw damaged(fs::path(out) / "metrics.jsonl");
  }
  line.tell({{"texts", texts.tokens.size()}, {"rows", rows}},
            text +
                "\nError: 1 - the cosine with full attention's embedding, the mean and the largest. "
                "Neighbors kept: of each sequence's ten nearest, the share that full attention has too.\n");
}

}  // namespace cairn::text_search

// What text-search compare measures, on numbers made by hand, and the command as a user runs it.
#include "apps/text_search/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "nn/io/hash.h"
#include "tests/apps/text_search_test.h"
#include "tests/ops/ops_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;
using Lists = std::vector<std::vector<int32_t>>;
namespace fs = std::filesystem;

namespace {

Tensor rows_of(const std::vector<float>& values) { return Tensor::from(values, {int64_t(values.size()) / 2, 2}); }

}  // namespace

TEST_CASE("cosines of rows of the same number", "[text_search]") {
  const Cosines two = cosines(rows_of({1, 0, 0, 1}), rows_of({1, 0, 0.5, 0.75}));
  CHECK(two.mean == Approx(0.875));
  CHECK(two.least == Approx(0.75));
  const Cosines none = cosines(Tensor({0, 2}), Tensor({0, 2}));
  CHECK((std::isnan(none.mean) && std::isnan(none.least)));
  for (const size_t wrong : {0, 2, 5}) {  // wherever it stands
    std::vector<float> values{1, 0, 1, 0, 1, 0};
    values[wrong] = NAN;
    const Cosines with = cosines(rows_of(values), rows_of({1, 0, 1, 0, 1, 0}));
    CHECK((std::isnan(with.mean) && std::isnan(with.least)));
  }
}

TEST_CASE("the nearest rows, of equal ones the first", "[text_search]") {
  const Tensor rows = rows_of({1, 0, 0.5, 0.25, 0, 1, 0.5, 0.25, -1, 0});
  CHECK(nearest_rows(rows, rows, 3, true) == Lists{{1, 3, 2}, {0, 3, 2}, {1, 3, 0}, {0, 1, 2}, {2, 1, 3}});
  CHECK(nearest_rows(rows, rows, 2, false) == Lists{{0, 1}, {0, 1}, {2, 1}, {0, 1}, {4, 2}});
  CHECK(nearest_rows(rows.slice(2, 4), rows, 1, false) == Lists{{2}, {0}});
  CHECK(nearest_rows(rows, rows, 9, true)[0] == std::vector<int32_t>{1, 3, 2, 4});
  CHECK(nearest_rows(rows, rows, 9, false)[4] == std::vector<int32_t>{4, 2, 1, 3, 0});
  CHECK(nearest_rows(rows, Tensor({0, 2}), 2, false)[0].empty());
  CHECK(nearest_rows(rows.slice(0, 1), rows.slice(0, 1), 2, true) == Lists{{}});
  // Rows of NaN come last, and their own neighbors are the first rows.
  const Tensor wrong = rows_of({1, 0, NAN, 0, 0, 1, 0.5, 0.25, -1, 0});
  CHECK(nearest_rows(wrong, wrong, 4, true) ==
        Lists{{3, 2, 4, 1}, {0, 2, 3, 4}, {3, 0, 4, 1}, {0, 2, 4, 1}, {2, 3, 0, 1}});
}

TEST_CASE("the share of neighbors that are kept", "[text_search]") {
  CHECK(neighbors_kept({{1, 2}, {3, 4}}, {{2, 9}, {4, 3}}) == Approx(0.75));
  CHECK(neighbors_kept({{1}}, {{2, 1}}) == 1);
  CHECK(std::isnan(neighbors_kept({{}}, {{}})));
}

TEST_CASE("variants to compare: full first, each once, each one that the model takes", "[text_search]") {
  Embedder embedder(small_options(2));
  CHECK(variants_of(embedder, "clustered-3,full,i-clustered-3:topk=4,bits=8,clustered-3") ==
        std::vector<std::string>{"full", "clustered-3", "i-clustered-3:topk=4,bits=8"});
  CHECK(variants_of(embedder, "full") == std::vector<std::string>{"full"});
  // The embedder's own variant is what it was.
  const auto sequences = random_sequences({20, 30});
  variants_of(embedder, "clustered-1");
  CHECK(same_bits(embedder.embed(sequences), Embedder(small_options(2)).embed(sequences)));
  for (const char* wrong : {"clusterd-3", "full,shared-full", "clustered-3,,full", ","}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(variants_of(embedder, wrong), UsageError);
    CHECK_THROWS_WITH(variants_of(embedder, wrong), ContainsSubstring("--variants: "));
  }
}

TEST_CASE("sequences are embedded by each variant", "[text_search]") {
  Embedder embedder(small_options(2));
  const auto sequences = random_sequences({20, 20, 20, 20, 20});
  std::vector<int64_t> done;
  const std::vector<std::string> specs{"full", "clustered-2"};
  const Measured measured = embed_by_each(embedder, sequences, specs, [&](int64_t n) { done.push_back(n); });
  CHECK(done == std::vector<int64_t>{2, 4, 5});
  REQUIRE((measured.embeddings.size() == 2 && measured.seconds_per_token.size() == 2));
  for (size_t v = 0; v < 2; ++v) {
    CHECK(same_bits(measured.embeddings[v], Embedder(small_options(2, specs[v])).embed(sequences)));
    CHECK(measured.seconds_per_token[v] > 0);
  }
}

// ---- text to compare on

namespace {

// Three files of words of three tokens each, no two the same.
struct Texts {
  TemporaryFolder folder;
  std::vector<std::pair<std::string, std::string>> files;  // name, content; in a walk's order

  explicit Texts(std::array<int, 3> words = {100, 51, 34}) {
    const char* names[] = {"a.txt", "deep/b.txt", "z"};
    fs::create_directories(folder / "deep");
    int word = 0;
    for (size_t f = 0; f < 3; ++f) {
      std::string text;
      for (int i = 0; i < words[f]; ++i, ++word)
        text += concat(char('a' + word % 26), char('a' + word / 26 % 26), "9", i % 10 == 9 ? '\n' : ' ');
      files.emplace_back(names[f], text);
      put_file(folder / names[f], text);
    }
  }
  WalkOptions walk() const {
    WalkOptions options;
    options.roots = roots_of({folder.path().string()});
    return options;
  }
};

const WordPiece& tokenizer() {
  static const WordPiece made = read_wordpiece(small_model);
  return made;
}

}  // namespace

TEST_CASE("text is cut into sequences of the same length", "[text_search]") {
  const Texts texts;
  Corpus corpus;
  for (const int64_t length : {8, 13, 64}) {
    Sequences all;
    for (const auto& [name, text] : texts.files) {
      const auto tokens = tokenizer().tokenize(text);
      for (size_t at = 0; at + size_t(length - 2) <= tokens.size(); at += size_t(length - 2)) {
        std::vector<int32_t> sequence{tokenizer().cls()};
        for (size_t i = at; i < at + size_t(length - 2); ++i) sequence.push_back(tokens[i].id);
        sequence.push_back(tokenizer().sep());
        all.push_back(sequence);
      }
    }
    const auto n = int64_t(all.size());
    REQUIRE(n >= 7);
    CHECK(cut_sequences(texts.walk(), tokenizer(), length, n, corpus) == all);
    CHECK(cut_sequences(texts.walk(), tokenizer(), length, 1 << 20, corpus) == all);
    for (int64_t maximum = 2; maximum < n; ++maximum) {
      CAPTURE(length, maximum, n);
      const Sequences kept = cut_sequences(texts.walk(), tokenizer(), length, maximum, corpus);
      REQUIRE(int64_t(kept.size()) == maximum);
      // Where they stand among all of them: from the first one, at distances that are even but for rounding.
      std::vector<int64_t> at;
      for (const auto& sequence : kept) at.push_back(std::find(all.begin(), all.end(), sequence) - all.begin());
      REQUIRE(at[0] == 0);
      int64_t least = n, most = 0;
      for (size_t i = 1; i < at.size(); ++i) {
        REQUIRE(at[i] < n);
        least = std::min(least, at[i] - at[i - 1]), most = std::max(most, at[i] - at[i - 1]);
      }
      CHECK(least >= 1);
      CHECK(most <= 2 * least);
      CHECK(n - at.back() <= 2 * most);
    }
  }
}

TEST_CASE("a corpus is named by a hash of its list of files", "[text_search]") {
  const Texts texts;
  put_file(texts.folder / ".hidden", "is left out");
  const auto hash_of = [&](const std::vector<std::pair<std::string, std::string>>& files) {
    std::string list;
    for (const auto& [name, text] : files) list += xxh128(text) + "  " + name + "\n";
    return xxh128(list);
  };
  Corpus corpus;
  cut_sequences(texts.walk(), tokenizer(), 8, 5, corpus);
  CHECK(corpus.files == 3);
  CHECK(corpus.bytes == 185 * 4);
  CHECK(corpus.hash == hash_of(texts.files));
  CHECK(corpus.hash.size() == 32);
  cut_sequences(texts.walk(), tokenizer(), 13, 50, corpus);
  CHECK(corpus.hash == hash_of(texts.files));
  // A file is named by its own name, a folder's files from the folder on.
  WalkOptions parts = texts.walk();
  parts.roots = roots_of({(texts.folder / "z").string(), (texts.folder / "deep").string()});
  cut_sequences(parts, tokenizer(), 8, 5, corpus);
  CHECK(corpus.hash == hash_of({{"b.txt", texts.files[1].second}, {"z", texts.files[2].second}}));
  WalkOptions some = texts.walk();
  some.exclude = {"deep"};
  cut_sequences(some, tokenizer(), 8, 5, corpus);
  CHECK(corpus.files == 2);
  put_file(texts.folder / "z", texts.files[2].second + " ");
  cut_sequences(texts.walk(), tokenizer(), 8, 5, corpus);
  CHECK(corpus.hash != hash_of(texts.files));
}

TEST_CASE("too little text is an error that says how much there is", "[text_search]") {
  const Texts texts({4, 2, 0});
  Corpus corpus;
  CHECK(cut_sequences(texts.walk(), tokenizer(), 8, 5, corpus).size() == 3);
  CHECK_THROWS_AS(cut_sequences(texts.walk(), tokenizer(), 14, 5, corpus), UsageError);
  CHECK_THROWS_WITH(cut_sequences(texts.walk(), tokenizer(), 14, 5, corpus),
                    ContainsSubstring("only 1 sequences of 14 tokens in 3 files"));
  CHECK_THROWS_AS(cut_sequences(texts.walk(), tokenizer(), 64, 5, corpus), UsageError);
}

// ---- what is told

namespace {

Tensor circle(const std::vector<double>& angles) {
  std::vector<float> values;
  for (const double angle : angles) values.insert(values.end(), {float(std::cos(angle)), float(std::sin(angle))});
  return rows_of(values);
}

Comparison small_comparison() {
  Comparison comparison;
  comparison.model = "models/a", comparison.device = "cpu", comparison.batch = 3, comparison.threads = 2;
  comparison.corpus = {7, 8900, "0123456789abcdef"};
  for (const int64_t length : {16, 32}) {
    const double time = double(length) * 1e-6;
    comparison.lengths.push_back({length,
                                  20,
                                  {{"full", {1, 1}, 1, time},
                                   {"clustered-2", {0.75, 0.5}, 0.625, time / 2},
                                   {"i-clustered-2", {1, 1}, 1, time / 4},
                                   {"oracle-top-3", {NAN, NAN}, NAN, 2 * time}}});
  }
  return comparison;
}

}  // namespace

TEST_CASE("a comparison of embeddings with those of full attention", "[text_search]") {
  // Twelve rows: the ten nearest are all others but the furthest one.
  std::vector<double> angles, moved;
  for (int i = 0; i < 12; ++i) angles.push_back(0.1 * i + 0.001 * i * i);
  moved = angles;
  moved[11] = 0.05, moved[3] += 0.02;
  const auto furthest = [](const std::vector<double>& all, size_t of) {
    size_t found = of;
    for (size_t j = 0; j < all.size(); ++j)
      if (std::abs(all[j] - all[of]) > std::abs(all[found] - all[of])) found = j;
    return found;
  };
  double kept = 0, mean = 0, least = 1;
  for (size_t i = 0; i < 12; ++i) {
    kept += (furthest(angles, i) == furthest(moved, i) ? 1 : 0.9) / 12;
    const double cosine = std::cos(angles[i] - moved[i]);
    mean += cosine / 12, least = std::min(least, cosine);
  }
  REQUIRE((kept > 0.9 && kept < 0.999));
  const Measured measured{{circle(angles), circle(moved)}, {2e-6, 5e-6}};
  const LengthResult result = compare(77, {"full", "moved"}, measured);
  CHECK(result.length == 77);
  CHECK(result.sequences == 12);
  REQUIRE(result.variants.size() == 2);
  const VariantResult &full = result.variants[0], &other = result.variants[1];
  CHECK(full.spec == "full");
  CHECK(full.cosine.least == Approx(1));
  CHECK(full.neighbors_kept == 1);
  CHECK(full.seconds_per_token == 2e-6);
  CHECK(other.spec == "moved");
  CHECK(other.cosine.mean == Approx(mean));
  CHECK(other.cosine.least == Approx(least));
  CHECK(other.neighbors_kept == Approx(kept));
  CHECK(other.seconds_per_token == 5e-6);
}

TEST_CASE("a comparison as text and as JSON", "[text_search]") {
  const Comparison comparison = small_comparison();
  const std::string text = comparison_text(comparison);
  CHECK_THAT(text, ContainsSubstring("7 files, 8900 bytes, xxh128 of their list 0123456789abcdef"));
  CHECK_THAT(text, ContainsSubstring("20 sequences of 16 tokens") && ContainsSubstring("20 sequences of 32 tokens"));
  std::istringstream lines(text.substr(text.find("32 tokens")));
  std::string line;
  std::vector<std::string> found;
  while (std::getline(lines, line)) found.push_back(line);
  REQUIRE(found.size() >= 6);
  const auto words = [](const std::string& of) {
    std::istringstream in(of);
    return std::vector<std::string>(std::istream_iterator<std::string>(in), {});
  };
  CHECK(words(found[3]) == std::vector<std::string>{"clustered-2", "0.7500", "0.5000", "0.625", "16.0", "2.00"});
  CHECK(words(found[2]) == std::vector<std::string>{"full", "1.0000", "1.0000", "1.000", "32.0", "1.00"});

  const auto json = nlohmann::json::parse(comparison_json(comparison).dump());
  CHECK(json["model"] == "models/a");
  CHECK(json["files"] == 7);
  CHECK(json["bytes"] == 8900);
  CHECK(json["files_hash"] == "0123456789abcdef");
  CHECK(json["batch"] == 3);
  CHECK(json["threads"] == 2);
  REQUIRE(json["lengths"].size() == 2);
  CHECK(json["lengths"][1]["length"] == 32);
  CHECK(json["lengths"][1]["sequences"] == 20);
  const auto variants = json["lengths"][1]["variants"];
  REQUIRE(variants.size() == 4);
  CHECK(variants[1] == nlohmann::json{{"attention", "clustered-2"},
                                      {"mean_cosine", 0.75},
                                      {"least_cosine", 0.5},
                                      {"neighbors_kept", 0.625},
                                      {"seconds_per_token", 16e-6}});
  for (const char* key : {"mean_cosine", "least_cosine", "neighbors_kept"}) CHECK(variants[3][key].is_null());
}

TEST_CASE("a comparison as a picture: variants that differ in refine alone are a curve", "[text_search]") {
  Comparison comparison = small_comparison();
  for (const char* spec :
       {"i-clustered-2:refine=1", "clustered-2:bits=8", "clustered-2:refine=1,bits=8", "clustered-2:bits=8,refine=2"})
    comparison.lengths[0].variants.push_back({spec, {0.875, 0.5}, 0.5, 1e-6});
  const std::string picture = comparison_picture(comparison);
  const auto count = [&](const std::string& text) {
    size_t n = 0;
    for (size_t at = picture.find(text); at != std::string::npos; at = picture.find(text, at + 1)) ++n;
    return n;
  };
  CHECK(count("16 tokens") >= 1);
  CHECK(count("32 tokens") >= 1);
  CHECK(count("refine=") == 0);
  CHECK(count(">i-clustered-2<") == 1);       // at 32 tokens it has no error, which a log axis cannot show
  CHECK(count(">clustered-2:bits=8<") == 1);  // three variants of one length
  CHECK(count(">full<") == 0);
}

// ---- the command

TEST_CASE("text-search compare on a folder of files", "[text_search]") {
  const Texts texts({300, 200, 100});
  const auto run = [](const std::string& arguments) {
    return run_process("text-search", "compare --quiet " + arguments);
  };
  const std::string on = concat(texts.folder.path().string(), " --model ", small_model, ' ');
  const std::string settings = "--lengths 16,32 --variants i-clustered-2:topk=64,clustered-1 --sequences 25 --batch 4 ";
  const auto result = run(on + settings + "--json");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const auto json = nlohmann::json::parse(result.out);
  CHECK(json["files"] == 3);
  CHECK(json["bytes"] == 2400);
  REQUIRE(json["lengths"].size() == 2);
  for (size_t l = 0; l < 2; ++l) {
    CAPTURE(l);
    const auto& length = json["lengths"][l];
    CHECK(length["length"] == (l == 0 ? 16 : 32));
    CHECK(length["sequences"] == 25);
    REQUIRE(length["variants"].size() == 3);
    const auto &full = length["variants"][0], &all_keys = length["variants"][1], &clustered = length["variants"][2];
    CHECK(full["attention"] == "full");
    CHECK(full["mean_cosine"].get<double>() == Approx(1).margin(1e-6));
    CHECK(full["neighbors_kept"] == 1);
    // As many top keys as there are keys: it is full attention.
    CHECK(all_keys["attention"] == "i-clustered-2:topk=64");
    CHECK(all_keys["least_cosine"].get<double>() == Approx(1).margin(1e-5));
    CHECK(all_keys["neighbors_kept"] == 1);
    CHECK(clustered["mean_cosine"].get<double>() < 1 - 1e-4);
    CHECK(clustered["least_cosine"].get<double>() < clustered["mean_cosine"].get<double>());
    CHECK(clustered["neighbors_kept"].get<double>() < 1);
  }
  const auto told = run(on + settings);
  REQUIRE(told.exit_code == 0);
  CHECK_THAT(told.out, ContainsSubstring("25 sequences of 32 tokens") && ContainsSubstring("i-clustered-2:topk=64"));

  check_one_line(run("--model " + small_model), 2, "PATH");
  check_one_line(run(texts.folder.path().string()), 2, "expected --model");
  check_one_line(run(texts.folder.path().string() + " --model none"), 3, "none/vocab.txt");
  check_one_line(run("missing --model " + small_model), 2, "missing");
  check_one_line(run(on + "--lengths 7,16"), 2, "--lengths: expected at least 8");
  check_one_line(run(on + "--lengths 32,16"), 2, "--lengths");
  check_one_line(run(on + "--lengths 16,513"), 2, "--lengths: the model has 512 positions");
  check_one_line(run(on + "--lengths 16 --variants clusterd-2"), 2, "--variants");
  check_one_line(run(on + "--lengths 512 --exclude 'a*,z,deep'"), 2, "only 0 sequences of 512 tokens in 0 files");
}

// The commands text-search index and query as a user runs them, with a tiny model of random weights.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/run_folder.h"
#include "apps/text_search/index.h"
#include "nn/io/safetensors.h"
#include "tests/apps/text_search_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

// Some texts, and the commands on them.
struct Texts {
  TemporaryFolder folder;
  fs::path texts = folder / "texts", index = folder / "index";

  Texts() {
    fs::create_directories(texts / "deep");
    put_file(texts / "cluster.txt", "a model of attention\n\nthe cluster of a query and its key\n");
    put_file(texts / "deep/zebra", "zebras eat grass\n");
    put_file(texts / "other.o", "this is other text");
    put_file(texts / "binary", std::string("\0\1", 2));
    fs::create_symlink("..", texts / "deep/loop");
  }
  ProcessResult run(const std::string& arguments, const std::string& before = "") const {
    const ProcessResult result = run_process("text-search", arguments, concat("cd ", folder.path(), " && ", before));
    INFO(result.err);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') <= 40);
    return result;
  }
  ProcessResult make_index(const std::string& more = "") const {
    return run(concat("index texts --model ", small_model, " --out index --quiet ", more));
  }
};

}  // namespace

TEST_CASE("text-search index and query: a folder is indexed and asked", "[text_search]") {
  const Texts texts;
  const ProcessResult made = texts.make_index("--json --exclude '*.o'");
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  CHECK(made.err.empty());
  const auto summary = nlohmann::json::parse(made.out);
  CHECK(summary["files"] == 2);
  CHECK(summary["passages"] == 2);
  CHECK(summary["complete"] == true);
  CHECK(summary["skipped"] ==
        nlohmann::json{{"binary", 1}, {"empty", 0}, {"links", 1}, {"name", 0}, {"too_large", 0}, {"unreadable", 0}});
  CHECK(read_safetensors(texts.index / "embeddings.safetensors").at("embeddings").shape() == Shape{2, 24});

  // A passage is nearest to itself, with a cosine of 1.
  const ProcessResult found = texts.run("query --index index --quiet zebras eat grass");
  INFO(found.err);
  CHECK(found.exit_code == 0);
  CHECK(found.out.rfind("texts/deep/zebra:1  1.000  zebras eat grass\n", 0) == 0);
  CHECK(std::count(found.out.begin(), found.out.end(), '\n') == 2);
  const ProcessResult one = texts.run("query --index index --top 1 --json 'the cluster of'");
  const auto answer = nlohmann::json::parse(one.out);
  CHECK(answer["query"] == "the cluster of");
  REQUIRE(answer["hits"].size() == 1);
  const auto hit = answer["hits"][0];
  for (const char* key : {"path", "line", "last_line", "score", "excerpt", "excerpt_line", "text"})
    CHECK(hit.contains(key));
  CHECK((hit["score"] > -1 && hit["score"] < 1));
  // The line that has the query's words; paths from anywhere.
  const ProcessResult elsewhere =
      run_process("text-search", concat("query --index ", texts.index, " --top 2 the cluster of"), "cd / && ");
  CHECK_THAT(elsewhere.out, ContainsSubstring("cluster.txt:3  "));

  const auto two = nlohmann::json::parse(texts.run("query --index index --json the cluster of").out);
  REQUIRE(two["hits"].size() == 2);
  const size_t of_cluster = std::string(two["hits"][0]["path"]).ends_with("cluster.txt") ? 0 : 1;
  CHECK(two["hits"][of_cluster]["line"] == 1);
  CHECK(two["hits"][of_cluster]["excerpt"] == "the cluster of a query and its key");
  CHECK(two["hits"][of_cluster]["excerpt_line"] == 3);

  // From standard input.
  put_file(texts.folder / "questions", "grass\n\n  \nattention\n");
  const auto answers = [&](const std::string& options) {
    const std::string command = concat("cd ", texts.folder.path(), " && ", CAIRN_PROGRAMS,
                                       "/text-search query --index index --top 1 ", options, " <questions >answers");
    CHECK(std::system(command.c_str()) == 0);
    return bytes_of_file(texts.folder / "answers");
  };
  const std::string piped = answers("--json");
  CHECK(std::count(piped.begin(), piped.end(), '\n') == 2);
  CHECK_THAT(piped, ContainsSubstring("{\"query\":\"grass\",") && ContainsSubstring("{\"query\":\"attention\","));
  const std::string text = answers("");
  CHECK(text.rfind("grass\ntexts/", 0) == 0);
  CHECK_THAT(text, ContainsSubstring("\n\nattention\ntexts/"));
}

TEST_CASE("text-search index: settings are those of the index that is there", "[text_search]") {
  const Texts texts;
  REQUIRE(texts.make_index("--attention clustered-3 --passage-tokens 12 --seed 5").exit_code == 0);
  const auto header = find_index(texts.index);
  REQUIRE(header.has_value());
  CHECK(header->settings.attention == "clustered-3");
  CHECK(header->settings.seed == 5);
  CHECK(header->settings.passage_tokens == 12);
  const ProcessResult again = texts.run("index --out index --json --quiet");
  INFO(again.err);
  REQUIRE(again.exit_code == 0);
  CHECK(nlohmann::json::parse(again.out)["embedded"] == 0);
  CHECK(texts.run("query --index index --json zebras eat grass").exit_code == 0);
  check_one_line(texts.run("index texts --out index --attention full --quiet"), 2, "attention \"clustered-3\"");
  check_one_line(texts.run("index texts --out index --passage-tokens 13 --quiet"), 2, "or --rebuild");
  const ProcessResult rebuilt = texts.run("index texts --out index --rebuild --json --quiet");
  REQUIRE(rebuilt.exit_code == 0);
  CHECK(nlohmann::json::parse(rebuilt.out)["unchanged"] == 0);
  CHECK(find_index(texts.index)->settings.attention == "clustered-3");
  CHECK(find_index(texts.index)->settings.passage_tokens == 12);
  // The PATHs and --exclude are the index's too.
  CHECK(texts.run("index --out index --exclude '*.o' --quiet").exit_code == 0);
  fs::create_directory(texts.folder / "empty");
  const std::string before = bytes_of_file(texts.index / "passages.jsonl");
  check_one_line(texts.run("index empty --out index --quiet"), 2, "made with PATH ");
  CHECK(bytes_of_file(texts.index / "passages.jsonl") == before);
  const auto files = [](const ProcessResult& result) { return nlohmann::json::parse(result.out)["files"]; };
  CHECK(files(texts.run("index --out index --quiet --json")) == 2);
  CHECK(files(texts.run("index --out index --quiet --json --exclude ''")) == 3);
  CHECK(files(texts.run("index empty --rebuild --out index --quiet --json")) == 0);
  // A run that ended between the renaming of the two files of its first index.
  CHECK(texts.run("index texts --rebuild --out index --quiet").exit_code == 0);
  fs::rename(texts.index / "embeddings.safetensors", texts.index / "embeddings.safetensors.new");
  const ProcessResult renamed = texts.run("index --out index --quiet --json");
  INFO(renamed.err);
  REQUIRE(renamed.exit_code == 0);
  CHECK(nlohmann::json::parse(renamed.out)["embedded"] == 0);
}

TEST_CASE("text-search index: --exclude may be given twice, and is kept", "[text_search]") {
  const Texts texts;
  put_file(texts.texts / "other", "more text");
  REQUIRE(texts.make_index("--exclude '*.o' --exclude deep").exit_code == 0);
  const auto settings = [&] { return find_index(texts.index)->settings; };
  CHECK(settings().exclude == std::vector<std::string>{"*.o", "deep"});
  const auto files = [](const ProcessResult& result) { return nlohmann::json::parse(result.out)["files"]; };
  CHECK(files(texts.run("index --out index --quiet --json")) == 2);
  CHECK(settings().exclude.size() == 2);
  const ProcessResult shown = texts.run("index --out index --exclude other");
  CHECK_THAT(shown.err, ContainsSubstring(" KB  "));
}

TEST_CASE("text-search index: the model and indexes below a PATH are left out", "[text_search]") {
  const Texts texts;
  fs::copy(small_model, texts.texts / "model");
  const auto files = [&](const std::string& out) {
    const ProcessResult made = texts.run(concat("index texts --model texts/model --quiet --json --out ", out));
    INFO(made.err);
    REQUIRE(made.exit_code == 0);
    return nlohmann::json::parse(made.out)["files"];
  };
  CHECK(files("texts/index") == 3);
  CHECK(files("texts/index") == 3);
  CHECK(files("other") == 3);
}

TEST_CASE("text-search index: a killed run's files have its settings", "[text_search]") {
  const Texts texts;
  REQUIRE(texts.make_index("--attention clustered-3 --passage-tokens 12 --seed 5 --exclude '*.o'").exit_code == 0);
  for (const char* name : {"passages.jsonl", "embeddings.safetensors"})
    fs::rename(texts.index / name, texts.index / concat(name, ".new"));
  const ProcessResult again = texts.run("index --out index --quiet --json");
  INFO(again.err);
  REQUIRE(again.exit_code == 0);
  CHECK(nlohmann::json::parse(again.out)["embedded"] == 0);
  CHECK(nlohmann::json::parse(again.out)["files"] == 2);
  const IndexSettings settings = find_index(texts.index)->settings;
  CHECK(settings.attention == "clustered-3");
  CHECK((settings.seed == 5 && settings.passage_tokens == 12));
  CHECK(settings.exclude == std::vector<std::string>{"*.o"});
}

TEST_CASE("text-search index and query refuse bad input with one line", "[text_search][fault]") {
  const Texts texts;
  const std::string start = concat("--model ", small_model, " --out index --quiet");
  check_one_line(texts.run("index " + start), 2, "PATH");
  check_one_line(texts.run("index missing " + start), 2, "missing: cannot be indexed: No such file");
  check_one_line(texts.run("index /dev/null " + start), 2, "expected a file or a folder");
  check_one_line(texts.run("index texts --out index --quiet"), 2, "expected --model");
  check_one_line(texts.run(concat("index texts --quiet --model ", small_model)), 2, "expected --out");
  check_one_line(texts.run(concat("index texts --quiet --out texts --model ", small_model)), 2, "not part of an index");
  check_one_line(texts.run("index texts --passage-tokens 513 " + start), 2, "at most 512");
  check_one_line(texts.run("index texts --attention ful " + start), 2, "did you mean 'full'");
  check_one_line(texts.run("index texts --exclude a,,b " + start), 2, "empty pattern");
  check_one_line(texts.run("index texts --model texts --out index --quiet"), 3, "texts/");
  check_one_line(texts.run("index texts --model texts --out index --quiet"), 3,
                 "texts/vocab.txt: cannot be opened: it is missing; a model's folder has config.json, "
                 "model.safetensors and vocab.txt");
  put_file(texts.folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n");
  check_one_line(texts.run("index texts --model . --out index --quiet"), 3,
                 "config.json: cannot be opened: it is missing; a model's folder");
  check_one_line(texts.run("index texts --model vocab.txt --out index --quiet"), 3,
                 "vocab.txt: is a file; expected a model's folder");
  CHECK_FALSE(fs::exists(texts.index));
  fs::create_directories(texts.index / ".lock");
  check_one_line(texts.make_index(), 1, "--out index: cannot write into the folder");
  fs::remove_all(texts.index);
  check_one_line(texts.run("query --index index --quiet words"), 3, "there is no index");
  REQUIRE(texts.make_index().exit_code == 0);
  check_one_line(texts.run("query --quiet words"), 2, "expected --index");
  check_one_line(texts.run("query --index index --quiet ' '"), 2, "expected words");
  check_one_line(texts.run("query --index index --quiet --top 0 words"), 2, "--top");
  check_one_line(texts.run("query --index texts --quiet words"), 3, "there is no index");
  {
    const FolderLock lock(texts.index);
    check_one_line(texts.make_index(), 2, "another run is writing");
    CHECK(texts.run("query --index index --quiet words").exit_code == 0);
  }
  // Another model has other weights.
  fs::copy(small_model, texts.folder / "model");
  TensorFile weights = read_safetensors(texts.folder / "model/model.safetensors");
  weights.tensors[0].second = Tensor::zeros(weights.tensors[0].second.shape());
  write_safetensors(texts.folder / "model/model.safetensors", weights);
  check_one_line(texts.run("query --index index --quiet --model model words"), 3, "made by another model");
  check_one_line(texts.run("index texts --out index --quiet --model model"), 2, "this index was made with model");
  put_file(texts.index / "passages.jsonl", "{}\n");
  check_one_line(texts.run("query --index index --quiet words"), 3, "passages.jsonl: damaged");
  check_one_line(texts.make_index(), 3, "--rebuild");
  CHECK(texts.make_index("--rebuild").exit_code == 0);
}

TEST_CASE("text-search index: texts of every kind", "[text_search]") {
  const Texts texts;
  put_file(texts.texts / "empty", "");
  put_file(texts.texts / "character", "x");
  put_file(texts.texts / "one-line", std::string(300'000, 'y'));
  std::string words;
  while (words.size() < 300'000) words += "word ";
  put_file(texts.texts / "long-line", words);
  put_file(texts.texts / "latin", "caf\xE9 \xFF\xFE\n");
  put_file(texts.texts / "late-nul", std::string(9000, 'z') + std::string(3, '\0') + " end");
  put_file(texts.texts / ".hidden", "hidden");
  const ProcessResult made = texts.make_index("--json");
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  const auto summary = nlohmann::json::parse(made.out);
  CHECK(summary["files"] == 7);
  CHECK(summary["skipped"]["binary"] == 2);
  CHECK(summary["skipped"]["empty"] == 1);
  const ProcessResult found = texts.run("query --index index --top 1000 --quiet word");
  CHECK(found.exit_code == 0);
  CHECK_THAT(found.out, ContainsSubstring("texts/latin:1") && ContainsSubstring("texts/long-line:1  "));
  size_t begin = 0;
  for (size_t end; (end = found.out.find('\n', begin)) != std::string::npos; begin = end + 1) CHECK(end - begin <= 200);
  fs::remove_all(texts.texts);
  fs::create_directory(texts.texts);
  CHECK(texts.make_index().exit_code == 0);
  const ProcessResult none = texts.run("query --index index word");
  CHECK(none.exit_code == 0);
  CHECK(none.out.empty());
  CHECK_THAT(none.err, ContainsSubstring("the index is empty"));
}

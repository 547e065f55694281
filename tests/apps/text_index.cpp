// text-search index and query: an index is made, made again, stopped, damaged and searched, as a user does it, with a
// tiny model of random weights.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/text_search/index.h"
#include "nn/io/safetensors.h"
#include "tests/apps/text_search_test.h"
#include "tests/ops/ops_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

struct Texts : InFolder {
  fs::path texts = folder / "texts", index = folder / "index";

  Texts() {
    fs::create_directories(texts / "deep");
    put("long", 700);
    put("deep/short", 3);
    put_file(texts / "cluster.txt", "a model of attention\n\nthe cluster of a query and its key\n");
    put_file(texts / "latin", "caf\xE9 au lait");
    put_file(texts / "other.o", "this is other text");
    put_file(texts / "binary", std::string("\0\1", 2));
    put_file(texts / "empty", " \n");
  }
  void put(const std::string& name, int words, int first = 0) const {
    std::string text;
    for (int i = 0; i < words; ++i) text += std::string(1, char('a' + (first + i) % 26)) + (i % 9 == 8 ? "\n" : " ");
    put_file(texts / name, text);
  }
  std::string command(const std::string& more = "") const {
    return concat("index texts --model ", small_model, " --passage-tokens 66 --batch 1 --out index --exclude '*.o' ",
                  more);
  }
  // Makes the index, or makes it again.
  Json make(const std::string& more = "") const { return Json::parse(printed(command("--json --quiet " + more))); }
  // An index made of the same texts in another file.
  std::string bytes_made_anew() const {
    make("--out anew");
    const std::string bytes = bytes_of_file(folder / "anew");
    fs::remove(folder / "anew");
    return bytes;
  }
};

}  // namespace

TEST_CASE("an index has every passage, in a file that anybody reads", "[text_search]") {
  const Texts texts;
  const Json summary = texts.make("--batch 5");
  CHECK(summary["files"] == 4);
  CHECK(summary["skipped"] == Json{{"binary", 1}, {"empty", 1}});
  CHECK(summary["embedded"] == summary["passages"]);
  const auto n = summary["passages"].get<int64_t>();
  REQUIRE(n > 10);

  const TensorFile file = read_safetensors(texts.index);
  CHECK(file.at("embeddings").shape() == Shape{n, 24});
  const Tensor& lines = file.at("passages");
  const std::string all(static_cast<const char*>(lines.raw()), lines.bytes());
  CHECK(std::count(all.begin(), all.end(), '\n') == n);
  CHECK(Json::parse(all.substr(0, all.find('\n')))["path"] == fs::canonical(texts.texts / "cluster.txt").string());

  const Index index = read_index(texts.index);
  REQUIRE((index.complete && int64_t(index.records.size()) == n));
  const Embedder embedder(small_options());
  std::string before;
  for (const Record& record : index.records) {
    INFO(record.path << ", line " << record.line);
    CHECK(record.path >= before);
    before = record.path;
    const std::string text = valid_utf8(bytes_of_file(record.path));
    const size_t begin = text.find(record.text);
    REQUIRE(begin != std::string::npos);
    if (!record.path.ends_with("long"))  // where texts repeat
      CHECK(record.line == 1 + std::count(text.begin(), text.begin() + int64_t(begin), '\n'));
    const auto tokens = embedder.tokenizer().encode(record.text);
    CHECK(tokens.size() <= 66);
    CHECK(difference(Tensor::from(record.row, {1, 24}), embedder.embed({tokens})) <= tolerance::float32);
  }
}

TEST_CASE("an index that is made again embeds only what is new, and has nothing that is gone", "[text_search]") {
  const Texts texts;
  const int64_t all = texts.make()["passages"];
  const auto changed = [&](int64_t embedded) {
    CHECK(texts.make()["embedded"] == embedded);
    CHECK(bytes_of_file(texts.index) == texts.bytes_made_anew());
  };
  changed(0);
  fs::rename(texts.texts / "long", texts.texts / "a-renamed");
  changed(0);
  texts.put("deep/short", 3, 1);
  changed(1);
  put_file(texts.texts / "new", "a key of a query");
  changed(1);
  fs::remove(texts.texts / "a-renamed");
  changed(0);
  CHECK(int64_t(read_index(texts.index).records.size()) < all);
  // Other settings make other rows of the same text.
  const int64_t now = texts.make()["passages"];
  for (const char* other : {"--attention clustered-2", "--attention clustered-2 --seed 7"})
    CHECK(texts.make(other)["embedded"] == now);
  const ProcessResult told = texts.run(texts.command());
  CHECK_THAT(told.err, ContainsSubstring("was made with another model or other settings"));
  CHECK_THAT(told.out, ContainsSubstring(" embedded ("));
}

TEST_CASE("an index that is stopped keeps what was embedded, and goes on", "[text_search]") {
  const Texts texts;
  std::string long_text;
  for (int i = 0; i < 40'000; ++i) long_text += concat("word ", i, i % 9 == 8 ? "\n" : " ");
  put_file(texts.texts / "long", long_text);
  const ProcessResult stopped = texts.interrupted(texts.command("--save-every 0.1"), "[ -s index ] && cp index saved");
  INFO(stopped.err);
  REQUIRE(stopped.exit_code == 130);
  CHECK_THAT(stopped.err, ContainsSubstring("the same command goes on"));
  const Index half = read_index(texts.index);
  CHECK_FALSE(half.complete);
  CHECK(half.records.size() > read_index(texts.folder / "saved").records.size());
  CHECK_THAT(texts.run("query --index index a b c").err, ContainsSubstring("the index is not complete"));
  const Json again = texts.make();
  CHECK(again["embedded"] > 0);
  CHECK(again["embedded"].get<size_t>() + half.records.size() <= again["passages"].get<size_t>());
  CHECK(bytes_of_file(texts.index) == texts.bytes_made_anew());
}

TEST_CASE("a damaged index, or what is none, is refused and stays", "[text_search]") {
  const Texts texts;
  texts.make();
  const auto refused = [&](const std::string& message, const std::function<void(TensorFile&)>& damage) {
    TensorFile file = read_safetensors(texts.index);
    damage(file);
    CHECK_THAT(data_error([&] { parse_index(file); }), ContainsSubstring(message));
  };
  const auto tensor = [](TensorFile& file, const std::string& name) -> Tensor& {
    const auto found =
        std::find_if(file.tensors.begin(), file.tensors.end(), [&](const auto& each) { return each.first == name; });
    REQUIRE(found != file.tensors.end());
    return found->second;
  };
  refused("not an index", [](TensorFile& f) { f.metadata.clear(); });
  refused("an index of another version",
          [](TensorFile& f) { f.metadata["index"] = R"({"format":"cairn text index 9"})"; });
  refused("row 1 does", [&](TensorFile& f) { tensor(f, "embeddings").mutable_data<float>()[3] = NAN; });
  refused("1 embeddings of", [&](TensorFile& f) { tensor(f, "embeddings") = tensor(f, "embeddings").slice(0, 1); });
  refused("passage 1", [&](TensorFile& f) { tensor(f, "passages").mutable_data<uint8_t>()[0] = '['; });
  refused("damaged", [&](TensorFile& f) {
    const std::string line = R"({"path":"/a","line":-1,"last_line":1,"text":""})";
    tensor(f, "passages") = Tensor::from(std::vector<uint8_t>(line.begin(), line.end()), {int64_t(line.size())});
    tensor(f, "embeddings") = tensor(f, "embeddings").slice(0, 1);
  });

  const std::string bytes = bytes_of_file(texts.index);
  put_file(texts.index, bytes.substr(0, bytes.size() - 1));
  texts.refuses("query --index index --quiet words", 3, "index: ");
  texts.refuses(texts.command("--quiet"), 3, "index: ");
  CHECK(fs::file_size(texts.index) == bytes.size() - 1);
  // An index of an older version was a folder.
  fs::remove(texts.index);
  fs::create_directory(texts.index);
  texts.refuses("query --index index --quiet words", 3,
                "text-search index PATH --model DIR --out FILE makes a new one");
  texts.refuses(texts.command("--quiet"), 2, "is a folder, expected a file");
  texts.refuses("index gone --quiet --out new --model " + small_model, 2, "gone: cannot be read");
}

TEST_CASE("text-search query answers words, and lines of standard input", "[text_search]") {
  const Texts texts;
  put_file(texts.texts / "repeated", bytes_of_file(texts.texts / "latin"));
  texts.make();
  // A passage is nearest to itself, with a cosine of 1; of those with the same text one is shown.
  const std::string found = texts.printed("query --index index --quiet --top 2 caf au lait");
  CHECK(found.rfind("texts/latin:1  1.000  caf", 0) == 0);
  CHECK_FALSE(found.find("texts/repeated") < found.size());
  CHECK(std::count(found.begin(), found.end(), '\n') == 2);
  const Json answer = Json::parse(texts.printed("query --index index --top 100 --json 'the cluster of'"));
  CHECK(answer["query"] == "the cluster of");
  const auto hit = std::find_if(answer["hits"].begin(), answer["hits"].end(), [](const Json& each) {
    return each["path"].get<std::string>().ends_with("cluster.txt");
  });
  REQUIRE(hit != answer["hits"].end());
  CHECK(((*hit)["line"] == 1 && (*hit)["last_line"] == 3));
  CHECK(((*hit)["excerpt"] == "the cluster of a query and its key" && (*hit)["excerpt_line"] == 3));
  CHECK(std::is_sorted(answer["hits"].rbegin(), answer["hits"].rend(),
                       [](const Json& a, const Json& b) { return a["score"] < b["score"]; }));

  // By the model of the index alone.
  fs::copy(small_model, texts.folder / "model");
  TensorFile weights = read_safetensors(texts.folder / "model/model.safetensors");
  weights.tensors[0].second.mutable_data<float>()[0] += 1;
  write_safetensors(texts.folder / "model/model.safetensors", weights);
  texts.refuses("query --index index --quiet --model model words", 3, "made by another model");

  put_file(texts.folder / "questions", "grass\n\n  \nattention\n");
  const auto answers = [&](const std::string& options) {
    return texts.run("query --index index --top 1 " + options, "asked() { \"$@\" <questions; }; asked ").out;
  };
  const std::string piped = answers("--json");
  CHECK(std::count(piped.begin(), piped.end(), '\n') == 2);
  CHECK_THAT(piped, ContainsSubstring("{\"query\":\"grass\",") && ContainsSubstring("{\"query\":\"attention\","));
  const std::string text = answers("");
  CHECK(text.rfind("grass\ntexts/", 0) == 0);
  CHECK_THAT(text, ContainsSubstring("\n\nattention\ntexts/"));
}

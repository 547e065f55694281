// text-search index and query: an index is made, made again, stopped, damaged and searched, as a user does it, with a
// tiny model of random weights.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/text_search/index.h"
#include "apps/text_search/search.h"
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
    return concat("index texts --model ", small_model, " --passage-tokens 66 --batch 1 --out index ", more);
  }
  // Makes the index, or makes it again.
  Json make(const std::string& more = "") const {
    const ProcessResult made = run(command("--json --quiet --exclude '*.o' " + more));
    INFO(made.err);
    REQUIRE(made.exit_code == 0);
    CHECK(made.err.empty());
    return Json::parse(made.out);
  }
  // An index made of the same texts in another file.
  std::string bytes_made_anew() const {
    make("--out anew");
    const std::string bytes = bytes_of_file(folder / "anew");
    fs::remove(folder / "anew");
    return bytes;
  }
};

Record record_of(const std::string& path, int64_t begin, int64_t end, const std::string& text, double angle) {
  return {path, 1, 1, begin, end, text, {float(std::cos(angle)), float(std::sin(angle))}};
}

}  // namespace

TEST_CASE("an index has every passage, in a file that anybody reads", "[text_search]") {
  const Texts texts;
  const Json summary = texts.make("--batch 5");
  CHECK(summary["complete"] == true);
  CHECK(summary["files"] == 4);
  CHECK(summary["skipped"] == Json{{"binary", 1}, {"empty", 1}});
  CHECK(summary["embedded"] == summary["passages"]);
  const auto n = summary["passages"].get<int64_t>();
  REQUIRE(n > 10);

  const TensorFile file = read_safetensors(texts.index);
  const Tensor &rows = file.at("embeddings"), &lines = file.at("passages"), &ends = file.at("ends");
  CHECK(rows.shape() == Shape{n, 24});
  CHECK(ends.to_vector<int64_t>().back() == lines.size(0));
  const std::string all(static_cast<const char*>(lines.raw()), lines.bytes());
  CHECK(std::count(all.begin(), all.end(), '\n') == n);
  const Json first = Json::parse(all.substr(0, size_t(ends.to_vector<int64_t>()[0])));
  CHECK(first["path"] == fs::canonical(texts.texts / "cluster.txt").string());

  const Index index = read_index(texts.index);
  CHECK((index.complete && int64_t(index.records.size()) == n));
  const Embedder embedder(small_options());
  std::vector<std::string> paths;
  for (const Record& record : index.records) {
    INFO(record.path << " from byte " << record.begin);
    paths.push_back(record.path);
    const std::string text = bytes_of_file(record.path);
    const std::string bytes = text.substr(size_t(record.begin), size_t(record.end - record.begin));
    CHECK(record.text == (record.path.ends_with("latin") ? "caf\uFFFD au lait" : bytes));
    CHECK(record.line == 1 + std::count(text.begin(), text.begin() + record.begin, '\n'));
    const auto tokens = embedder.tokenizer().encode(record.text);
    CHECK(tokens.size() <= 66);
    CHECK(difference(Tensor::from(record.row, {1, 24}), embedder.embed({tokens})) <= tolerance::float32);
  }
  CHECK(std::is_sorted(paths.begin(), paths.end()));
  CHECK(std::count(paths.begin(), paths.end(), fs::canonical(texts.texts / "deep/short").string()) == 1);
}

TEST_CASE("an index that is made again embeds only what is new, and has nothing that is gone", "[text_search]") {
  const Texts texts;
  const int64_t all = texts.make()["passages"];
  const std::string before = bytes_of_file(texts.index);
  CHECK(texts.make()["embedded"] == 0);
  CHECK(bytes_of_file(texts.index) == before);
  const auto changed = [&](int64_t embedded) {
    const Json summary = texts.make();
    CHECK(summary["embedded"] == embedded);
    CHECK(summary["reused"] == summary["passages"].get<int64_t>() - embedded);
    CHECK(bytes_of_file(texts.index) == texts.bytes_made_anew());
  };
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
  for (const char* other : {"--attention clustered-2", "--attention clustered-2 --seed 7", "--passage-tokens 67"})
    CHECK(texts.make(other)["embedded"] == now);
  const ProcessResult told = texts.run(texts.command("--attention full"));
  CHECK_THAT(told.err, ContainsSubstring("was made with another model or other settings"));
  CHECK_THAT(told.out, ContainsSubstring(" embedded ("));
}

TEST_CASE("an index that is stopped keeps what was embedded, and goes on", "[text_search]") {
  const Texts texts;
  texts.put("long", 150'000);
  const ProcessResult stopped =
      texts.interrupted(texts.command("--save-every 0.1 --exclude '*.o'"), "[ -s index ] && cp index saved");
  INFO(stopped.err);
  REQUIRE(stopped.exit_code == 130);
  CHECK_THAT(stopped.err, ContainsSubstring("the same command goes on"));
  const Index half = read_index(texts.index);
  CHECK_FALSE(half.complete);
  CHECK(half.records.size() > read_index(texts.folder / "saved").records.size());
  const ProcessResult asked = texts.run("query --index index a b c");
  CHECK(asked.exit_code == 0);
  CHECK_THAT(asked.err, ContainsSubstring("the index is not complete"));
  const Json again = texts.make();
  CHECK(again["reused"].get<size_t>() >= half.records.size());
  CHECK(again["embedded"] > 0);
  CHECK(bytes_of_file(texts.index) == texts.bytes_made_anew());
}

TEST_CASE("a damaged index, or what is none, is refused and stays", "[text_search]") {
  const Texts texts;
  texts.make();
  const TensorFile good = read_safetensors(texts.index);
  const auto refused = [&](const std::string& message, const std::function<void(TensorFile&)>& damage) {
    TensorFile file = read_safetensors(texts.index);
    damage(file);
    CHECK_THAT(data_error([&] { parse_index(file); }), ContainsSubstring(message));
  };
  const auto tensor = [](TensorFile& file, const std::string& name) -> Tensor& {
    for (auto& [key, value] : file.tensors)
      if (key == name) return value;
    FAIL("no " << name);
    return file.tensors[0].second;
  };
  const int64_t n = good.at("ends").size(0);
  refused("not an index", [](TensorFile& f) { f.metadata.clear(); });
  refused("expected a string format", [](TensorFile& f) { f.metadata["index"] = "{}"; });
  refused("an index of another version",
          [](TensorFile& f) { f.metadata["index"] = R"({"format":"cairn text index 9"})"; });
  refused("does not have the length 1", [&](TensorFile& f) { tensor(f, "embeddings").mutable_data<float>()[30] += 2; });
  refused("row 1 does", [&](TensorFile& f) { tensor(f, "embeddings").mutable_data<float>()[3] = NAN; });
  refused("passage 2 ends at byte 1", [&](TensorFile& f) { tensor(f, "ends").mutable_data<int64_t>()[1] = 1; });
  refused("ends: expected int64", [&](TensorFile& f) { tensor(f, "ends") = tensor(f, "ends").slice(1, n); });
  refused("bytes, expected", [&](TensorFile& f) {
    for (const char* name : {"ends", "embeddings"}) tensor(f, name) = tensor(f, name).slice(0, n - 1);
  });
  refused("passage 1", [&](TensorFile& f) { tensor(f, "passages").mutable_data<uint8_t>()[0] = '['; });
  refused("expected a whole number line", [&](TensorFile& f) {
    const std::string line = R"({"path":"/a","line":-1,"last_line":1,"begin":0,"end":1,"text":""})";
    tensor(f, "passages") = Tensor::from(std::vector<uint8_t>(line.begin(), line.end()), {int64_t(line.size())});
    tensor(f, "ends") = Tensor::from<int64_t>({int64_t(line.size())}, {1});
    tensor(f, "embeddings") = tensor(f, "embeddings").slice(0, 1);
  });

  const std::string bytes = bytes_of_file(texts.index);
  for (const size_t size : {size_t{0}, size_t{8}, size_t{100}, bytes.size() - 1}) {
    put_file(texts.index, bytes.substr(0, size));
    texts.refuses("query --index index --quiet words", 3, "index: ");
    texts.refuses(texts.command("--quiet"), 3, "--out index: ");
    CHECK(fs::file_size(texts.index) == size);
  }
  // An index of the version before this one was a folder.
  fs::remove(texts.index);
  fs::create_directory(texts.index);
  put_file(texts.index / "passages.jsonl", "");
  texts.refuses("query --index index --quiet words", 3,
                "text-search index PATH --model DIR --out FILE makes a new one");
  texts.refuses(texts.command("--quiet"), 3, "is an index of an older version");
}

TEST_CASE("a search gives the nearest passages, of those that repeat each other the best", "[text_search]") {
  Index index;
  index.records = {record_of("/a", 0, 10, "one", 0.3),  record_of("/a", 8, 20, "two", 0.2),
                   record_of("/a", 20, 30, "three", 1), record_of("/b", 0, 10, "two", 0.1),
                   record_of("/b", 5, 9, "four", 0.5),  record_of("/c", 0, 10, "five", 0.7),
                   record_of("/d", 5, 9, "six", -0.7),  record_of("/d", 0, 5, "seven", 3)};
  const auto found = [&](const std::vector<float>& query, int64_t top) {
    std::string texts;
    for (const Hit& hit : search(index, query, top)) texts += hit.record->path + ":" + hit.record->text + " ";
    return texts;
  };
  // "one" is first where "two" of the same file, which overlaps it, is a repetition of /b's.
  CHECK(found({1, 0}, 9) == "/b:two /a:one /c:five /d:six /a:three /d:seven ");
  CHECK(found({1, 0}, 3) == "/b:two /a:one /c:five ");  // of equal ones the first
  CHECK(found({-1, 0}, 1) == "/d:seven ");
  CHECK(search(index, {1, 0}, 1)[0].score == Approx(std::cos(0.1)));
  CHECK(search({}, {1, 0}, 5).empty());
}

TEST_CASE("text-search query answers words, and lines of standard input", "[text_search]") {
  const Texts texts;
  texts.make();
  // A passage is nearest to itself, with a cosine of 1.
  const ProcessResult found = texts.run("query --index index --quiet --top 2 caf au lait");
  INFO(found.err);
  CHECK(found.exit_code == 0);
  CHECK(found.out.rfind("texts/latin:1  1.000  caf", 0) == 0);
  CHECK(std::count(found.out.begin(), found.out.end(), '\n') == 2);
  const Json answer = Json::parse(texts.run("query --index index --top 100 --json 'the cluster of'").out);
  CHECK(answer["query"] == "the cluster of");
  const auto hit = std::find_if(answer["hits"].begin(), answer["hits"].end(), [](const Json& each) {
    return each["path"].get<std::string>().ends_with("cluster.txt");
  });
  REQUIRE(hit != answer["hits"].end());
  CHECK((*hit)["line"] == 1);
  CHECK((*hit)["last_line"] == 3);
  CHECK((*hit)["excerpt"] == "the cluster of a query and its key");
  CHECK((*hit)["excerpt_line"] == 3);
  CHECK(((*hit)["score"] > -1 && (*hit)["score"] < 1));

  // By the model of the index alone.
  fs::copy(small_model, texts.folder / "model");
  TensorFile weights = read_safetensors(texts.folder / "model/model.safetensors");
  weights.tensors[0].second.mutable_data<float>()[0] += 1;
  write_safetensors(texts.folder / "model/model.safetensors", weights);
  texts.refuses("query --index index --quiet --model model words", 3, "made by another model");

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

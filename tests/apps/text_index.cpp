// text-search: an index is made, brought up to date, stopped, killed, damaged and searched.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <thread>

#include "apps/common/run_folder.h"
#include "apps/text_search/search.h"
#include "apps/text_search/update.h"
#include "nn/io/safetensors.h"
#include "tests/io/io_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

// A token a word.
std::vector<WordPiece::Token> tokenize(std::string_view text) {
  std::vector<WordPiece::Token> tokens;
  for (size_t begin = 0, end; (begin = text.find_first_not_of(" \n", begin)) != std::string_view::npos; begin = end) {
    end = std::min(text.find_first_of(" \n", begin), text.size());
    int32_t id = 0;
    for (const char c : text.substr(begin, end - begin)) id = (id * 31 + c) % 9973;
    tokens.push_back({id + 2, begin, end});
  }
  return tokens;
}

struct Killed {};

// Embeds without a model: tokens name directions.
struct FakeModel {
  IndexModel model;
  int64_t embedded = 0;    // sequences
  int64_t killed_at = -1;  // the call of embed that does not return
  int64_t calls = 0;

  FakeModel() {
    model.settings = {"print", "/model", "full", 1, 20, 8};
    model.tokenize = tokenize;
    model.cls = 0, model.sep = 1, model.batch = 3;
    model.embed = [this](const std::vector<std::vector<int32_t>>& sequences) {
      if (calls++ == killed_at) throw Killed();
      CHECK((sequences.size() >= 1 && sequences.size() <= 3));
      embedded += int64_t(sequences.size());
      Tensor rows({int64_t(sequences.size()), 8});
      float* row = rows.mutable_data<float>();
      for (const auto& tokens : sequences) {
        CHECK((tokens.front() == 0 && tokens.back() == 1 && tokens.size() <= 20));
        double square = 0;
        std::fill(row, row + 8, 0.5f);
        for (const int32_t token : tokens) row[token % 8] += float(token % 13);
        for (int i = 0; i < 8; ++i) square += double(row[i]) * double(row[i]);
        for (int i = 0; i < 8; ++i) row[i] = float(double(row[i]) / std::sqrt(square));
        row += 8;
      }
      return rows;
    };
  }
  FakeModel(const FakeModel&) = delete;
  FakeModel& operator=(const FakeModel&) = delete;
};

// Some files, and an index of them.
struct Corpus {
  TemporaryFolder folder;
  UpdateOptions options;

  Corpus() {
    options.out = folder / "index";
    fs::create_directories(folder / "texts/b");
    put("a", 100);
    put("b/c", 3);
    put("b/d", 400);
    put("b.txt", 30);
    put("z", 70);
    options.walk.roots = roots_of({(folder / "texts").string()});
  }
  std::string path(const std::string& name) const { return (folder / ("texts/" + name)).string(); }
  void put(const std::string& name, int words, int first = 0) const {
    std::string text;
    for (int i = 0; i < words; ++i) text += name + std::to_string(first + i) + (i % 5 == 4 ? "\n" : " ");
    put_file(path(name), text);
  }
  IndexCounts update(FakeModel& model) const { return update_index(options, model.model); }
  IndexCounts update() const {
    FakeModel model;
    return update(model);
  }
  std::string bytes() const {
    return bytes_of_file(options.out / "passages.jsonl") + bytes_of_file(options.out / "embeddings.safetensors");
  }
  // The bytes of the index made anew.
  std::string bytes_made_anew() const {
    Corpus* self = const_cast<Corpus*>(this);
    self->options.out = folder / "anew";
    fs::remove_all(options.out);
    update();
    const std::string made = bytes();
    self->options.out = folder / "index";
    return made;
  }
  int files() const { return int(std::distance(fs::directory_iterator(options.out), fs::directory_iterator())); }
};

std::string usage_error(const UpdateOptions& options, const IndexModel& model) {
  try {
    update_index(options, model);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}
std::string usage_error(const UpdateOptions& options) {
  FakeModel model;
  return usage_error(options, model.model);
}

std::vector<Record> records_of(const fs::path& folder) {
  std::vector<Record> records;
  for (IndexStream stream(folder, ""); stream.record(); stream.advance()) records.push_back(*stream.record());
  return records;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("an index has every passage, in files that anybody reads", "[text_search]") {
  const Corpus corpus;
  put_file(corpus.path("binary"), std::string("a\0b", 3));
  put_file(corpus.path("empty"), " \n");
  put_file(corpus.path("latin"), "caf\xE9 au lait");
  FakeModel model;
  const IndexCounts counts = corpus.update(model);
  CHECK(counts.files == 6);
  CHECK(counts.unchanged == 0);
  CHECK(counts.skipped == SkippedCounts{1, 1, 0, 0, 0, 0});
  CHECK(counts.passages == model.embedded);
  CHECK(counts.embedded == model.embedded);
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(corpus.folder / "texts"))
    if (entry.is_regular_file()) bytes += int64_t(entry.file_size());
  CHECK(counts.bytes == bytes);

  const TensorFile file = read_safetensors(corpus.options.out / "embeddings.safetensors");
  REQUIRE(file.tensors.size() == 1);
  const Tensor& embeddings = file.at("embeddings");
  REQUIRE(embeddings.shape() == Shape{counts.passages, 8});
  CHECK(file.metadata.at("passages_xxh128") == xxh128(read_file(corpus.options.out / "passages.jsonl")));
  CHECK(file.metadata.at("complete") == "yes");
  CHECK(corpus.files() == 3);  // with .lock

  const std::vector<Record> records = records_of(corpus.options.out);
  REQUIRE(int64_t(records.size()) == counts.passages);
  std::set<std::string> paths;
  for (size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    paths.insert(record.path);
    const std::string text = read_file(record.path);
    CHECK(record.file_hash == xxh128(text));
    const std::string passage = text.substr(size_t(record.begin), size_t(record.end - record.begin));
    CHECK(record.text == (record.path == corpus.path("latin") ? "caf\xEF\xBF\xBD au lait" : passage));
    CHECK(record.line == 1 + std::count(text.begin(), text.begin() + record.begin, '\n'));
    CHECK(record.last == (i + 1 == records.size() || records[i + 1].path != record.path));
    // The row is that of the passage.
    std::vector<int32_t> tokens{0};
    for (const auto& token : tokenize(passage)) tokens.push_back(token.id);
    tokens.push_back(1);
    const Tensor row = model.model.embed({tokens});
    CHECK(std::memcmp(row.raw(), embeddings.data<float>() + i * 8, 32) == 0);
  }
  CHECK(paths.size() == 6);
}

TEST_CASE("what has not changed is not embedded again, and what is gone leaves the index", "[text_search]") {
  const Corpus corpus;
  const int64_t all = corpus.update().passages;
  const std::string before = corpus.bytes();
  {
    FakeModel model;
    const IndexCounts counts = corpus.update(model);
    CHECK(model.embedded == 0);
    CHECK(counts.files == 5);
    CHECK(counts.unchanged == 5);
    CHECK(counts.unchanged_bytes == counts.bytes);
    CHECK(counts.passages == all);
    CHECK(corpus.bytes() == before);
  }
  const auto changed = [&](int64_t embedded, int64_t removed) {
    FakeModel model;
    const IndexCounts counts = corpus.update(model);
    CHECK(model.embedded == embedded);
    CHECK(counts.removed == removed);
    CHECK(corpus.bytes() == corpus.bytes_made_anew());
  };
  const auto passages = [&](const std::string& name) {
    const auto records = records_of(corpus.options.out);
    return std::count_if(records.begin(), records.end(), [&](const Record& r) { return r.path == corpus.path(name); });
  };
  corpus.put("b/d", 400, 1);
  changed(passages("b/d"), 0);
  fs::remove(corpus.path("b/c"));
  changed(0, 1);
  const int64_t renamed = passages("z");
  fs::rename(corpus.path("z"), corpus.path("a-renamed"));
  changed(renamed, 1);
  corpus.put("0first", 2);
  corpus.put("zlast", 2);
  changed(2, 0);
  put_file(corpus.path("zlast"), std::string("\0", 1));
  put_file(corpus.path("a"), "");
  changed(0, 2);
  corpus.put("b.txt", 10);  // shorter than it was
  changed(1, 0);
  fs::remove_all(corpus.path("b"));
  changed(0, 1);
  for (const char* name : {"b.txt", "a-renamed", "0first"}) fs::remove(corpus.path(name));
  changed(0, 3);
  CHECK(Index(corpus.options.out).size() == 0);
}

TEST_CASE("an index that is stopped anywhere goes on, and nothing is embedded twice", "[text_search]") {
  const Corpus corpus;
  const std::string first = corpus.bytes_made_anew();
  const int64_t all = records_of(corpus.folder / "anew").size();
  for (const bool has_old : {false, true}) {
    if (has_old) {  // most files change
      corpus.put("a", 100, 50);
      corpus.put("b/d", 410, 1);
      corpus.put("b/c", 3, 1);
    }
    const std::string second = corpus.bytes_made_anew();
    bool stopped = true;
    for (int64_t stop_at = 0; stopped; stop_at += 3) {
      INFO("stopped at look " << stop_at << ", with an old index: " << has_old);
      fs::remove_all(corpus.options.out);
      if (has_old) {
        fs::create_directory(corpus.options.out);
        const size_t passages = first.find("\n", first.rfind("\"text\"")) + 1;
        put_file(corpus.options.out / "passages.jsonl", first.substr(0, passages));
        put_file(corpus.options.out / "embeddings.safetensors", first.substr(passages));
      }
      FakeModel model;
      UpdateOptions options = corpus.options;
      int64_t looks = 0;
      options.stop = [&] { return looks++ >= stop_at; };
      const IndexCounts counts = update_index(options, model.model);
      stopped = counts.interrupted;
      const Index index(corpus.options.out);  // can be searched
      CHECK(index.size() == counts.passages);
      CHECK(index.header().complete == !stopped);
      CHECK(corpus.files() == 3);
      const std::vector<Record> records = records_of(corpus.options.out);
      for (size_t i = 1; i < records.size(); ++i)  // a file is there as it was or as it is
        CHECK((records[i].path != records[i - 1].path || records[i].file_hash == records[i - 1].file_hash));
      if (has_old) CHECK(index.size() > all / 4);  // what was not reached is still there
      corpus.update(model);
      CHECK(corpus.bytes() == second);
      CHECK(model.embedded == (has_old ? all + 1 - 3 - 5 : all));
    }
  }
}

TEST_CASE("an index that is killed anywhere goes on with what was embedded", "[text_search]") {
  const Corpus corpus;
  const std::string second = corpus.bytes_made_anew();
  const auto all = int64_t(records_of(corpus.folder / "anew").size());
  bool killed = true;
  for (int64_t call = 0; killed; call += 4) {
    INFO("killed in call " << call);
    fs::remove_all(corpus.options.out);
    FakeModel model;
    model.killed_at = call;
    killed = false;
    try {
      corpus.update(model);
    } catch (const Killed&) {
      killed = true;
    }
    if (killed) CHECK_THAT(data_error([&] { Index(corpus.options.out); }), ContainsSubstring("not finished"));
    model.killed_at = -1;
    corpus.update(model);
    CHECK(corpus.bytes() == second);
    CHECK(corpus.files() == 3);
    CHECK(model.embedded <= all + 4 * 3);  // a window at most is lost
  }
}

TEST_CASE("a killed run's files may be cut off or damaged anywhere", "[text_search]") {
  const Corpus corpus;
  corpus.update();
  corpus.put("b/d", 900, 7);
  corpus.put("z", 10);
  const std::string second = corpus.bytes_made_anew();
  fs::copy(corpus.options.out, corpus.folder / "old");
  {
    FakeModel model;
    model.killed_at = 14;
    CHECK_THROWS_AS(corpus.update(model), Killed);
  }
  const fs::path passages = corpus.options.out / "passages.jsonl.new",
                 embeddings = corpus.options.out / "embeddings.safetensors.new";
  const std::string text = bytes_of_file(passages), rows = bytes_of_file(embeddings);
  REQUIRE(text.size() > 5000);
  REQUIRE(rows.size() > 1000);
  const auto goes_on = [&](const std::string& new_text, const std::string& new_rows) {
    fs::remove_all(corpus.options.out);
    fs::copy(corpus.folder / "old", corpus.options.out);
    put_file(passages, new_text);
    put_file(embeddings, new_rows);
    FakeModel model;
    corpus.update(model);
    CHECK(corpus.files() == 3);
    const bool same = corpus.bytes() == second;
    CHECK(same);
    return model.embedded;
  };
  const int64_t least = goes_on(text, rows), most = goes_on("", "");
  CHECK(least + 20 < most);
  int64_t before = most;
  for (size_t cut = 0; cut < text.size(); cut += 401) {
    const int64_t embedded = goes_on(text.substr(0, cut), rows);
    CHECK(embedded <= before);
    before = embedded;
  }
  CHECK(before < least + 5);
  for (size_t cut = 0; cut < rows.size(); cut += 57) goes_on(text, rows.substr(0, cut));
  CHECK(goes_on(text, rows.substr(0, rows.size() - 33)) <= least + 2);
  // What a power cut may leave: zeros.
  std::string zeros = rows;
  std::fill(zeros.end() - 320, zeros.end(), '\0');
  CHECK(goes_on(text, zeros) == least + 10);
  zeros = text;
  std::fill(zeros.end() - 2000, zeros.end(), '\0');
  goes_on(zeros, rows);
  // Without an old index, what a run with other settings left is kept.
  fs::remove_all(corpus.options.out);
  fs::create_directory(corpus.options.out);
  put_file(passages, text);
  put_file(embeddings, replaced(rows, "\"print\"", "\"paint\""));
  CHECK_THAT(usage_error(corpus.options), ContainsSubstring("made with model \"paint\", got model \"print\""));
  CHECK(bytes_of_file(passages) == text);
  UpdateOptions options = corpus.options;
  options.rebuild = true;
  CHECK(usage_error(options) == "no error");
  CHECK(corpus.bytes() == second);
  CHECK(corpus.files() == 3);
}

TEST_CASE("an index is of its paths until it is rebuilt with others", "[text_search]") {
  const Corpus corpus;
  corpus.update();
  const std::string before = corpus.bytes();
  CHECK(find_index(corpus.options.out)->settings.paths ==
        std::vector<std::string>{fs::canonical(corpus.folder / "texts").string()});
  UpdateOptions options = corpus.options;
  fs::create_directory(corpus.folder / "empty");
  options.walk.roots = roots_of({(corpus.folder / "empty").string()});
  CHECK_THAT(usage_error(options),
             ContainsSubstring(concat("made with PATH \"", fs::canonical(corpus.folder / "texts").string(), "\"")) &&
                 ContainsSubstring("or --rebuild to replace it"));
  CHECK(corpus.bytes() == before);
  for (const fs::path& inside : {corpus.options.out, corpus.options.out / "passages.jsonl"}) {
    options.walk.roots = {inside};
    CHECK_THAT(usage_error(options), ContainsSubstring("is the index itself, or in it"));
  }
  options.walk.roots = roots_of({corpus.path("b")});
  options.walk.exclude = {"d*"};
  options.rebuild = true;
  CHECK(usage_error(options) == "no error");
  CHECK(records_of(corpus.options.out).size() == 1);
  CHECK(find_index(corpus.options.out)->settings.exclude == std::vector<std::string>{"d*"});
}

TEST_CASE("an index that is stopped or killed while it is rebuilt stays, and the rebuilding goes on", "[text_search]") {
  const Corpus corpus;
  corpus.update();
  const std::string before = corpus.bytes();
  const auto all = int64_t(records_of(corpus.options.out).size());
  UpdateOptions options = corpus.options;
  options.rebuild = true;
  for (const bool killed : {false, true}) {
    FakeModel model;
    for (int64_t run = 0, looks = 0; run < 3; ++run, looks = 0) {
      options.stop = [&] { return !killed && looks++ >= 6; };
      model.killed_at = killed ? model.calls + 6 : -1;
      try {
        const IndexCounts counts = update_index(options, model.model);
        CHECK((counts.interrupted && counts.passages < all));
      } catch (const Killed&) {
      }
      CHECK(corpus.bytes() == before);
      CHECK(corpus.update().embedded == 0);  // an update of the old index leaves the new one alone
    }
    model.killed_at = -1, options.stop = {};
    const IndexCounts counts = update_index(options, model.model);
    CHECK((counts.passages == all && !counts.interrupted));
    CHECK(counts.embedded < all - 5);
    CHECK(model.embedded <= all + 3 * 12);
    CHECK(corpus.bytes() == before);
    CHECK(corpus.files() == 3);
  }
  FakeModel model;
  CHECK(update_index(options, model.model).embedded == all);
}

TEST_CASE("a damaged row is found where it is copied or searched, and rebuilt", "[text_search]") {
  const Corpus corpus;
  corpus.update();
  const std::string before = corpus.bytes();
  const fs::path embeddings = corpus.options.out / "embeddings.safetensors";
  const uint64_t begin = find_index(corpus.options.out)->bytes;
  std::string rows = bytes_of_file(embeddings);
  rows[size_t(begin) + 2 * 32 + 3] = char(0x7F);  // the highest byte of row 3's first number
  put_file(embeddings, rows);
  const auto message = ContainsSubstring("embeddings.safetensors: damaged: row 3 ");
  CHECK_THAT(data_error([&] { corpus.update(); }), message);
  const Index index(corpus.options.out);
  CHECK_THAT(data_error([&] { search(index, Tensor::full({8}, 0.1), 1); }), message);
  UpdateOptions options = corpus.options;
  options.rebuild = true;
  CHECK(usage_error(options) == "no error");
  CHECK(corpus.bytes() == before);
}

TEST_CASE("files that cannot be read, or below a folder that cannot, keep their passages", "[text_search]") {
  const Corpus corpus;
  corpus.update();
  const std::string before = corpus.bytes();
  // Behind the first file neither the folder b nor b.txt can be opened; behind the fourth, z cannot.
  for (const auto& [files, unreadable] : {std::pair(1, 2), {4, 1}}) {
    FakeModel model;
    UpdateOptions options = corpus.options;
    rlimit limit{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const rlimit none{3, limit.rlim_max};
    options.progress = [&, looks = 0, behind = files](const IndexCounts&) mutable {
      CHECK(setrlimit(RLIMIT_NOFILE, ++looks == behind ? &none : &limit) == 0);
    };
    const IndexCounts counts = update_index(options, model.model);
    CHECK(counts.skipped[size_t(Skipped::unreadable)] == unreadable);
    CHECK(counts.removed == 0);
    CHECK(counts.files == 5);
    CHECK(corpus.bytes() == before);
  }
}

TEST_CASE("a file that grows while it is indexed is indexed as it was", "[text_search]") {
  const Corpus corpus;
  const std::string path = corpus.path("log");
  put_file(path, "begun" + std::string(4'000'000, '\n'));
  std::atomic<bool> ended = false;
  std::thread growth([&] {
    for (std::ofstream log(path, std::ios::app); !ended;) log << '\n' << std::flush;
  });
  FakeModel model;
  for (int round = 0; round < 5; ++round) {
    const IndexCounts counts = corpus.update(model);
    CHECK(counts.skipped == SkippedCounts{});
    CHECK(counts.files == 6);
  }
  ended = true;
  growth.join();
  corpus.update(model);
  CHECK(corpus.bytes() == corpus.bytes_made_anew());
}

TEST_CASE("a run that ends between the renaming of two files leaves a whole index", "[text_search]") {
  const Corpus corpus;
  for (const bool has_old : {false, true}) {
    INFO(has_old);
    corpus.put("z", 50 + has_old);
    corpus.bytes_made_anew();
    if (has_old)
      fs::copy_file(corpus.folder / "anew/passages.jsonl", corpus.options.out / "passages.jsonl",
                    fs::copy_options::overwrite_existing);
    else
      fs::create_directory(corpus.options.out),
          fs::copy_file(corpus.folder / "anew/passages.jsonl", corpus.options.out / "passages.jsonl");
    fs::copy_file(corpus.folder / "anew/embeddings.safetensors", corpus.options.out / "embeddings.safetensors.new");
    const Index index(corpus.options.out);
    CHECK(index.size() == int64_t(records_of(corpus.folder / "anew").size()));
    FakeModel model;
    corpus.update(model);
    CHECK(model.embedded == 0);
    CHECK(corpus.bytes() == corpus.bytes_made_anew());
    CHECK(corpus.files() == 3);
  }
}

TEST_CASE("a full disk leaves the old index as it was, and what was embedded is used", "[text_search]") {
  const Corpus corpus;
  corpus.update();
  const std::string before = corpus.bytes();
  corpus.put("0large", 20000);
  FakeModel model;
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{100'000, limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string message;
  try {
    corpus.update(model);
  } catch (const Error& error) {
    message = error.what();
  }
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  CHECK_THAT(message, ContainsSubstring("passages.jsonl.new: cannot be written"));
  CHECK(corpus.bytes() == before);
  CHECK(Index(corpus.options.out).size() > 0);
  const int64_t embedded = model.embedded;
  CHECK(embedded > 100);
  corpus.update(model);
  const std::vector<Record> records = records_of(corpus.options.out);
  const auto is_new = [&](const Record& record) { return record.path == corpus.path("0large"); };
  CHECK(model.embedded <= std::count_if(records.begin(), records.end(), is_new) + 12);
  CHECK(corpus.bytes() == corpus.bytes_made_anew());
}

TEST_CASE("an index is refused that another run writes, of another model, or damaged", "[text_search]") {
  const Corpus corpus;
  corpus.update();
  const std::string before = corpus.bytes();
  FakeModel model;
  {
    const FolderLock lock(corpus.options.out);
    CHECK_THAT(usage_error(corpus.options, model.model), ContainsSubstring("another run is writing"));
  }
  {
    FakeModel other;
    other.model.settings.fingerprint = "paint";
    other.model.settings.attention = "clustered-5";
    CHECK_THAT(
        usage_error(corpus.options, other.model),
        ContainsSubstring("model \"print\", attention \"full\", got") && ContainsSubstring("got model \"paint\""));
    other.model.settings = model.model.settings;
    other.model.settings.passage_tokens = 12;
    CHECK_THAT(usage_error(corpus.options, other.model),
               ContainsSubstring("made with passages of 20 tokens, got passages of 12 tokens; choose"));
    CHECK(corpus.bytes() == before);
    UpdateOptions options = corpus.options;
    options.rebuild = true;
    const IndexCounts counts = update_index(options, other.model);
    CHECK(counts.unchanged == 0);
    CHECK(counts.embedded == counts.passages);
    update_index(options, model.model);
    CHECK(corpus.bytes() == before);
  }
  {
    UpdateOptions options = corpus.options;
    options.out = corpus.folder / "texts";
    CHECK_THAT(usage_error(options, model.model), ContainsSubstring("not part of an index"));
    CHECK_FALSE(fs::exists(corpus.folder / "texts/.lock"));
    options.out = corpus.path("a");
    CHECK_THAT(usage_error(options, model.model), ContainsSubstring("expected a folder"));
  }
  const fs::path passages = corpus.options.out / "passages.jsonl",
                 embeddings = corpus.options.out / "embeddings.safetensors";
  const std::string text = bytes_of_file(passages), rows = bytes_of_file(embeddings);
  const auto damaged = [&](const std::string& new_text, const std::string& new_rows, const char* what) {
    put_file(passages, new_text);
    put_file(embeddings, new_rows);
    CHECK_THAT(data_error([&] { corpus.update(); }), ContainsSubstring(what));
    data_error([&] { Index(corpus.options.out); });
    UpdateOptions options = corpus.options;
    options.rebuild = true;
    FakeModel fresh;
    update_index(options, fresh.model);
    CHECK(corpus.bytes() == before);
  };
  damaged(replaced(text, "\"passage\":1", "\"passage\":2"), rows, "passages.jsonl: damaged");
  damaged(text.substr(0, text.size() - 10), rows, "passages.jsonl: damaged");
  damaged(text, rows.substr(0, rows.size() - 1), "embeddings.safetensors: damaged");
  damaged(text, rows + "more", "embeddings.safetensors: damaged");
  damaged(text, rows.substr(0, 100), "cut off");
  damaged(text, "", "not an index");
  damaged(text, replaced(rows, "text index 1", "text index 2"), "another version");
  damaged(text, replaced(rows, "cairn text", "other text"), "not an index");
  // With the right hash, records that are wrong.
  const auto forged = [&](const std::string& new_text, const char* what) {
    put_file(passages, new_text);
    put_file(embeddings, replaced(rows, xxh128(text), xxh128(new_text)));
    CHECK_THAT(data_error([&] { corpus.update(); }), ContainsSubstring(what));
    fs::remove(corpus.options.out / "passages.jsonl.new");
    fs::remove(corpus.options.out / "embeddings.safetensors.new");
  };
  forged(replaced(text, "\"passage\":1", "\"passage\":2"), "record 3 is not in its place");
  forged(replaced(text, "\"line\":", "\"lime\":"), "record 1: no line");
  forged(replaced(text, "\"line\":1", "\"line\":0"), "record 1: line: expected a whole number of at least 1");
  forged(text.substr(0, text.rfind("{")), "records, expected");
  forged(text + text.substr(text.rfind("{")), "more than");
  forged(text.substr(0, text.size() - 1), "cut off");
  fs::remove(passages);
  CHECK_THAT(data_error([&] { corpus.update(); }), ContainsSubstring("passages.jsonl: is missing"));
  data_error([&] { Index(corpus.options.out); });
  fs::remove(embeddings);
  CHECK_THAT(data_error([&] { Index(corpus.options.out); }), ContainsSubstring("there is no index"));
}

TEST_CASE("a header and a record are read back, and refused with a byte less or another", "[text_search]") {
  IndexHeader header;
  header.settings = {"print", "/a model", "full,clustered-5", 7, 128, 4, {"/a", "/b \"c\""}, {"*.o"}};
  header.rows = 3, header.complete = true, header.passages_hash = std::string(32, 'a');
  const std::string text = header_text(header);
  const IndexHeader read = parse_index_header(text, text.size() + 48, "here");
  CHECK(read.settings.agrees_with(header.settings));
  CHECK(read.settings.model == "/a model");
  CHECK(read.settings.attention == "full,clustered-5");
  CHECK(read.settings.seed == 7);
  CHECK((read.rows == 3 && read.complete && read.bytes == text.size()));
  CHECK(read.passages_hash == header.passages_hash);
  CHECK((read.settings.paths == header.settings.paths && read.settings.exclude == header.settings.exclude));
  CHECK(parse_index_header(text, text.size() + 35, "here", true).rows == 2);
  header.rows = INT64_MAX / 16, header.passages_hash.clear();
  CHECK(header_text(header).size() == text.size());
  for (size_t cut = 0; cut < text.size(); ++cut)
    data_error([&] { parse_index_header(std::string_view(text).substr(0, cut), cut, "here"); });
  for (size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = char(other[i] ^ 5);
    try {
      parse_index_header(other, text.size() + 48, "here");
    } catch (const DataError& error) {
      CHECK_THAT(error.what(), ContainsSubstring("here: "));
    }
  }
  Record record;
  record.path = "/a/\"b\"\n\xC3\xA4", record.text = std::string("t\0\x01\xFF", 4), record.file_hash = "0f";
  record.line = 3, record.last_line = 5, record.begin = 10, record.end = 20, record.passage = 2, record.last = true;
  const std::string line = record_text(record);
  CHECK(std::count(line.begin(), line.end(), '\n') == 1);
  const Record again = parse_record(line, "here");
  CHECK(again.path == record.path);
  CHECK(again.text == std::string("t\0\x01\xEF\xBF\xBD", 6));
  CHECK((again.line == 3 && again.last_line == 5 && again.begin == 10 && again.end == 20 && again.passage == 2));
  CHECK((again.last && again.file_hash == "0f"));
  for (size_t cut = 0; cut + 2 < line.size(); ++cut)
    data_error([&] { parse_record(std::string_view(line).substr(0, cut), "here"); });
}

TEST_CASE("a search gives the nearest passages, of overlapping ones the better", "[text_search]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "index");
  IndexSettings settings{"print", "/model", "full", 1, 20, 2};
  struct Row {
    const char* path;
    int64_t begin, end;
    float x;
  };
  const std::vector<Row> rows = {{"/a", 0, 10, 0.1f},  {"/a", 8, 20, 0.8f}, {"/a", 18, 30, 0.9f},  {"/a", 28, 40, 0.7f},
                                 {"/a", 40, 50, 0.7f}, {"/b", 0, 10, 0.6f}, {"/b", 10, 12, -0.5f}, {"/c", 0, 9, 0.95f}};
  {
    IndexWriter writer(folder / "index", settings);
    int64_t passage = 0;
    for (const Row& row : rows) {
      Record record;
      record.path = row.path, record.begin = row.begin, record.end = row.end, record.passage = passage++;
      record.text = concat(row.path, row.begin);
      writer.append(record, record_text(record), {row.x, std::sqrt(1 - row.x * row.x)});
    }
    writer.finish(true);
  }
  const Index index(folder / "index");
  const auto found = [&](int64_t top) {
    std::string text;
    for (const Hit& hit : search(index, Tensor::from(std::vector<float>{1, 0}, {2}), top))
      text += concat(hit.record.path, ' ', hit.record.begin, ' ', hit.score, "  ");
    return text;
  };
  CHECK(found(1) == "/c 0 0.95  ");
  CHECK(found(2) == "/c 0 0.95  /a 18 0.9  ");
  CHECK(found(4) == "/c 0 0.95  /a 18 0.9  /a 40 0.7  /b 0 0.6  ");  // 28 overlaps 18; of equals the first
  CHECK(found(100) == found(4) + "/a 0 0.1  /b 10 -0.5  ");
  CHECK_THROWS_AS(search(index, Tensor::zeros({3}), 1), Error);
}

TEST_CASE("a search gives passages of the same text once", "[text_search]") {
  const Corpus corpus;
  for (int i = 0; i < 40; ++i) put_file(corpus.path(concat("copy", i)), "the same");
  FakeModel model;
  corpus.update(model);
  const Index index(corpus.options.out);
  const Tensor query = model.model.embed({{0, tokenize("the")[0].id, tokenize("same")[0].id, 1}});
  const std::vector<Hit> hits = search(index, query.reshape({8}), 4);
  REQUIRE(hits.size() == 4);
  CHECK(hits[0].record.path == corpus.path("copy0"));
  for (size_t i = 1; i < hits.size(); ++i) CHECK(hits[i].record.text != "the same");
}

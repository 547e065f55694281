// The embedder of text-search, and its command embed as a user runs it, with a tiny model of random weights.
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "autograd/ops.h"
#include "nn/io/file.h"
#include "nn/io/safetensors.h"
#include "tests/apps/text_search_test.h"
#include "tests/ops/ops_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

// One sequence's embedding by the model itself.
Tensor alone(Embedder& embedder, const std::vector<int32_t>& sequence) {
  const NoGrad no_grad;
  const auto n = int64_t(sequence.size());
  const Tensor length = int32s({int32_t(n)});
  const Generator generator(1);
  const Variable hidden = embedder.bert()(Tensor::from(sequence, {1, n}), length, {false, &generator});
  return l2_normalize(mean_over_length(hidden, length)).value();
}

struct ModelCopy {
  TemporaryFolder folder;
  EmbedderOptions options;

  ModelCopy() {
    fs::copy(small_model, folder.path(), fs::copy_options::recursive);
    options.model = folder.path();
  }
  std::string fingerprint() const { return Embedder(options).fingerprint(); }
  void replace(const std::string& name, const std::string& old, const std::string& text) const {
    std::string all = read_file(folder / name);
    const size_t at = all.find(old);
    REQUIRE(at != std::string::npos);
    put_file(folder / name, all.replace(at, old.size(), text));
  }
};

}  // namespace

TEST_CASE("embeddings come in the order of the sequences, whatever the batch", "[text_search]") {
  const auto sequences = random_sequences({9, 2, 33, 512, 3, 9, 17, 2, 64, 5, 9, 31});
  for (const int64_t batch : {1, 3, 5, 100}) {
    CAPTURE(batch);
    Embedder embedder(small_options(batch));
    std::vector<std::pair<int64_t, int64_t>> calls;
    const Tensor all =
        embedder.embed(sequences, [&](int64_t done, int64_t tokens) { calls.emplace_back(done, tokens); });
    REQUIRE(all.shape() == Shape{12, 24});
    for (int64_t i = 0; i < 12; ++i) {
      CAPTURE(i);
      const Tensor row = all.slice(i, i + 1);
      CHECK(difference(row, alone(embedder, sequences[size_t(i)])) <= tolerance::float32);
      double square = 0;
      for (const double x : as_double(row)) square += x * x;
      CHECK(square == Approx(1).margin(1e-5));
    }
    REQUIRE(calls.size() == size_t((12 + batch - 1) / batch));
    for (size_t i = 0; i + 1 < calls.size(); ++i) CHECK(calls[i].first == int64_t(i + 1) * batch);
    CHECK(calls.back() == std::pair<int64_t, int64_t>(12, 696));
    if (batch == 3) CHECK(calls[0].second == 2 + 2 + 3);  // the shortest first
  }
  CHECK(Embedder(small_options()).embed({}).shape() == Shape{0, 24});
}

TEST_CASE("an embedding of sequences is interrupted after a batch", "[text_search]") {
  const Embedder embedder(small_options(2));
  int calls = 0;
  CHECK_THROWS_AS(embedder.embed(random_sequences({5, 6, 7, 8, 9}),
                                 [&](int64_t, int64_t) {
                                   if (++calls == 2) throw Interrupted();
                                 }),
                  Interrupted);
  CHECK(calls == 2);
}

TEST_CASE("the seed names an embedding by a variant that draws random numbers", "[text_search]") {
  const auto sequences = random_sequences({40, 30, 20});
  Embedder embedder(small_options(2, "clustered-3"));
  const Tensor one = embedder.embed(sequences);
  CHECK(same_bits(one, embedder.embed(sequences)));
  embedder.set_seed(2);
  CHECK(difference(embedder.embed(sequences), one) > 1e-4);
  embedder.set_seed(1);
  embedder.set_attention("full");
  CHECK(embedder.attention() == "full");
  CHECK(difference(embedder.embed(sequences), one) > 1e-4);
  embedder.set_attention("clustered-3");
  CHECK(same_bits(one, embedder.embed(sequences)));
}

TEST_CASE("an embedder refuses what its model cannot do", "[text_search]") {
  const auto refused = [](EmbedderOptions options, const std::string& message) {
    CHECK_THROWS_WITH(Embedder(options), ContainsSubstring(message));
    CHECK_THROWS_AS(Embedder(options), UsageError);
  };
  for (const int64_t tokens : {2, 513, -1}) {
    EmbedderOptions options = small_options();
    options.max_tokens = tokens;
    refused(options, concat("--max-tokens: expected 3 to 512, the positions that the model has, got ", tokens));
  }
  for (const int64_t tokens : {3, 512}) {
    EmbedderOptions options = small_options();
    options.max_tokens = tokens;
    CHECK(Embedder(options).max_tokens() == tokens);
  }
  CHECK(Embedder(small_options()).max_tokens() == 512);
  refused(small_options(1, "full,full"), "--attention: ");
  refused(small_options(1, "shared-full"), "--attention: ");
  refused(small_options(1, "clusterd-3"), "--attention: ");
  refused(small_options(1, ""), "--attention: ");
  CHECK_THROWS_AS(Embedder(small_options()).embed(random_sequences({513})), UsageError);
}

TEST_CASE("a vocabulary may be smaller than the model's, not larger", "[text_search]") {
  const ModelCopy copy;
  std::string vocabulary = read_file(copy.folder / "vocab.txt");
  put_file(copy.folder / "vocab.txt", vocabulary + "more\n");
  CHECK_THAT(data_error([&] { copy.fingerprint(); }),
             ContainsSubstring("vocab.txt") && ContainsSubstring("161 tokens; the model has embeddings for 160"));
  put_file(copy.folder / "vocab.txt", vocabulary.substr(0, vocabulary.find("[unused38]")));
  CHECK_NOTHROW(copy.fingerprint());
  // Padding has at most 1024 rows.
  const int64_t tokens = std::count(vocabulary.begin(), vocabulary.end(), '\n');
  TensorFile weights = read_safetensors(copy.folder / "model.safetensors");
  copy.replace("config.json", concat("\"vocab_size\": ", tokens), concat("\"vocab_size\": ", tokens + 1024));
  put_file(copy.folder / "vocab.txt", vocabulary);
  for (auto& [name, tensor] : weights.tensors)
    if (name.ends_with("word_embeddings.weight")) tensor = Tensor::zeros({tokens + 1024, tensor.size(1)});
  write_safetensors(copy.folder / "model.safetensors", weights);
  CHECK_NOTHROW(copy.fingerprint());
  put_file(copy.folder / "vocab.txt", vocabulary.substr(0, vocabulary.rfind('[')));
  CHECK_THAT(data_error([&] { copy.fingerprint(); }),
             ContainsSubstring("vocab.txt") && ContainsSubstring("is the file cut off"));
}

TEST_CASE("a model's fingerprint changes with whatever its embeddings depend on", "[text_search]") {
  const std::string first = Embedder(small_options(1, "clustered-3")).fingerprint();
  CHECK(first.size() == 32);
  CHECK(ModelCopy().fingerprint() == first);  // not with the folder's name
  const std::pair<const char*, const char*> in_config[] = {
      {"\"num_attention_heads\": 3", "\"num_attention_heads\": 4"}, {"\"gelu\"", "\"relu\""}, {"1e-12", "1e-3"}};
  for (const auto& [old, text] : in_config) {
    CAPTURE(text);
    const ModelCopy copy;
    copy.replace("config.json", old, text);
    CHECK(copy.fingerprint() != first);
  }
  const ModelCopy token;
  token.replace("vocab.txt", "cluster\n", "clusters\n");
  CHECK(token.fingerprint() != first);
  const ModelCopy swapped;
  swapped.replace("vocab.txt", "query\ncluster\n", "cluster\nquery\n");
  CHECK(swapped.fingerprint() != first);
  const ModelCopy cased;
  put_file(cased.folder / "tokenizer_config.json", R"({"do_lower_case": false})");
  CHECK(cased.fingerprint() != first);
  const ModelCopy weight;
  TensorFile weights = read_safetensors(weight.folder / "model.safetensors");
  float& changed = weights.tensors.back().second.mutable_data<float>()[0];
  changed = std::nextafter(changed, 2.0f);
  write_safetensors(weight.folder / "model.safetensors", weights);
  CHECK(weight.fingerprint() != first);
}

// ---- the command

namespace {

struct EmbedCommand {
  TemporaryFolder folder;

  ProcessResult run(const std::string& arguments, const std::string& before = "") const {
    return run_process("text-search", "embed " + arguments, concat("cd ", folder.path(), " && ", before));
  }
  // Runs it on a text; expects that it succeeds.
  TensorFile embed(const std::string& text, const std::string& more = "") const {
    put_file(folder / "text", text);
    const auto result = run(concat("--quiet --text-file text --out out --model ", small_model, ' ', more));
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(result.err.empty());
    CHECK_FALSE(has_name_with(folder.path(), ".new"));
    return read_safetensors(folder / "out");
  }
};

// The program with a pipe for its standard input.
class Piped {
 public:
  Piped(const fs::path& folder, const std::string& arguments) {
    const std::string command = concat("cd ", folder.string(), " && echo $$ >pid && exec ", CAIRN_PROGRAMS,
                                       "/text-search ", arguments, " >printed 2>errors");
    before_ = signal(SIGPIPE, SIG_IGN);
    pipe_ = popen(command.c_str(), "w");
    REQUIRE(pipe_);
    wait_until([&] { return bytes_of_file(folder / "pid").ends_with('\n'); });
    pid_ = std::stoi(bytes_of_file(folder / "pid"));
  }
  ~Piped() {
    if (pipe_) end();
    signal(SIGPIPE, before_);
  }
  Piped(const Piped&) = delete;
  Piped& operator=(const Piped&) = delete;

  // False if nobody reads any more.
  bool write(const std::string& text) {
    return std::fwrite(text.data(), 1, text.size(), pipe_) == text.size() && std::fflush(pipe_) == 0;
  }
  int pid() const { return pid_; }
  // Its exit code.
  int end() {
    const int status = pclose(pipe_);
    pipe_ = nullptr;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  template <class F>
  static void wait_until(F&& there) {
    for (int tries = 0; !there(); ++tries) {
      if (tries == 60'000) FAIL("the program does nothing");  // so that nobody waits for it
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  FILE* pipe_ = nullptr;
  int pid_ = 0;
  void (*before_)(int);
};

}  // namespace

TEST_CASE("text-search embed writes a row for each line", "[text_search]") {
  const EmbedCommand command;
  const Embedder embedder(small_options());
  const auto expected = [&](const std::vector<std::string>& lines, int64_t max_tokens = 0) {
    std::vector<std::vector<int32_t>> sequences;
    for (const std::string& line : lines) sequences.push_back(embedder.tokenizer().encode(line, max_tokens));
    return embedder.embed(sequences);
  };
  const auto check_rows = [&](const TensorFile& file, const Tensor& rows) {
    REQUIRE(file.tensors.size() == 1);
    const Tensor& got = file.at("embeddings");
    CHECK(got.dtype() == DType::float32);
    CHECK(got.shape() == rows.shape());
    CHECK(difference(got, rows) <= tolerance::float32);
  };
  const std::string first = "the cluster of attention";
  TensorFile file = command.embed(concat(first, "\n\nquery and key"));  // the last line has no end
  check_rows(file, expected({first, "", "query and key"}));
  CHECK(file.metadata == std::map<std::string, std::string>{{"attention", "full"},
                                                            {"fingerprint", embedder.fingerprint()},
                                                            {"max_tokens", "512"},
                                                            {"model", small_model},
                                                            {"seed", "1"}});
  check_rows(command.embed(concat(first, "\n")), expected({first}));
  check_rows(command.embed("\n"), expected({""}));
  check_rows(command.embed(""), Tensor({0, 24}));
  check_rows(command.embed("x"), expected({"x"}));
  const std::string nul("a\0b\xff\n", 5);
  check_rows(command.embed(nul), expected({nul.substr(0, 4)}));
  // A line longer than the model has positions, and one that --max-tokens cuts.
  std::string many;
  for (int i = 0; i < 2000; ++i) many += i % 3 ? "the " : "key ";
  check_rows(command.embed(many), expected({many}, 512));
  file = command.embed(concat(many, "\n", first, "\nx\n"), "--max-tokens 4");
  check_rows(file, expected({many, first, "x"}, 4));
  CHECK(file.metadata.at("max_tokens") == "4");
  // More lines than are sorted together, in batches.
  std::vector<std::string> lines;
  std::string text;
  for (size_t i = 0; i < 150; ++i) {
    lines.push_back(many.substr(i % 3, i * 29 % 200));
    text += lines.back() + "\n";
  }
  check_rows(command.embed(text, "--batch 4"), expected(lines));
  file = command.embed(text, "--batch 150 --attention clustered-2 --seed 9");
  CHECK(file.metadata.at("attention") == "clustered-2");
  CHECK(file.metadata.at("seed") == "9");
  CHECK(difference(file.at("embeddings"), expected(lines)) > 1e-4);
}

TEST_CASE("text-search embed reads standard input and tells what it did", "[text_search]") {
  const EmbedCommand command;
  put_file(command.folder / "text", "the key\nof it");
  const auto json = command.run(concat("--text-file text --out out --json --model ", small_model));
  REQUIRE(json.exit_code == 0);
  const auto told = nlohmann::json::parse(last_line(json.out));
  CHECK(told["out"] == "out");
  CHECK(told["texts"] == 2);
  CHECK(told["tokens"] == 8);
  CHECK(told["seconds"] > 0);
  const auto plain = command.run(concat("--text-file text --out out --model ", small_model));
  CHECK_THAT(plain.out, ContainsSubstring("out: 2 texts, 8 tokens in "));
  Piped piped(command.folder.path(), concat("embed --quiet --text-file - --out piped --model ", small_model));
  CHECK(piped.write("the key\nof it"));
  CHECK(piped.end() == 0);
  CHECK(bytes_of_file(command.folder / "piped") == bytes_of_file(command.folder / "out"));
  // Nothing comes.
  CHECK(command.run(concat("--text-file - --out none --model ", small_model)).exit_code == 0);
  CHECK(read_safetensors(command.folder / "none").at("embeddings").shape() == Shape{0, 24});
}

TEST_CASE("text-search embed says in one line what is wrong, and leaves what was there", "[text_search]") {
  const EmbedCommand command;
  put_file(command.folder / "text", "the key\n");
  put_file(command.folder / "out", "mine");
  const std::string with_model = concat(" --model ", small_model), text = " --text-file text", out = " --out out";
  check_one_line(command.run(text + out), 2, "expected --model");
  check_one_line(command.run(with_model + out), 2, "expected --text-file");
  check_one_line(command.run(with_model + text), 2, "expected --out");
  check_one_line(command.run(text + out + " --model none"), 3, "none/vocab.txt");
  check_one_line(command.run(text + with_model + " --out ."), 2, "--out .: is a folder");
  check_one_line(command.run(text + with_model + " --out text"), 2, "--out text: is the file that is read");
  check_one_line(command.run(text + with_model + " --out no/out"), 2, "there is no folder");
  check_one_line(command.run(text + with_model + " --out /dev/null"), 2, "is no regular file");
  check_one_line(command.run(with_model + out + " --text-file missing"), 3, "missing: cannot be opened");
  check_one_line(command.run(with_model + out + " --text-file ."), 3, "cannot be read");
  check_one_line(command.run(with_model + text + out + " --attention full,full"), 2, "--attention");
  check_one_line(command.run(with_model + text + out + " --max-tokens 513"), 2, "--max-tokens");
  check_one_line(command.run(with_model + text + out + " --max-tokens 2"), 2, "max-tokens");
  check_one_line(command.run(with_model + text + out + " --batch 0"), 2, "batch");
  check_one_line(command.run(with_model + text + out + " extra"), 2, "extra");
  CHECK(bytes_of_file(command.folder / "out") == "mine");
  CHECK(bytes_of_file(command.folder / "text") == "the key\n");
  CHECK_FALSE(has_name_with(command.folder.path(), ".new"));
}

TEST_CASE("text-search embed that is interrupted leaves what was there", "[text_search]") {
  const EmbedCommand command;
  put_file(command.folder / "out", "mine");
  Piped piped(command.folder.path(), concat("embed --batch 1 --text-file - --out out --model ", small_model));
  CHECK(piped.write("the key\n"));
  Piped::wait_until([&] { return has_name_with(command.folder.path(), ".new"); });
  kill(piped.pid(), SIGINT);
  for (int i = 0; i < 100000 && piped.write("the key\n"); ++i) {
  }
  CHECK(piped.end() == 130);
  CHECK(bytes_of_file(command.folder / "out") == "mine");
  CHECK_FALSE(has_name_with(command.folder.path(), ".new"));
  CHECK_THAT(bytes_of_file(command.folder / "errors"), !ContainsSubstring("error"));
}

#if !CAIRN_SANITIZED  // the address sanitizer keeps what was freed for a while
TEST_CASE("memory of text-search embed does not grow with the number of texts", "[text_search]") {
  const EmbedCommand command;
  Piped piped(command.folder.path(),
              concat("embed --quiet --max-tokens 32 --text-file - --out out --model ", small_model));
  std::string lines;
  for (int i = 0; i < 1000; ++i)
    lines += concat("the cluster of query and key ", std::string(size_t(i % 90), 'a' + char(i % 26)),
                    std::string(150, ' '), "with attention as it is on the key\n");
  const auto peak = [&] {  // kilobytes
    std::istringstream status(bytes_of_file(concat("/proc/", piped.pid(), "/status")));
    for (std::string word; status >> word;)
      if (word == "VmHWM:") return status >> word, std::stol(word);
    return 0L;
  };
  // A pipe holds little, so what was written has been read.
  for (int i = 0; i < 3; ++i) REQUIRE(piped.write(lines));
  const long few = peak();
  for (int i = 0; i < 37; ++i) REQUIRE(piped.write(lines));
  const long many = peak();
  CHECK(piped.end() == 0);
  CHECK(read_safetensors(command.folder / "out").at("embeddings").size(0) == 40000);
  REQUIRE(few > 0);
  // Of 37,000 texts the tokens alone are 3.5 MB, as are the embeddings; the texts are 9 MB.
  CHECK(many - few < 2500);
}
#endif

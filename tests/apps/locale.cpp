// The library reads and writes the same text in every locale of its user, C++'s and C's.
#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <map>
#include <nlohmann/json.hpp>

#include "core/tensor.h"
#include "nn/attention/attention.h"
#include "nn/io/checkpoint.h"
#include "nn/io/json.h"
#include "nn/layers.h"
#include "nn/optim/adam.h"
#include "tests/io/io_test.h"

using namespace cairn;  // NOLINT: tests only

namespace {

// Writes 1234.5 as 1'2'3'4~5.
struct Grouping : std::numpunct<char> {
  char do_decimal_point() const override { return '~'; }
  char do_thousands_sep() const override { return '\''; }
  std::string do_grouping() const override { return "\1"; }
  std::string do_truename() const override { return "ja"; }
};

template <class F>
std::string refused(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// Writes numbers to every kind of file in `folder` and reads them back.
std::map<std::string, std::string> everything(const std::filesystem::path& folder) {
  std::map<std::string, std::string> all;
  all["message"] = concat(-1234567, ' ', 1234.5, ' ', 0.25F, ' ', uint64_t(1) << 63, ' ', true, ' ', Shape{2000, 3000});
  all["variants"] = describe_attention_variants();
  all["point"] = make_attention("i-clustered-1000:scale=0.5,topk=2000")->spec();
  all["comma"] = refused([] { make_attention("full:scale=0~5"); });
  all["range"] = refused([] { make_attention("i-clustered-15:bits=12345"); });
  all["json"] = parse_json("[0.5, 1234.5e3, 123456]", "here").dump();
  all["large"] = parse_json("[1.5,\n 12345678901234567890123]", "here").dump();
  all["huge"] = refused([] { parse_json(concat(std::string(2000, ' '), "1.5e999"), "here"); });

  Generator generator(1);
  Linear linear(1500, 2, generator);
  RAdam optimizer(parameters(linear), 0.125);
  save_checkpoint(folder / "run", linear, optimizer, {{"step", 12345}, {"loss", 1234.5}});
  for (const char* file : {"weights.safetensors", "optimizer.safetensors", "checkpoint.json", "checksums"})
    all[file] = bytes_of_file(folder / "run/checkpoint" / file);
  const auto found = find_checkpoint(folder / "run");
  restore(*found, linear, &optimizer);
  all["about"] = found->about->dump();
  put_file(folder / "cut", all["weights.safetensors"].substr(0, 9000));
  all["cut"] = refused([&] { read_safetensors(folder / "cut"); }).substr(folder.string().size());
  return all;
}

}  // namespace

TEST_CASE("no file and no message depends on the user's locale", "[locale]") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "a");
  std::filesystem::create_directory(folder / "b");
  const auto expected = everything(folder / "a");
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouping));
  const bool has_german = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
  auto found = everything(folder / "b");
  std::locale::global(before);
  std::setlocale(LC_ALL, "C");
  for (const auto& [what, text] : expected) {
    INFO(what);
    CHECK(found[what] == text);
  }
  // Continuous integration sets this variable.
  if (std::getenv("CAIRN_NEEDS_LOCALES")) REQUIRE(has_german);
  if (!has_german) WARN("the locale de_DE.UTF-8 is not installed here: .ci/packages --all does that");
}

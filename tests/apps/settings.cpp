#include "apps/common/settings.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/command.h"
#include "apps/copy_task/settings.h"
#include "core/error.h"
#include "nn/parallel/communicator.h"
#include "tests/catch.h"
#include "tests/io/io_test.h"

using namespace cairn;  // NOLINT: tests only
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::ordered_json;

namespace {

// A command with one setting of each kind.
struct Example : Command {
  int64_t layers = 4, threads = 0;
  double rate = 0.5;
  enum class Kind { post, pre } kind = Kind::post;
  std::string name = "full", folder;
  bool quick = false, ran = false;

  Example() : Command("", "", "") {}
  void fields(SettingFields& f) override {
    f("layers", layers, {1, 8}, "");
    f("threads", threads, {1, 64}, "", Keep::may_change);
    f("rate", rate, {0, 1}, "");
    f("kind", kind, {{"post", Kind::post}, {"pre", Kind::pre}}, "");
    f("the-name", name, Text::variant, "");
    f("out", folder, Text::folder, "", Keep::no);
    f("quick", quick, "");
    f.quick({{"layers", 2}, {"rate", 0.25}});
    f.withdrawn({{"ordered", false}, {"patience", 10}});
  }
  void run(Communicator&) override { ran = true; }
  using Command::config;
  using Command::continue_run;
  using Command::given;

  // As on the command line of a program.
  Example& parse(std::vector<std::string> words) {
    CLI::App app;
    app.option_defaults()->take_last();
    static Communicator alone;
    define(app, alone);
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    app.parse(words);
    return *this;
  }
};

std::string config_file(const std::string& text) {
  static const TemporaryFolder folder;  // until all tests have ended
  put_file(folder / "config.json", text);
  return (folder / "config.json").string();
}

template <class E = UsageError, class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("settings: default, --quick, file, --set and option, each stronger than the one before", "[settings]") {
  const std::string file = config_file(R"({"rate": 0.75, "the_name": "linear", "layers": 3})");
  Example none, quick, of_file, sets, options;
  none.parse({});
  CHECK(none.ran);
  CHECK(none.config() == Json::parse(R"({"layers":4,"rate":0.5,"kind":"post","the_name":"full","quick":false})"));
  quick.parse({"--quick", "--kind", "pre"});
  CHECK((quick.layers == 2 && quick.rate == 0.25 && quick.kind == Example::Kind::pre));
  CHECK((quick.given("kind") && !quick.given("layers")));
  of_file.parse({"--quick", "--config", file});
  CHECK((of_file.layers == 3 && of_file.rate == 0.75 && of_file.name == "linear"));
  sets.parse({"--config", file, "--set", "rate=0.125", "--set", "the-name=lsh-2", "--set", "quick=true"});
  CHECK((sets.layers == 3 && sets.rate == 0.125 && sets.name == "lsh-2" && sets.quick));
  options.parse({"--rate", "1", "--config", file, "--set", "rate=0.125", "--layers", "5", "--layers", "6"});
  CHECK((options.layers == 6 && options.rate == 1));
}

TEST_CASE("a value on the command line is a decimal number, true, false or a text", "[settings]") {
  Example p;
  p.parse({"--rate=.5", "--quick=false", "--layers", "08", "--threads=2"});
  CHECK((p.rate == 0.5 && !p.quick && p.layers == 8 && p.threads == 2));
  for (const char* word : {"--layers=2.5", "--layers=1e0", "--layers=0x2", "--layers= 2", "--rate=nan", "--rate=0x1p-3",
                           "--rate=1e999", "--quick=yes", "--kind=middle", "--the-name=ful"})
    CHECK(error_of([&] { Example().parse({word}); }).find("--") == 0);
}

TEST_CASE("a configuration that was written is read back to the same settings", "[settings]") {
  Example first, second;
  first.parse({"--quick", "--threads", "3", "--rate", "0.1", "--the-name", "clustered-3:bits=9", "--out", "x"});
  second.parse({"--config", config_file(first.config().dump())});
  CHECK(second.config() == first.config());
  CHECK((second.rate == 0.1 && second.threads == 3 && second.layers == 2 && second.folder.empty()));
}

TEST_CASE("a run goes on with its own settings, but for those that may change", "[settings]") {
  const Json of_run = {{"layers", 3}, {"rate", 0.5}, {"threads", 2}};
  Example same;
  same.parse({"--layers", "3", "--threads", "5", "--kind", "post"});  // the run is older than --kind
  same.continue_run(of_run, "run/config.json");
  CHECK((same.layers == 3 && same.threads == 5));
  Example quick;  // what the run says counts before what --quick sets
  quick.parse({});
  quick.continue_run({{"layers", 3}, {"quick", true}}, "run/config.json");
  CHECK((quick.layers == 3 && quick.rate == 0.25));
  Example other;
  other.parse({"--layers", "4", "--kind", "pre"});
  CHECK_THAT(
      error_of([&] { other.continue_run(of_run, "run/config.json"); }),
      ContainsSubstring("run/config.json: a run is resumed with its own settings, but these differ: "
                        "layers (3 in the run, 4 now), kind (\"post\" in the run, \"pre\" now); leave them out"));
  for (const char* text : {R"({"layers": 9})", R"({"laiers": 3})", R"({"ordered": true})", "[]"})
    CHECK_THAT(error_of<DataError>([&] { same.continue_run(Json::parse(text), "run/config.json"); }),
               ContainsSubstring("run/config.json: ") && ContainsSubstring("made by another version of Cairn?"));
}

TEST_CASE("a withdrawn setting is accepted in files with its old default alone, and is no option",
          "[settings][fault]") {
  Example p;
  p.parse({"--config", config_file(R"({"ordered": false, "patience": 10, "layers": 2})")});
  CHECK((p.layers == 2 && !p.config().contains("ordered")));
  CHECK_THAT(error_of([] {
               Example().parse({"--config", config_file(R"({"patience": 11})")});
             }),
             ContainsSubstring("key 'patience': this setting no longer exists; only 10, its old default, is accepted"));
  CHECK_THROWS_AS(Example().parse({"--ordered", "false"}), CLI::ParseError);
  CHECK_THAT(error_of([] { Example().parse({"--set", "ordered=false"}); }), ContainsSubstring("unknown key 'ordered'"));
}

TEST_CASE("what is not in a configuration cannot be set by one", "[settings][fault]") {
  CHECK_THAT(error_of([] { Example().parse({"--set", "out=x"}); }), ContainsSubstring("unknown key 'out'"));
  CHECK_THAT(error_of([] {
               Example().parse({"--config", config_file(R"({"quiet": true})")});
             }),
             ContainsSubstring("unknown key 'quiet'"));
}

TEST_CASE("lists of attention specifications: a comma before option=value stays inside", "[settings]") {
  using Specs = std::vector<std::string>;
  CHECK(split_specs("").empty());
  CHECK(split_specs("full,lsh-4") == Specs{"full", "lsh-4"});
  CHECK(split_specs("full,i-clustered-15:topk=16,bits=32,lsh-1") ==
        Specs{"full", "i-clustered-15:topk=16,bits=32", "lsh-1"});
  CHECK(split_specs("full,") == Specs{"full", ""});  // which is no variant
}

TEST_CASE("lists of rising whole numbers", "[settings]") {
  CHECK(rising_integers("512,1024", 2000) == std::vector<int64_t>{512, 1024});
  for (const char* list : {"", ",", "5,", "5,5", "5,4", "0", "2001", "x", "5 ,6", "99999999999999999999"})
    CHECK_THROWS_AS(rising_integers(list, 2000), UsageError);
}

TEST_CASE("quick settings leave their top keys to a variant that says none, and say so in the configuration",
          "[settings]") {
  copy_task::Settings settings;
  SettingFields fields;
  settings.fields(fields);
  fields.assign({{"quick", true}, {"attention", "i-clustered-5"}});
  CHECK(settings.model.attention == "i-clustered-5");
  CHECK(settings.transformer().attention_defaults.at("topk") == "16");
  CHECK(fields.config().at("topk") == 16);
}

#include "apps/common/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/common/program.h"
#include "apps/copy_task/settings.h"
#include "core/error.h"
#include "tests/catch.h"
#include "tests/io/io_test.h"

using namespace cairn;  // NOLINT: tests only
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::ordered_json;

namespace {

// A program with one setting of each kind, and what was read of a command line.
struct Program {
  CLI::App app;
  Options options{&app};
  int64_t layers = 4, threads = 0;
  double rate = 0.5;
  std::string kind = "post", name = "full";
  bool quick = false;

  Program() {
    app.option_defaults()->take_last();
    options.integer("layers", layers, 1, 8, "");
    options.integer("threads", threads, 1, 64, "", Belongs::free);
    options.real("rate", rate, 0, 1, "");
    options.choice("kind", kind, {"post", "pre"}, "");
    options.text("the-name", name, "");
    options.flag("quick", quick, "");
    options.presets("quick", {{"layers", "2"}, {"rate", "0.25"}});
    options.withdrawn({{"ordered", false}, {"patience", 10}});
    options.add_configuration_options();
  }
  void parse(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(arguments);
    options.read();
  }
  void run(const std::vector<std::string>& arguments) {
    parse(arguments);
    options.assign();
  }
};

std::string config_file(const std::string& text) {
  static const TemporaryFolder folder;  // until all tests have ended
  put_file(folder / "config.json", text);
  return (folder / "config.json").string();
}

template <class F>
std::string usage_error(F&& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("every kind of error has its exit code", "[options]") {
  CHECK(exit_code_of(Error("x")) == 1);
  CHECK(exit_code_of(UsageError("x")) == 2);
  CHECK(exit_code_of(DataError("x")) == 3);
  CHECK(exit_code_of(DeviceError("x")) == 4);
  CHECK(exit_code_of(DivergedError("x")) == 5);
  CHECK(std::string(DataError("what was wrong").what()) == "what was wrong");
}

TEST_CASE("settings: default, preset, file, --set and option, each stronger than the one before") {
  const std::string file = config_file(R"({"rate": 0.75, "the_name": "linear", "layers": 3})");
  {
    Program p;
    p.run({});
    CHECK((p.layers == 4 && p.rate == 0.5 && p.kind == "post" && p.name == "full" && !p.quick));
    CHECK(p.options.configuration() ==
          Json::parse(R"({"layers":4,"rate":0.5,"kind":"post","the_name":"full","quick":false})"));
  }
  {
    Program p;
    p.run({"--quick"});
    CHECK((p.layers == 2 && p.rate == 0.25));
  }
  {
    Program p;
    p.run({"--quick", "--config", file});
    CHECK((p.layers == 3 && p.rate == 0.75 && p.name == "linear"));
  }
  {
    Program p;
    p.run({"--config", file, "--set", "rate=0.125", "--set", "the-name=a=b", "--set", "quick=true"});
    CHECK((p.layers == 3 && p.rate == 0.125 && p.name == "a=b" && p.quick));
  }
  {
    Program p;
    p.run({"--rate", "1", "--config", file, "--set", "rate=0.125", "--layers", "5", "--layers", "6"});
    CHECK((p.layers == 6 && p.rate == 1));
  }
}

TEST_CASE("a configuration that was written is read back to the same settings") {
  Program first, second;
  first.run({"--quick", "--threads", "3", "--rate", "0.1", "--the-name", "\xc3\xa9 \"x\""});
  const std::string file = config_file(first.options.configuration().dump());
  second.run({"--config", file});
  CHECK(second.options.configuration() == first.options.configuration());
  CHECK((second.rate == first.rate && second.threads == 3 && second.layers == 2 && second.name == first.name));
}

TEST_CASE("a configuration's errors say what, where, got and expected", "[fault]") {
  struct Case {
    const char *text, *message;
  };
  const Case cases[] = {
      {R"({"layer": 3})", "unknown key 'layer' (did you mean 'layers'?)"},
      {R"({"wxyz": 3})", "unknown key 'wxyz'; there is layers, threads, rate, kind, the_name, quick"},
      {R"({"the-name": "full"})", "did you mean 'the_name'?"},
      {R"({"layers": "3"})", "key 'layers': expected a whole number from 1 to 8, got \"3\""},
      {R"({"layers": 3.0})", "got 3.0"},
      {R"({"layers": 0})", "got 0"},
      {R"({"layers": 9})", "got 9"},
      {R"({"layers": -9223372036854775808})", "from 1 to 8"},
      {R"({"layers": 18446744073709551615})", "from 1 to 8"},
      {R"({"layers": null})", "got null"},
      {R"({"layers": [3]})", "got [3]"},
      {R"({"rate": true})", "key 'rate': expected a finite number from 0 to 1, got true"},
      {R"({"rate": 1.5})", "got 1.5"},
      {R"({"rate": NaN})", "line 1"},
      {R"({"rate": 1e999})", "line 1"},
      {R"({"kind": "middle"})", "expected one of post, pre, got \"middle\""},
      {R"({"kind": 3})", "expected one of post, pre, got 3"},
      {R"({"the_name": {}})", "expected text, got {}"},
      {R"({"quick": "yes"})", "expected true or false, got \"yes\""},
      {R"({"layers": 3, "layers": 4})", "layers"},
      {R"([1, 2])", "expected a JSON object of settings, got array"},
      {"3", "expected a JSON object of settings, got number"},
      {"", "--config"},
      {"{", "line 1"},
      {"{} x", "line 1"},
      {"{\"layers\": 3}\xff", "--config"},
      {"{\"\xff\": 3}", "--config"},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    const std::string file = config_file(c.text);
    Program p;
    const std::string message = usage_error([&] { p.parse({"--config", file}); });
    CHECK_THAT(message, ContainsSubstring(c.message));
    CHECK_THAT(message, ContainsSubstring(file));
    CHECK(message.find('\n') == std::string::npos);
  }
  Program folder, missing;
  CHECK_THAT(usage_error([&] { folder.parse({"--config", "/"}); }), ContainsSubstring("/"));
  CHECK_THAT(usage_error([&] { missing.parse({"--config", "/no/such.json"}); }), ContainsSubstring("/no/such.json"));
  const std::string deep = config_file(std::string(1000000, '['));
  Program p;
  CHECK_THAT(usage_error([&] { p.parse({"--config", deep}); }), ContainsSubstring("64"));
}

TEST_CASE("settings on the command line: what is refused", "[fault]") {
  struct Case {
    std::vector<std::string> arguments;
    const char* message;
  };
  const Case cases[] = {
      {{"--set", "layers"}, "--set: expected key=value, got 'layers'"},
      {{"--set", "=3"}, "--set: expected key=value, got '=3'"},
      {{"--set", "layer=3"}, "--set: unknown key 'layer' (did you mean 'layers'?)"},
      {{"--set", "layers=3x"}, "--set layers: expected a whole number from 1 to 8, got '3x'"},
      {{"--set", "layers="}, "got ''"},
      {{"--set", "quick=yes"}, "--set quick: expected true or false, got 'yes'"},
      {{"--layers", "0x3"}, "--layers: expected a whole number from 1 to 8, got '0x3'"},
      {{"--rate", "nan"}, "--rate: expected a finite number from 0 to 1, got 'nan'"},
      {{"--rate", "1e999"}, "got '1e999'"},
      {{"--the-name", "x", "--kind", "\x01\xff"}, "--kind: expected one of post, pre"},
  };
  for (const Case& c : cases) {
    Program p;
    CHECK_THAT(usage_error([&] { p.parse(c.arguments); }), ContainsSubstring(c.message));
  }
}

TEST_CASE("a run continues with its own settings, but for those that may change") {
  const Json run = {{"layers", 3}, {"rate", 0.5}, {"kind", "pre"}, {"the_name", "full"}, {"quick", false}};
  {
    Program p;
    p.parse({"--threads", "7"});
    p.options.continue_run(run, "run/config.json");
    p.options.assign();
    CHECK((p.layers == 3 && p.kind == "pre" && p.threads == 7));
  }
  {
    Program p;
    p.parse({"--layers", "3", "--rate", "5e-1"});  // the same, said again
    CHECK(usage_error([&] { p.options.continue_run(run, "run/config.json"); }) == "no error");
  }
  Program p;
  p.parse({"--layers", "4", "--rate", "0.25", "--kind", "pre"});
  const std::string message = usage_error([&] { p.options.continue_run(run, "run/config.json"); });
  CHECK_THAT(message, ContainsSubstring("layers (3 in the run, 4 now)") &&
                          ContainsSubstring("rate (0.5 in the run, 0.25 now)") && !ContainsSubstring("kind ("));
}

TEST_CASE("lists of attention specifications: a comma before option=value stays inside") {
  CHECK(split_specs("").empty());
  CHECK(split_specs("full") == std::vector<std::string>{"full"});
  CHECK(split_specs("full, i-clustered-15:topk=16,bits=32,oracle-top-4") ==
        std::vector<std::string>{"full", "i-clustered-15:topk=16,bits=32", "oracle-top-4"});
  for (const char* list : {",", "full,", ",full", "full,,full", " "})
    CHECK_THAT(usage_error([&] { split_specs(list); }),
               ContainsSubstring("expected attention variants with a comma between"));
}

TEST_CASE("lists of rising whole numbers") {
  CHECK(rising_integers("512", 512) == std::vector<int64_t>{512});
  CHECK(rising_integers("1,20,300", 300) == std::vector<int64_t>{1, 20, 300});
  for (const char* list : {"", ",", "1,", "0", "-3", "1 ,2", "x", "1.5", "301", "99999999999999999999"})
    CHECK_THAT(usage_error([&] { rising_integers(list, 300); }),
               ContainsSubstring("expected whole numbers from 1 to 300"));
  for (const char* list : {"2,1", "2,2"})
    CHECK_THAT(usage_error([&] { rising_integers(list, 300); }), ContainsSubstring("larger than the one before"));
}

TEST_CASE("a withdrawn setting is accepted in files with its old default alone, and is no option", "[fault]") {
  const std::string old = config_file(R"({"ordered": false, "layers": 3, "patience": 10})");
  {
    Program p;
    p.run({"--config", old});
    CHECK(p.layers == 3);
    CHECK_FALSE(p.options.configuration().contains("ordered"));
  }
  {
    Program p;
    p.parse({});
    p.options.continue_run({{"layers", 3}, {"ordered", false}}, "run/config.json");
    p.options.assign();
    CHECK(p.layers == 3);
  }
  {
    Program p;
    const std::string file = config_file(R"({"layers": 3, "ordered": true})");
    CHECK(usage_error([&] {
            p.parse({"--config", file});
          }) ==
          file + ": key 'ordered': this setting no longer exists; only false, its old default, is accepted, got true");
  }
  {
    Program p;
    p.parse({});
    CHECK_THROWS_AS(p.options.continue_run({{"patience", "10"}}, "run/config.json"), DataError);
  }
  Program set, option;
  CHECK_THAT(usage_error([&] {
               set.parse({"--set", "ordered=false"});
             }),
             ContainsSubstring("--set: unknown key 'ordered'"));
  CHECK_THROWS_AS(option.parse({"--ordered"}), CLI::ExtrasError);
}

TEST_CASE("a flag's help lists what it presets") {
  Program p;
  CHECK_THAT(p.app.help(), ContainsSubstring("--layers 2, --rate 0.25"));
}

TEST_CASE("what is wrong in a run's own file is bad data, not bad usage", "[fault]") {
  Program p;
  p.parse({});
  CHECK_THROWS_AS(p.options.continue_run({{"layer", 3}}, "run/config.json"), DataError);
  CHECK_THROWS_WITH(
      of_a_run([&] {
        p.options.load({{"layers", 9}}, "run/config.json");
      }),
      ContainsSubstring("expected a whole number from 1 to 8") && ContainsSubstring("another version of Cairn?"));
}

TEST_CASE("quick settings leave their top keys to a variant that says none, and says so in the configuration") {
  copy_task::Settings settings;
  Options options;
  settings.define(options);
  options.load({{"quick", true}, {"attention", "i-clustered-5"}}, "x");
  options.assign();
  settings.finish();
  CHECK(options.configuration().at("topk") == 16);
  CHECK(settings.train.model.attention_defaults.at("topk") == "16");
}

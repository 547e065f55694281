// The program attention-bench: what its result holds, and what it refuses. Times are nobody's to assert.
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "apps/attention_bench/figure.h"
#include "tests/apps/process.h"
#include "tests/io/io_test.h"

using namespace cairn;  // NOLINT: tests only
using attention_bench::What;

TEST_CASE("attention-bench run tells what it promises", "[attention-bench]") {
  for (const auto& [what, pass] : {std::pair{"attention", "both"}, {"layer", "forward"}, {"cluster", "both"}}) {
    const auto run =
        run_process("attention-bench",
                    concat("run --json --quiet --attention clustered-5 --length 30 --batch 2 --heads 2 --head-size 8 "
                           "--feed-forward 16 --repeat 1 --what ",
                           what, " --pass ", pass));
    INFO(what << ' ' << pass << ' ' << run.err);
    REQUIRE(run.exit_code == 0);
    const auto json = nlohmann::json::parse(last_line(run.out));
    CHECK(json.at("median_seconds").get<double>() > 0);
    CHECK(json.at("peak_bytes").get<int64_t>() > 0);
    for (const char* key : {"spread", "flops", "bytes", "floor_seconds", "gflops", "gigabytes_per_second"})
      CHECK(json.at(key).is_number());
    CHECK(json.at("stages").count("hamming_kmeans") == 1);
    CHECK(json.at("stages").count("backward: attention") == (what == std::string("attention")));
    CHECK(json.at("batch") == 2);
  }
}

TEST_CASE("attention-bench figure goes on where it was stopped", "[attention-bench]") {
  const TemporaryFolder folder;
  const std::string arguments =
      "figure --json --quiet --longest 60000 --lengths 16,8192 --tokens 64 --heads 2 --head-size 8 --repeat 5 "
      "--attention full,clustered-4 --out " +
      folder.path().string();
  // Stopped as soon as something is kept; then what is kept gets a time that nobody measured.
  const auto stopped = run_process(
      "attention-bench", arguments + " >/dev/null & pid=$!; until [ -s '" + folder.path().string() +
                             "/metrics.jsonl' ] || ! kill -0 $pid; do sleep 0.02; done; kill $pid; wait $pid");
  INFO(stopped.err);
  REQUIRE(stopped.exit_code == 130);
  CHECK(std::filesystem::exists(folder / "report.html"));
  auto mine = nlohmann::ordered_json::parse(bytes_of_file(folder / "metrics.jsonl")), of_another = mine;
  REQUIRE(mine.at("length") == 16);
  mine["points"][0]["seconds"] = std::vector<double>(3, 1.0);
  of_another["of"]["processor"] = "another";
  of_another["length"] = 8192;
  put_file(folder / "metrics.jsonl", mine.dump() + '\n' + of_another.dump() + "\n{\"cut off");

  const auto run = run_process("attention-bench", arguments);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const auto figure = nlohmann::json::parse(last_line(run.out));
  // 8192 takes full attention 262144 times as long as what was kept, however fast this run is.
  REQUIRE(figure.at("points").size() == 3);
  CHECK(figure.at("points")[0].at("median_seconds") == 1);
  CHECK(figure.at("points")[2].at("attention") == "clustered-4");
  CHECK(figure.at("points")[2].at("length") == 8192);
  CHECK(figure.at("crossovers").at("clustered-4") == 16);
  CHECK(bytes_of_file(folder / "report.html").find("faster than full from length 16 on") != std::string::npos);
  CHECK(markup_error(bytes_of_file(folder / "figure.svg")).empty());
  const auto again = run_process("attention-bench", arguments);  // nothing is left to measure
  CHECK(nlohmann::json::parse(last_line(again.out)).at("points") == figure.at("points"));
  const auto other = run_process("attention-bench", arguments + " --lengths 16,32");
  CHECK(other.exit_code == 2);
  CHECK_THAT(other.err, Catch::Matchers::ContainsSubstring("these differ: lengths"));
}

TEST_CASE("where one variant becomes faster than another", "[attention-bench]") {
  using attention_bench::crossover;
  using attention_bench::Curve;
  const Curve slow{{512, 512e-9}, {1024, 1024e-9}, {4096, 4096e-9}};  // a time that grows with the length
  const auto flat = [](double seconds) { return Curve{{512, seconds}, {1024, seconds}, {4096, seconds}}; };
  CHECK(crossover(slow, flat(2000e-9)).length == Approx(2000));
  CHECK(crossover(slow, flat(2000e-9)).seconds == Approx(2000e-9));
  CHECK(crossover(slow, flat(1024e-9)).length == Approx(1024));  // as fast there, and faster behind it
  CHECK(crossover(slow, flat(100e-9)).length == 512);            // from the first length on
  CHECK(crossover(slow, flat(100e-9)).seconds == 512e-9);
  CHECK(std::isnan(crossover(slow, flat(5000e-9)).length));
  CHECK(crossover(slow, {{256, 1e-9}, {1024, 2048e-9}, {2048, 1e-9}, {4096, 2048e-9}}).length == Approx(2048));
  CHECK(std::isnan(crossover(slow, {}).length));
  CHECK(std::isnan(crossover({}, slow).length));
}

TEST_CASE("the costs of attention are those of its formulas", "[attention-bench]") {
  attention_bench::Problem p;  // 6 heads of 64
  p.what = What::attention, p.length = 4096, p.backward = false;
  p.attention = "full";
  CHECK(cost_of(p, 4).flops == 1536.0 * 4096 * 4096);
  p.backward = true;
  CHECK(cost_of(p, 4).flops == 5376.0 * 4096 * 4096);
  p.attention = "i-clustered-100";
  CHECK(cost_of(p, 4).flops == (6 * 2 * 63 * 64 + 5376.0 * 132) * 4096);

  // Forward, of one query of one head of 64, at 4096.
  p.backward = false;
  const std::pair<const char*, double> cases[] = {{"shared-full", 4 * 64 * 4096},
                                                  {"clustered-100:bits=32", 2 * 32 * 64 + 4 * 64 * 100},
                                                  {"oracle-top-32", 2 * 64 * 4096 + 4 * 64 * 32},
                                                  {"position-100", 4 * 64 * 100},
                                                  {"i-position-100:topk=8", 4 * 64 * 108},
                                                  {"euclidean-100", 2 * 64 * 100 * 11 + 4 * 64 * 100},
                                                  {"i-euclidean-100:iterations=3", 2 * 64 * 100 * 4 + 4 * 64 * 132},
                                                  {"lsh-2", 2 * (64 * 128 + 4 * 64 * 64)},
                                                  {"lsh-1:chunk=16,buckets=8", 64 * 8 + 4 * 64 * 32},
                                                  {"local-8", 4 * 64 * 17},
                                                  {"local-9000", 4 * 64 * 4096},
                                                  {"longformer-8:global=4", 4 * 64 * 25},
                                                  {"strided-8", 4 * 64 * (17 + 512)},
                                                  {"inducing-16", 3 * 4 * 64 * 16},
                                                  {"linear", 4 * 64 * 64}};
  for (const auto& [spec, flops] : cases) {
    INFO(spec);
    p.attention = spec;
    CHECK(cost_of(p, 4).flops == 6 * 4096 * flops);
  }
}

// attention-bench run: measures one or more variants at one length.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/attention_bench/settings.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/variants.h"

namespace cairn::attention_bench {
namespace {

void add_cost(Json& result, const Problem& p, const Ceilings& ceilings) {
  const Cost cost = cost_of(p);
  result["pass"] = p.backward ? "both" : "forward";
  result["flops"] = cost.flops;
  result["bytes"] = cost.bytes;
  result["floor_seconds"] = std::max(cost.flops / ceilings.flops, cost.bytes / ceilings.bytes);
}

std::string table(const std::vector<Json>& results, bool stages) {
  std::string lines = formatted("%-28s %7s %10s %9s %9s %11s %10s\n", "attention", "batch", "median ms", "spread ms",
                                "us/token", "bytes/token", "floor/time");
  for (const Json& r : results) {
    const double seconds = r.at("median_seconds"), floor = r.at("floor_seconds");
    lines += formatted("%-28s %7lld %10.3f %9.3f %9.3f %11.0f %9.0f%%\n", r.at("attention").get<std::string>().c_str(),
                       (long long)r.at("batch"), seconds * 1e3, r.at("spread").get<double>() * 1e3,
                       r.at("seconds_per_element").get<double>() * 1e6, r.at("bytes_per_element").get<double>(),
                       100 * floor / seconds);
    if (!stages) continue;
    std::vector<std::pair<double, std::string>> parts;
    for (const auto& [name, s] : r.at("stages").items()) parts.emplace_back(s.get<double>(), name);
    std::sort(parts.rbegin(), parts.rend());
    for (const auto& [s, name] : parts)
      lines += formatted("    %-34s %10.3f ms %5.1f%%\n", name.c_str(), s * 1e3, 100 * s / seconds);
  }
  return lines;
}

}  // namespace

void run_command(CommandLine& line) {
  Settings settings;
  std::string attention = "i-clustered-100";
  int64_t length = 4096;
  bool stages = false;
  line("attention", attention, several_variants, "attention variants, comma-separated");
  line("length", length, {1, int64_t(1) << 30}, "tokens per sequence");
  line("stages", stages, "also print the time of each operation");
  settings.fields(line);
  line.footer(
      "The time is the median over repetitions of the whole batch; the spread is half the interquartile range.\n"
      "The floor is the larger of two times: that of the arithmetic alone, and that of the memory traffic\n"
      "alone. Both use this machine's speeds, measured before and after the variants.\n\nExample:\n"
      "  attention-bench run --attention full,clustered-100,i-clustered-100 --length 4096 --what attention --stages");
  line.parse();
  settings.finish();
  const std::vector<std::string> specs = split_specs(attention);
  check<UsageError>(!specs.empty(), "--attention: expected a variant");
  catch_interrupts(line.quiet);
  Ceilings ceilings = measure_ceilings(settings.shared.compute);
  note(formatted("this machine now: %.0f GFLOP/s, %.1f GB/s", ceilings.flops * 1e-9, ceilings.bytes * 1e-9),
       line.quiet);
  std::vector<Problem> problems;
  for (const std::string& spec : specs) problems.push_back(settings.problem(spec, length, line.quiet));
  std::vector<Json> results = measure(problems, settings.repetitions, stages || line.json);
  if (interrupted()) throw Interrupted();
  // Measured again, because the machine may have become faster (other programs ended).
  const Ceilings after = measure_ceilings(settings.shared.compute);
  ceilings = {std::max(ceilings.flops, after.flops), std::max(ceilings.bytes, after.bytes)};
  for (size_t i = 0; i < results.size(); ++i) {
    results[i]["what"] = line.config().at("what");
    add_cost(results[i], problems[i], ceilings);
  }
  Json all = results.size() == 1 ? results[0] : Json{{"results", results}};
  all["gflops"] = ceilings.flops * 1e-9;
  all["gigabytes_per_second"] = ceilings.bytes * 1e-9;
  line.tell(all, table(results, stages));
}

}  // namespace cairn::attention_bench

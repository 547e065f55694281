// attend: any attention variant on anybody's tensors.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "apps/attend/picture.h"
#include "apps/common/format.h"
#include "apps/common/options.h"
#include "nn/io/file.h"

namespace cairn::attend {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Every variant of the list with a number as one might choose it for a few hundred queries.
std::vector<std::string> every_variant() {
  static const std::map<std::string, int> numbers{{"clusters", 25}, {"keys", 32}, {"rounds", 4}, {"points", 32}};
  std::vector<std::string> specs;
  for (const AttentionVariant* variant : attention_variants()) {
    SpecReader reader(variant->name, "100", {}, {});
    variant->make(reader);
    std::string spec = variant->name;
    if (const std::string& what = reader.number_asked(); !what.empty()) {
      const auto found = numbers.find(what);
      spec += "-" + std::to_string(found == numbers.end() ? 16 : found->second);
    }
    specs.push_back(spec);
  }
  return specs;
}

// Where results may be written: a new file, or one in the place of a regular file, behind symbolic links. Errors
// (UsageError): something else is there, or there is no such folder, or it is the file that is read.
fs::path output_path(const char* option, const std::string& name, const std::string& in) {
  std::error_code error;
  const fs::file_status there = fs::status(name, error);
  check<UsageError>(!fs::is_directory(there), option, ' ', name, ": is a folder, expected a file");
  check<UsageError>(!fs::exists(there) || fs::is_regular_file(there), option, ' ', name,
                    ": is no regular file; results replace a file as a whole, so they cannot go there");
  check<UsageError>(in.empty() || !fs::equivalent(name, in, error), option, ' ', name,
                    ": is the file that --in reads; choose another");
  fs::path path = name;
  if (fs::is_symlink(fs::symlink_status(path, error))) path = fs::weakly_canonical(path, error);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  check<UsageError>(fs::is_directory(folder, error), option, ' ', name, ": there is no folder ", folder);
  return path;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

struct Attend {
  explicit Attend(CLI::App& app) : options(&app) {
    set_footer(
        app,
        "The file --in has q [B, N, H, D], k [B, S, H, D] and v [B, S, H, M], float32 or float64, and may have:\n"
        "  query_lengths, key_lengths  int32 or int64 [B]: what is beyond takes no part\n"
        "  mask         bool or uint8 (0 is false), broadcastable to [B, H, N, S]: true where a query may attend\n"
        "  grad_out     [B, N, H, M]: the gradient of the output, ones by default\n"
        "  planes       [bits, D + 1]: hyperplanes for hashing, the last column their offsets\n"
        "  labels       int32 or int64 [B, H, N]: the queries' clusters, -1 for none\n"
        "  points       [H, I, D]: for inducing\n"
        "A variant uses those that mean something to it.\n"
        "The file --out gets out [B, N, H, M]; with --grad grad_q, grad_k, grad_v, grad_points; of clustered variants\n"
        "codes and labels [B, H, N], counts [B, H, C], topk [B, H, C, k], mass [B, H, C]; of lsh buckets\n"
        "[B, H, rounds, N]. float64 is computed in double, on the CPU.\n"
        "\n"
        "Examples:\n"
        "  attend --example qkv.safetensors\n"
        "  attend --in qkv.safetensors --attention i-clustered-25:topk=16 --out result.safetensors --grad\n"
        "  attend --in qkv.safetensors --compare full                   every variant: error against time\n"
        "  attend --in qkv.safetensors --attention full,clustered-25 --picture weights.svg\n"
        "\n"
        "Attention variants:\n" +
            describe_attention_variants() +
            "\nExit codes: 0 done, 1 failure, 2 usage or tensors that do not fit, 3 a bad file, 4 device or out of "
            "memory,\n"
            "130 interrupted.");
    options.text("attention", attention, "the variant; several, comma-separated, or all with --compare or --picture");
    add_path(app, "--in", in, "FILE", "tensors q, k, v and others, see below (safetensors)");
    add_path(app, "--out", out, "FILE", "write the output, and what the variant chose, here (safetensors)");
    add_flag(app, "--grad", run.gradients, "also compute gradients");
    add_flag(app, "--causal", causal, "query i attends to keys up to i");
    options.text("compare", compare,
                 "a variant, such as full, to tell the distance to: of attention rows (mean L1), and of the output");
    add_path(app, "--picture", picture, "FILE", "draw the attention weights of one head here (SVG)");
    options.integer("head", head, 1, 1 << 20, "the head that is drawn, of the first batch element");
    options.integer("repeat", run.repeat, 1, 1000,
                    "runs to take the median time of; by default 1, which is a cold start, with --compare 5");
    add_path(app, "--example", example, "FILE", "write tensors to try it with here, and end");
    options.integer("length", length, 1, 1 << 20, "queries and keys of the example");
    common.define(options);
    output.define(app);
    on_run(app, [this] { execute(); });
  }

  void execute() {
    options.read();
    options.assign();
    if (!example.empty()) return write_example();
    check<UsageError>(!options.given("length"), "--length: is that of the example; it needs --example");
    check<UsageError>(!options.given("head") || !picture.empty(),
                      "--head: is the one that is drawn; it needs --picture");
    check<UsageError>(!in.empty(),
                      "expected --in with a file of tensors (--example FILE writes one); see attend --help");
    std::vector<std::string> specs;
    if (attention == "all" || (attention.empty() && !compare.empty()))
      specs = every_variant();
    else
      about_option("--attention", [&] { specs = split_specs(attention); });
    check<UsageError>(!specs.empty(), "expected --attention with a variant; see attend --help");
    check<UsageError>(specs.size() == 1 || out.empty(), "--out: one file has the results of one variant; got ",
                      specs.size(), " of them");
    check<UsageError>(specs.size() == 1 || !compare.empty() || !picture.empty(),
                      "--attention: several variants need --compare or --picture");
    run.compute = common.apply();
    run.seed = uint64_t(common.seed);
    if (run.repeat < 1) run.repeat = compare.empty() ? 1 : 5;
    about_option("--attention", [&] {
      for (const std::string& spec : specs) make_attention(spec);
    });
    if (!compare.empty()) about_option("--compare", [&] { make_attention(compare); });
    if (!out.empty()) out_path = output_path("--out", out, in);
    if (!picture.empty()) picture_path = output_path("--picture", picture, in);
    check<UsageError>(out.empty() || out_path.lexically_normal() != picture_path.lexically_normal(), "--picture ",
                      picture, ": is the file of --out too");
    inputs = read_inputs(read_safetensors(in));
    inputs.mask.causal = causal;
    if (common.device == "auto" && inputs.q.dtype() == DType::float64) run.compute = {Device::cpu, DType::float32};
    // Also with --quiet, for a misspelled name changes the result.
    for (const std::string& name : inputs.unknown) note(concat(in, ": tensor ", name, " is not read"), false);
    for (const std::string& what : inputs.not_finite) note(concat(in, ": ", what), false);
    if (!picture.empty())
      check<UsageError>(inputs.batches() > 0 && head <= inputs.heads(), "--head ", head, ": there are ",
                        inputs.batches() > 0 ? inputs.heads() : 0);
    catch_interrupts(output.quiet);
    tell(run_all(specs, specs.size() > 1));
  }

  void write_example() {
    check<UsageError>(in.empty() && out.empty() && attention.empty() && compare.empty() && picture.empty() && !causal &&
                          !run.gradients && !options.given("head") && !options.given("repeat"),
                      "--example: writes tensors and nothing else; leave out the other options");
    replace_file(output_path("--example", example, ""),
                 {safetensors_bytes(example_file(length, uint64_t(common.seed)))});
    note(concat(example, ": q, k, v of 1 sequence, ", length, " positions, 4 heads of 32"), output.quiet);
  }

  struct Result {
    std::string spec, problem;  // why it did not run
    Outcome outcome;
    Distance distance{NAN, NAN};
  };

  // With several variants, one that cannot work on these tensors is told and passed over.
  std::vector<Result> run_all(const std::vector<std::string>& specs, bool pass_over) {
    const std::string target = compare.empty() ? "full" : compare;
    std::unique_ptr<Runner> other;
    Outcome others;
    if (!compare.empty() || !picture.empty()) {
      other = std::make_unique<Runner>(target, inputs, run);
      others = other->run();
    }
    std::vector<double> other_weights;
    if (!picture.empty()) other_weights = dense_weights(inputs, *other, 0, head - 1);
    std::vector<Result> results;
    std::vector<Panel> panels;
    for (const std::string& spec : specs) {
      Result result{spec, {}, {}, {}};
      try {
        note("running " + spec, output.quiet || specs.size() == 1);
        Runner runner(spec, inputs, run);
        result.outcome = spec == target && other ? others : runner.run();
        if (other) result.distance = distance(inputs, runner, result.outcome.out, *other, others.out);
        if (!picture.empty()) panels.push_back(panel(runner, result, other_weights));
        if (!out.empty()) replace_file(out_path, {safetensors_bytes(output_file(spec, inputs, result.outcome))});
      } catch (const UsageError& error) {
        if (!pass_over) throw;
        result.problem = error.what();
      } catch (const DataError& error) {
        if (!pass_over) throw DataError(concat(in, ": ", error.what()));
        result.problem = error.what();
      }
      results.push_back(std::move(result));
      if (interrupted()) throw Interrupted();
    }
    const bool any = std::any_of(results.begin(), results.end(), [](const Result& r) { return r.problem.empty(); });
    check<UsageError>(any, "no variant can work on these tensors: ", results.front().problem);
    if (!picture.empty()) replace_file(picture_path, {draw_panels(panels, inputs.queries(), inputs.keys(), target)});
    return results;
  }

  // Of one head, with the distance of that head's rows.
  Panel panel(const Runner& runner, const Result& result, const std::vector<double>& others) const {
    Panel panel{result.spec, dense_weights(inputs, runner, 0, head - 1), {}, NAN};
    double sum = 0;
    for (size_t i = 0; i < others.size(); ++i) sum += std::abs(panel.weights[i] - others[i]);
    const int64_t rows =
        inputs.mask.query_lengths.defined() ? inputs.mask.query_lengths.data<int32_t>()[0] : inputs.queries();
    if (rows > 0) panel.l1 = sum / double(rows);
    // Which cluster or (in its first round) bucket each query is in.
    const AttentionChoices& made = result.outcome.made;
    const Tensor groups = made["labels"].defined() ? made["labels"] : made["buckets"];
    if (groups.defined()) {
      const auto all = groups.to_vector<int32_t>();
      const int64_t N = inputs.queries(), rounds = groups.rank() == 4 ? groups.size(2) : 1;
      const auto first = all.begin() + (head - 1) * rounds * N;
      panel.labels.assign(first, first + N);
    }
    return panel;
  }

  void tell(const std::vector<Result>& results) const {
    Json list = Json::array();
    for (const Result& result : results) {
      Json json = {{"attention", result.spec}};
      if (!result.problem.empty())
        json["problem"] = result.problem;
      else
        json["seconds"] = result.outcome.seconds;
      if (!compare.empty() && result.problem.empty())
        json.update({{"l1", number(result.distance.l1)}, {"error", number(result.distance.error)}});
      list.push_back(json);
    }
    if (output.json) {
      Json json = {{"in", in}, {"queries", inputs.queries()}, {"keys", inputs.keys()}, {"gradients", run.gradients}};
      if (!out.empty()) json["out"] = out;
      if (!picture.empty()) json["picture"] = picture;
      if (!compare.empty()) json["compare"] = compare;
      json["results"] = list;
      return print(json.dump() + "\n");
    }
    print(table(results));
  }

  std::string table(const std::vector<Result>& results) const {
    size_t width = 9;
    for (const Result& result : results) width = std::max(width, result.spec.size());
    const auto cell = [](double value, int columns, int decimals) {
      return std::isfinite(value) ? formatted("%*.*f", columns, decimals, value) : formatted("%*s", columns, "-");
    };
    std::string text = std::string("attention") + std::string(width - 9, ' ') +
                       (run.gradients ? "  ms (with gradients)" : "            ms");
    if (!compare.empty()) text += "  L1 of rows  error of output   (to " + compare + ")";
    text += "\n";
    for (const Result& result : results) {
      text += result.spec + std::string(width - result.spec.size(), ' ');
      if (!result.problem.empty()) {
        text += "  - " + result.problem + "\n";
        continue;
      }
      text += cell(result.outcome.seconds * 1e3, run.gradients ? 21 : 14, 3);
      if (!compare.empty()) text += cell(result.distance.l1, 12, 4) + cell(result.distance.error, 17, 4);
      text += "\n";
    }
    return text;
  }

  Options options;
  CommonSettings common;
  OutputOptions output;
  RunOptions run{{}, 1, false, 0};
  std::string attention, in, out, compare, picture, example;
  fs::path out_path, picture_path;
  bool causal = false;
  int64_t head = 1, length = 512;
  Inputs inputs;
};

}  // namespace
}  // namespace cairn::attend

int main(int argc, char** argv) {
  std::unique_ptr<cairn::attend::Attend> program;
  return cairn::run_program("attend", "Any attention variant on anybody's tensors.", "", argc, argv,
                            [&](CLI::App& app) { program = std::make_unique<cairn::attend::Attend>(app); });
}

// attend: any attention variant on anybody's tensors.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/attend/outputs.h"
#include "apps/attend/picture.h"
#include "apps/common/artifact.h"
#include "apps/common/command.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "nn/io/file.h"

namespace cairn::attend {
namespace {

// Every variant of the list with a number as one might choose it for a few hundred queries.
std::vector<std::string> every_variant() {
  static const std::map<std::string, int> numbers{{"clusters", 25}, {"keys", 32}, {"rounds", 4}, {"points", 32}};
  std::vector<std::string> specs;
  for (const AttentionVariant* variant : attention_variants()) {
    SpecReader reader({variant, "100", {}});
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

// What a variant gave.
struct Result {
  std::string spec, problem;  // why it did not run
  std::unique_ptr<Runner> runner;
  Outcome outcome;
  double l1 = NAN, error = NAN;  // to the variant of --compare
};

// The distance of an output to another, relative to the other's size. NaN: that is zero.
double relative_error(const Tensor& out, const Tensor& other) {
  const auto a = out.cast(DType::float64).to_vector<double>(), b = other.cast(DType::float64).to_vector<double>();
  double between = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    between += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return size > 0 ? std::sqrt(between / size) : NAN;
}

struct Attend : Command {
  Attend() : Command("", "", footer()) {}

  static std::string footer() {
    return "The file --in has q [B, N, H, D], k [B, S, H, D] and v [B, S, H, M], all float32, float64 or bfloat16, and "
           "may\n"
           "have:\n"
           "  query_lengths, key_lengths  int32 or int64 [B]: what is beyond takes no part\n"
           "  mask         bool or uint8 (0 is false), broadcastable to [B, H, N, S]: true where a query may attend;\n"
           "               one that hides only a tail of keys is taken as key_lengths\n"
           "  grad_out     [B, N, H, M]: the gradient of the output, ones by default\n"
           "  planes       [bits, D + 1]: hyperplanes for hashing, the last column their offsets\n"
           "  labels       int32 or int64 [B, H, N]: the queries' clusters, -1 for none\n"
           "  points       [H, I, D]: for inducing\n"
           "A variant uses those that mean something to it.\n"
           "The file --out gets out [B, N, H, M]; with --grad grad_q, grad_k, grad_v, grad_points; of clustered "
           "variants\n"
           "codes and labels [B, H, N], counts [B, H, C], topk [B, H, C, k], mass [B, H, C]; of lsh buckets\n"
           "[B, H, rounds, N]. float64 is computed in double, on the CPU; bfloat16 in float32, or on CUDA with "
           "--precision\n"
           "bf16 in bfloat16, and the results are float32.\n"
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
           "130 interrupted.";
  }

  void fields(SettingFields& f) override {
    f("attention", attention, Text::any, "the variant; several, comma-separated, or all with --compare or --picture");
    f("in", in, Text::file, "tensors q, k, v and others, see below (safetensors)", Keep::no);
    f("out", out, Text::file, "write the output, and what the variant chose, here (safetensors)", Keep::no);
    f("grad", options.gradients, "also compute gradients");
    f("causal", causal, "query i attends to keys up to i");
    f("compare", compare, Text::variant,
      "a variant, such as full, to tell the distance to: of attention rows (mean L1), and of the output");
    f("picture", picture, Text::file, "draw the attention weights of each head of the first batch element here (SVG)",
      Keep::no);
    f("repeat", options.repeat, {1, 1000},
      "runs to take the median time of; by default 1, which is a cold start, with --compare 5");
    f("example", example, Text::file, "write tensors to try it with here, and end", Keep::no);
    f("length", length, {1, 1 << 20}, "queries and keys of the example");
    compute.fields(f);
  }

  void run(Communicator&) override {
    if (!example.empty()) return write_example();
    check<UsageError>(!given("length"), "--length: is that of the example; it needs --example");
    check<UsageError>(!in.empty(),
                      "expected --in with a file of tensors (--example FILE writes one); see attend --help");
    const std::vector<std::string> specs = variants();
    options.compute = compute.apply();
    options.seed = uint64_t(compute.seed);
    if (options.repeat < 1) options.repeat = compare.empty() ? 1 : 5;
    if (!out.empty()) out_path = output_path("--out", out, in);
    if (!picture.empty()) {
      check<UsageError>(std::filesystem::path(picture).extension() != ".png", "--picture ", picture,
                        ": is written as SVG; choose a name that ends in .svg");
      picture_path = output_path("--picture", picture, in);
    }
    check<UsageError>(out.empty() || out_path.lexically_normal() != picture_path.lexically_normal(), "--picture ",
                      picture, ": is the file of --out too");
    inputs = read_inputs(read_safetensors(in));
    inputs.mask.causal = causal;
    tell_inputs();
    for (const std::string& spec : specs) note_if_full(*make_attention(spec), inputs.queries(), inputs.keys(), quiet);
    catch_interrupts(quiet);
    run_variants(specs);
    if (!compare.empty() || !picture.empty()) look();
    tell(results_json(), results_text());
  }

  // The variants that are asked for.
  std::vector<std::string> variants() const {
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
    about_option("--attention", [&] {
      for (const std::string& spec : specs) make_attention(spec);
    });
    return specs;
  }

  // Says what was read, and how it is taken.
  void tell_inputs() {
    if (!compute.device && inputs.q.dtype() == DType::float64) options.compute = {Device::cpu, DType::float32};
    note(concat(in, ": ", inputs.shapes), quiet);
    // Also with --quiet, for a misspelled name changes the result.
    for (const std::string& name : inputs.unknown) note(concat(in, ": tensor ", name, " is not read"), false);
    if (inputs.heads() > std::max(inputs.queries(), inputs.keys()))
      note(concat(in, ": more heads (", inputs.heads(), ") than positions (", inputs.queries(),
                  "); axes are [batch, position, head, element], so PyTorch's [B, H, N, D] must be transposed"),
           quiet);
    if (inputs.bfloat16)
      note(concat(in, ": bfloat16 is computed in ", name(options.compute.activations), "; the results are float32"),
           quiet);
    if (inputs.tail_mask) note(concat(in, ": the mask hides a tail of keys, and is taken as key_lengths"), quiet);
    check<UsageError>(picture.empty() || inputs.batches() * inputs.heads() > 0,
                      "--picture: expected a batch element with heads to draw, got q of shape ", inputs.q.shape());
  }

  // Runs the variants and writes --out. With several, one that cannot work on these tensors is told and passed over.
  // Errors: UsageError: none can; DataError: labels beyond a variant's clusters; Interrupted.
  void run_variants(const std::vector<std::string>& specs) {
    const bool several = specs.size() > 1;
    if (!compare.empty() || !picture.empty()) {
      other.spec = compare.empty() ? "full" : compare;
      other.runner = std::make_unique<Runner>(other.spec, inputs, options);
      other.outcome = other.runner->run();
    }
    for (const std::string& spec : specs) {
      note("running " + spec, quiet || !several);
      Result& result = results.emplace_back();
      result.spec = spec;
      try {
        auto runner = std::make_unique<Runner>(spec, inputs, options);
        result.outcome = runner->run();
        result.runner = std::move(runner);
        if (other.runner) result.error = relative_error(result.outcome.out, other.outcome.out);
        if (!out.empty()) write_safetensors(out_path, output_file(spec, inputs, result.outcome));
      } catch (const UsageError& error) {
        if (!several) throw;
        result.problem = error.what();
      } catch (const DataError& error) {
        if (!several) throw DataError(concat(in, ": ", error.what()));
        result.problem = error.what();
      }
      if (interrupted()) throw Interrupted();
    }
    const bool any = std::any_of(results.begin(), results.end(), [](const Result& r) { return r.problem.empty(); });
    check<UsageError>(any, "no variant can work on these tensors: ", results.front().problem);
  }

  // Looks at the weights of the variants that ran.
  void look() {
    const std::vector<int64_t> sample = sample_of(inputs.queries(), options.seed);
    if (int64_t(sample.size()) < inputs.queries())
      note(concat("rows of weights: a sample of ", sample.size(), " of the ", inputs.queries(), " queries"), quiet);
    std::vector<Shown> shown;
    for (const Result& result : results)
      if (result.runner) shown.push_back({result.runner.get(), result.outcome.made, 0, {}});
    look_at(shown, *other.runner, inputs, sample, !picture.empty());
    for (Result& result : results)
      for (const Shown& one : shown)
        if (one.runner == result.runner.get()) result.l1 = one.l1;
    if (!picture.empty()) replace_file(picture_path, {draw_picture(shown, inputs, sample)});
  }

  Json results_json() const {
    Json found = {{"in", in}, {"queries", inputs.queries()}, {"keys", inputs.keys()}, {"gradients", options.gradients}};
    if (!out.empty()) found["out"] = out;
    if (!picture.empty()) found["picture"] = picture;
    if (!compare.empty()) found["compare"] = compare;
    found["results"] = Json::array();
    for (const Result& result : results) {
      Json one = {{"attention", result.spec}};
      if (!result.problem.empty())
        one["problem"] = result.problem;
      else
        one["seconds"] = result.outcome.seconds;
      if (!compare.empty() && result.problem.empty())
        one.update({{"l1", finite_or_null(result.l1)}, {"error", finite_or_null(result.error)}});
      found["results"].push_back(one);
    }
    return found;
  }

  std::string results_text() const {
    size_t width = 9;
    for (const Result& result : results) width = std::max(width, result.spec.size());
    const auto cell = [](double value, int columns, int decimals) {
      return std::isfinite(value) ? formatted("%*.*f", columns, decimals, value) : formatted("%*s", columns, "-");
    };
    std::string text = formatted("%-*s%21s", int(width), "attention", options.gradients ? "ms (with gradients)" : "ms");
    if (!compare.empty()) text += "  L1 of rows  error of output   (to " + compare + ")";
    text += "\n";
    for (const Result& result : results) {
      text += formatted("%-*s", int(width), result.spec.c_str());
      if (!result.problem.empty()) {
        text += "  - " + result.problem + "\n";
        continue;
      }
      text += cell(result.outcome.seconds * 1e3, 21, 3);
      if (!compare.empty()) text += cell(result.l1, 12, 4) + cell(result.error, 17, 4);
      text += "\n";
    }
    return text;
  }

  void write_example() {
    check<UsageError>(in.empty() && out.empty() && attention.empty() && compare.empty() && picture.empty() && !causal &&
                          !options.gradients && !given("repeat"),
                      "--example: writes tensors and nothing else; leave out the other options");
    write_safetensors(output_path("--example", example, ""), example_file(length, uint64_t(compute.seed)));
    note(concat(example, ": q, k, v of 1 sequence, ", length, " positions, 4 heads of 32"), quiet);
  }

  ComputeSettings compute;
  RunOptions options{{}, 1, false, 0};
  std::string in, out, picture, compare, attention, example;
  std::filesystem::path out_path, picture_path;  // where out and picture are written, behind symbolic links
  bool causal = false;
  int64_t length = 512;
  Inputs inputs;
  Result other;  // of the variant that the others are compared with, if they are
  std::vector<Result> results;
};

}  // namespace
}  // namespace cairn::attend

int main(int argc, char** argv) {
  return cairn::run_program(
      "attend", "Any attention variant on anybody's tensors.", "",
      {[]() -> std::unique_ptr<cairn::Command> { return std::make_unique<cairn::attend::Attend>(); }}, argc, argv);
}

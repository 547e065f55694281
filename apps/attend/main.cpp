// attend: any attention variant on anybody's tensors.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/attend/picture.h"
#include "apps/common/artifact.h"
#include "apps/common/command.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "nn/io/file.h"

namespace cairn::attend {
namespace {

namespace fs = std::filesystem;

// The distance of an output to another, relative to the other's size. NaN: that is zero.
double relative_error(const Tensor& out, const Tensor& other) {
  const auto size_of_all = [](const Tensor& x) {
    return std::sqrt(sum(unary(Unary::square, x)).to_vector<double>()[0]);
  };
  const Tensor a = out.cast(DType::float64), b = other.cast(DType::float64);
  const double size = size_of_all(b);
  return size > 0 ? size_of_all(binary(Binary::subtract, a, b)) / size : NAN;
}

struct Attend : Command {
  Attend() : Command("", "", footer()) {}

  static std::string footer() {
    return "The file --in has q [B, N, H, D], k [B, S, H, D] and v [B, S, H, M], all float32, float64 or bfloat16;\n"
           "it may have:\n"
           "  query_lengths, key_lengths  int32 or int64 [B]: what is beyond takes no part\n"
           "  mask         bool or uint8 (0 is false), broadcastable to [B, H, N, S]: true where a query may attend;\n"
           "               one that hides only a tail of keys is taken as key_lengths\n"
           "  grad_out     [B, N, H, M]: the gradient of the output, ones by default\n"
           "  planes       [bits, D + 1]: hyperplanes for hashing, the last column their offsets\n"
           "  labels       int32 or int64 [B, H, N]: the queries' clusters, -1 for none\n"
           "  points       [H, I, D]: for inducing\n"
           "A variant uses those that mean something to it.\n"
           "The file --out gets out [B, N, H, M]; with --grad grad_q, grad_k, grad_v, grad_points; of clustered\n"
           "variants codes and labels [B, H, N], counts [B, H, C], topk [B, H, C, k], mass [B, H, C]; of lsh\n"
           "buckets [B, H, rounds, N]. float64 is computed in double, on the CPU; bfloat16 in float32, or on CUDA\n"
           "with --precision bf16 in bfloat16, and the results are float32.\n"
           "\n"
           "Examples:\n"
           "  attend --example qkv.safetensors\n"
           "  attend --in qkv.safetensors --attention i-clustered-25:topk=16 --out result.safetensors --grad\n"
           "  attend --in qkv.safetensors --compare full                   every variant: error against time\n"
           "  attend --in qkv.safetensors --attention full,clustered-25 --picture weights.svg\n"
           "\n"
           "Attention variants:\n" +
           describe_attention_variants() +
           "\nExit codes: 0 done, 1 failure, 2 usage or tensors that do not fit, 3 a bad file, 4 device or out of\n"
           "memory, 130 interrupted.";
  }

  void fields(SettingFields& f) override {
    f("attention", attention, Text::any,
      "the variant; with --compare or --picture several, comma-separated, by default all");
    f("in", in, Text::file, "tensors q, k, v and others, see below (safetensors)", Keep::no);
    f("out", out, Text::file, "write the output, and what the variant chose, here (safetensors)", Keep::no);
    f("grad", options.gradients, "also compute gradients");
    f("causal", causal, "query i attends to keys up to i");
    f("compare", compare, Text::variant,
      "a variant, such as full, to tell the distance to: of attention rows (mean L1), and of the output");
    f("picture", picture, Text::file,
      "draw the attention weights of each head of the first batch element here (SVG); --compare is full by default",
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
    if (compare.empty() && !picture.empty()) compare = "full";
    const std::vector<std::string> specs = variants();
    check<UsageError>(specs.size() == 1 || out.empty(), "--out: one file has the results of one variant; got ",
                      specs.size(), " of them");
    check<UsageError>(specs.size() == 1 || !compare.empty(),
                      "--attention: several variants need --compare or --picture");
    options.compute = compute.apply();
    options.seed = uint64_t(compute.seed);
    if (options.repeat < 1) options.repeat = compare.empty() ? 1 : 5;
    check<UsageError>(fs::path(picture).extension() != ".png", "--picture ", picture,
                      ": is written as SVG; choose a name that ends in .svg");
    const std::string picture_name = picture;
    if (!out.empty()) out = output_path("--out", out, in).string();
    if (!picture.empty()) picture = output_path("--picture", picture, in).string();
    check<UsageError>(picture.empty() || fs::path(out).lexically_normal() != fs::path(picture).lexically_normal(),
                      "--picture ", picture_name, ": is the file of --out too");
    inputs = read_inputs(read_safetensors(in));
    inputs.mask.causal = causal;
    check<UsageError>(picture.empty() || inputs.batches() * inputs.heads() > 0,
                      "--picture: expected a batch element with heads to draw, got q of shape ", inputs.q.shape());
    if (!compute.device && inputs.q.dtype() == DType::float64) options.compute = {Device::cpu, DType::float32};
    for (const std::string& text : inputs.notes) note(concat(in, ": ", text), quiet);
    // Also with --quiet, for a misspelled name changes the result.
    for (const std::string& name : inputs.unknown) note(concat(in, ": tensor ", name, " is not read"), false);
    for (const std::string& spec : specs) note_if_full(*make_attention(spec), inputs.queries(), inputs.keys(), quiet);
    catch_interrupts(quiet);
    run_variants(specs);
    if (!compare.empty()) look();
    tell(results_json(), results_text());
  }

  // The variants that are asked for.
  std::vector<std::string> variants() const {
    if (attention.empty() && !compare.empty()) return every_variant();
    std::vector<std::string> specs;
    name_in_errors("--attention", [&] {
      specs = split_specs(attention);
      for (const std::string& spec : specs) make_attention(spec);
    });
    check<UsageError>(!specs.empty(), "expected --attention with a variant; see attend --help");
    return specs;
  }

  // Runs the variants and writes --out. With several, one that cannot work on these tensors is told and passed over.
  // Errors: UsageError: none can; DataError: labels beyond a variant's clusters; Interrupted.
  void run_variants(const std::vector<std::string>& specs) {
    const bool several = specs.size() > 1;
    if (!compare.empty()) {
      other.runner = std::make_unique<Runner>(compare, inputs, options);
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
        if (!compare.empty()) result.error = relative_error(result.outcome.out, other.outcome.out);
        if (!out.empty()) write_safetensors(out, output_file(spec, inputs, result.outcome));
      } catch (const Error& error) {
        const int code = exit_code_of(error);
        if (!several || (code != 2 && code != 3)) throw;  // 2, 3: it does not fit these tensors
        result.problem = error.what();
      }
      if (interrupted()) throw Interrupted();
    }
    const bool any = std::any_of(results.begin(), results.end(), [](const Result& r) { return r.runner != nullptr; });
    check<UsageError>(any, "no variant can work on these tensors: ", results.front().problem);
  }

  // Looks at the weights of the variants that ran.
  void look() {
    const std::vector<int64_t> sample = sample_of(inputs.queries(), options.seed);
    if (int64_t(sample.size()) < inputs.queries())
      note(concat("rows of weights: a sample of ", sample.size(), " of the ", inputs.queries(), " queries"), quiet);
    look_at(results, *other.runner, inputs, sample, !picture.empty());
    if (!picture.empty()) replace_file(picture, {draw_picture(results, inputs, sample)});
  }

  Json results_json() const {
    Json found = {{"queries", inputs.queries()}, {"keys", inputs.keys()}, {"results", Json::array()}};
    for (const Result& result : results) {
      Json one = {{"attention", result.spec}};
      if (result.runner)
        one["seconds"] = result.outcome.seconds;
      else
        one["problem"] = result.problem;
      if (result.runner && !compare.empty())
        one.update({{"l1", finite_or_null(result.l1)}, {"error", finite_or_null(result.error)}});
      found["results"].push_back(one);
    }
    return found;
  }

  std::string results_text() const {
    const auto cell = [](double value, int columns, int decimals) {
      return std::isfinite(value) ? formatted("%*.*f", columns, decimals, value) : formatted("%*s", columns, "-");
    };
    std::string text = formatted("%-32s%21s", "attention", options.gradients ? "ms (with gradients)" : "ms");
    if (!compare.empty()) text += "  L1 of rows  error of output   (to " + compare + ")";
    text += "\n";
    for (const Result& result : results) {
      text += formatted("%-32s", result.spec.c_str());
      if (!result.runner) {
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
  bool causal = false;
  int64_t length = 512;
  Inputs inputs;
  Result other;  // of --compare
  std::vector<Result> results;
};

}  // namespace
}  // namespace cairn::attend

int main(int argc, char** argv) {
  return cairn::run_program(
      "attend", "Any attention variant on anybody's tensors.", "",
      {[]() -> std::unique_ptr<cairn::Command> { return std::make_unique<cairn::attend::Attend>(); }}, argc, argv);
}

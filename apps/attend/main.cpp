// attend: any attention variant on anybody's tensors.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/attend/outputs.h"
#include "apps/attend/picture.h"
#include "apps/common/artifact.h"
#include "apps/common/command.h"
#include "apps/common/program.h"
#include "nn/io/file.h"

namespace cairn::attend {
namespace {

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

// Runs the variants and writes the files. With several, one that cannot work on these tensors is told and passed over.
// Errors: UsageError: none can; DataError: labels beyond a variant's clusters; Interrupted.
std::vector<Result> run_variants(const Request& request, const Inputs& inputs, const std::vector<std::string>& specs) {
  const bool pass_over = specs.size() > 1;
  const std::string target = request.compare.empty() ? "full" : request.compare;
  std::unique_ptr<Runner> other;
  Outcome others;
  if (!request.compare.empty() || !request.picture.empty()) {
    other = std::make_unique<Runner>(target, inputs, request.run);
    others = other->run();
  }
  HeadWeights other_weights;
  if (!request.picture.empty()) other_weights = dense_weights(inputs, *other, drawn_heads(inputs));
  std::vector<Result> results;
  std::vector<svg::Tile> tiles;
  for (const std::string& spec : specs) {
    Result result{spec, {}, {}, {}};
    try {
      note("running " + spec, request.quiet || !pass_over);
      Runner runner(spec, inputs, request.run);
      result.outcome = spec == target && other ? others : runner.run();
      if (other) result.distance = distance(inputs, runner, result.outcome.out, *other, others.out);
      if (!request.picture.empty())
        for (svg::Tile& tile : draw_heads(inputs, runner, result.outcome.made, target, other_weights))
          tiles.push_back(std::move(tile));
      if (!request.out.empty())
        replace_file(request.out_path, {safetensors_bytes(output_file(spec, inputs, result.outcome))});
    } catch (const UsageError& error) {
      if (!pass_over) throw;
      result.problem = error.what();
    } catch (const DataError& error) {
      if (!pass_over) throw DataError(concat(request.in, ": ", error.what()));
      result.problem = error.what();
    }
    results.push_back(std::move(result));
    if (interrupted()) throw Interrupted();
  }
  const bool any = std::any_of(results.begin(), results.end(), [](const Result& r) { return r.problem.empty(); });
  check<UsageError>(any, "no variant can work on these tensors: ", results.front().problem);
  if (!request.picture.empty()) replace_file(request.picture_path, {draw_picture(tiles, inputs)});
  return results;
}

struct Attend : Command {
  Attend() : Command("", "", footer()) {}

  static std::string footer() {
    return "The file --in has q [B, N, H, D], k [B, S, H, D] and v [B, S, H, M], float32 or float64, and may have:\n"
           "  query_lengths, key_lengths  int32 or int64 [B]: what is beyond takes no part\n"
           "  mask         bool or uint8 (0 is false), broadcastable to [B, H, N, S]: true where a query may attend\n"
           "  grad_out     [B, N, H, M]: the gradient of the output, ones by default\n"
           "  planes       [bits, D + 1]: hyperplanes for hashing, the last column their offsets\n"
           "  labels       int32 or int64 [B, H, N]: the queries' clusters, -1 for none\n"
           "  points       [H, I, D]: for inducing\n"
           "A variant uses those that mean something to it.\n"
           "The file --out gets out [B, N, H, M]; with --grad grad_q, grad_k, grad_v, grad_points; of clustered "
           "variants\n"
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
           "130 interrupted.";
  }

  void fields(SettingFields& f) override {
    f("attention", attention, Text::any, "the variant; several, comma-separated, or all with --compare or --picture");
    f("in", request.in, Text::file, "tensors q, k, v and others, see below (safetensors)", Keep::no);
    f("out", request.out, Text::file, "write the output, and what the variant chose, here (safetensors)", Keep::no);
    f("grad", request.run.gradients, "also compute gradients");
    f("causal", causal, "query i attends to keys up to i");
    f("compare", request.compare, Text::variant,
      "a variant, such as full, to tell the distance to: of attention rows (mean L1), and of the output");
    f("picture", request.picture, Text::file,
      "draw the attention weights of the first batch element here, every head up to the 16th (SVG)", Keep::no);
    f("repeat", request.run.repeat, {1, 1000},
      "runs to take the median time of; by default 1, which is a cold start, with --compare 5");
    f("example", example, Text::file, "write tensors to try it with here, and end", Keep::no);
    f("length", length, {1, 1 << 20}, "queries and keys of the example");
    compute.fields(f);
  }

  void run(Communicator&) override {
    if (!example.empty()) return write_example();
    check<UsageError>(!given("length"), "--length: is that of the example; it needs --example");
    check<UsageError>(!request.in.empty(),
                      "expected --in with a file of tensors (--example FILE writes one); see attend --help");
    const std::vector<std::string> specs = variants();
    request.quiet = quiet;
    request.run.compute = compute.apply();
    request.run.seed = uint64_t(compute.seed);
    if (request.run.repeat < 1) request.run.repeat = request.compare.empty() ? 1 : 5;
    if (!request.out.empty()) request.out_path = output_path("--out", request.out, request.in);
    if (!request.picture.empty()) request.picture_path = output_path("--picture", request.picture, request.in);
    check<UsageError>(
        request.out.empty() || request.out_path.lexically_normal() != request.picture_path.lexically_normal(),
        "--picture ", request.picture, ": is the file of --out too");
    const Inputs inputs = read();
    for (const std::string& spec : specs) note_if_full(*make_attention(spec), inputs.queries(), inputs.keys(), quiet);
    catch_interrupts(quiet);
    const std::vector<Result> results = run_variants(request, inputs, specs);
    tell(results_json(request, inputs, results), results_text(request, results));
  }

  // The variants that are asked for.
  std::vector<std::string> variants() const {
    std::vector<std::string> specs;
    if (attention == "all" || (attention.empty() && !request.compare.empty()))
      specs = every_variant();
    else
      about_option("--attention", [&] { specs = split_specs(attention); });
    check<UsageError>(!specs.empty(), "expected --attention with a variant; see attend --help");
    check<UsageError>(specs.size() == 1 || request.out.empty(), "--out: one file has the results of one variant; got ",
                      specs.size(), " of them");
    check<UsageError>(specs.size() == 1 || !request.compare.empty() || !request.picture.empty(),
                      "--attention: several variants need --compare or --picture");
    about_option("--attention", [&] {
      for (const std::string& spec : specs) make_attention(spec);
    });
    return specs;
  }

  Inputs read() {
    Inputs inputs = read_inputs(read_safetensors(request.in));
    inputs.mask.causal = causal;
    if (!compute.device && inputs.q.dtype() == DType::float64) request.run.compute = {Device::cpu, DType::float32};
    // Also with --quiet, for a misspelled name changes the result.
    for (const std::string& name : inputs.unknown) note(concat(request.in, ": tensor ", name, " is not read"), false);
    if (request.picture.empty()) return inputs;
    check<UsageError>(drawn_heads(inputs) > 0,
                      "--picture: expected a batch element with heads to draw, got q of shape ", inputs.q.shape());
    if (drawn_heads(inputs) < inputs.heads())
      note(concat("the picture shows the first ", drawn_heads(inputs), " of ", inputs.heads(), " heads"), quiet);
    return inputs;
  }

  void write_example() {
    check<UsageError>(request.in.empty() && request.out.empty() && attention.empty() && request.compare.empty() &&
                          request.picture.empty() && !causal && !request.run.gradients && !given("repeat"),
                      "--example: writes tensors and nothing else; leave out the other options");
    replace_file(output_path("--example", example, ""),
                 {safetensors_bytes(example_file(length, uint64_t(compute.seed)))});
    note(concat(example, ": q, k, v of 1 sequence, ", length, " positions, 4 heads of 32"), quiet);
  }

  ComputeSettings compute;
  Request request;
  std::string attention, example;
  bool causal = false;
  int64_t length = 512;
};

}  // namespace
}  // namespace cairn::attend

int main(int argc, char** argv) {
  return cairn::run_program(
      "attend", "Any attention variant on anybody's tensors.", "",
      {[]() -> std::unique_ptr<cairn::Command> { return std::make_unique<cairn::attend::Attend>(); }}, argc, argv);
}

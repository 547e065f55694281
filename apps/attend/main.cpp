// attend: any attention variant on anybody's tensors.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/attend/run.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/svg.h"
#include "apps/common/variants.h"
#include "core/random.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn::attend {
namespace {

namespace fs = std::filesystem;

// The results of a variant. Distances are to the variant of --compare.
struct Result {
  std::string spec, problem{};  // the error, if it did not run
  std::unique_ptr<Runner> runner{};
  double error = NAN;                // the distance of the output, relative to the other output
  double l1 = NAN;                   // the mean L1 distance of rows of weights, 0 to 2; NaN: no rows
  std::vector<double> distances{};   // L1, summed over the rows of each head, [B, H]
  std::vector<svg::Heatmap> maps{};  // the weights of each head of the first batch element
};

// A specification of each variant, with a number that suits a few hundred queries.
std::vector<std::string> every_variant() {
  std::vector<std::string> specs;
  for (const AttentionVariant* variant : attention_variants()) {
    SpecReader reader({variant, "100", {}});
    variant->make(reader);
    const std::string& number = reader.number_asked();
    specs.push_back(variant->name + std::string(number.empty() ? "" : number == "rounds" ? "-4" : "-32"));
  }
  return specs;
}

// Not finite if the other has only zeros.
double relative_error(const Tensor& out, const Tensor& other) {
  const auto size_of = [](const Variable& x) { return std::sqrt(sum(square(x)).value().item()); };
  const Tensor a = out.cast(DType::float64), b = other.cast(DType::float64);
  return size_of(a - b) / size_of(b);
}

// The queries whose rows are compared: all if there are at most 4096; otherwise a random one from each of 512 equal
// intervals.
std::vector<int64_t> sample_of(int64_t queries, uint64_t seed) {
  constexpr int64_t most = 4096, drawn = 512;
  const int64_t count = queries > most ? drawn : queries;
  RandomStream random(seed, 0, Purpose::data);
  std::vector<int64_t> sample;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = queries * i / count, end = queries * (i + 1) / count;
    sample.push_back(begin + random.below(uint32_t(end - begin)));
  }
  return sample;
}

// For each row of a head's map: the cluster of its first query, or its bucket in the first round; -1: none.
std::vector<int32_t> row_colors(const svg::Heatmap& map, int64_t head, const AttentionChoices& made,
                                const std::vector<int64_t>& sample) {
  std::vector<int32_t> colors(size_t(map.rows), -1);  // so that all pictures are of one size
  const Tensor labels = made.labels.defined() ? made.labels : made.buckets;
  if (!labels.defined()) return colors;
  const std::vector<int32_t> label = labels.to_vector<int32_t>();  // [B, H, N] or [B, H, rounds, N]
  const int64_t first = head * labels.elements() / (labels.size(0) * labels.size(1));
  for (int64_t r = 0; r < map.rows; ++r) colors[size_t(r)] = label[size_t(first + sample[size_t(r * map.row_step)])];
  return colors;
}

constexpr const char* files =
    "The file --in has q [B, N, H, D], k [B, S, H, D] and v [B, S, H, M], all float32, float64 or bfloat16.\n"
    "It may also have:\n"
    "  query_lengths, key_lengths  int32 or int64 [B]: queries and keys beyond them are padding\n"
    "  mask         bool or uint8 (0 is false), broadcastable to [B, H, N, S]: true where a query may attend;\n"
    "               a mask that hides only the last keys is read as key_lengths\n"
    "  grad_out     [B, N, H, M]: the gradient of the output (default: ones)\n"
    "  planes       [bits, D + 1]: hyperplanes for hashing, with their offsets in the last column\n"
    "  labels       int32 or int64 [B, H, N]: the cluster of each query, below C, -1 for none\n"
    "  points       [H, I, D]: the points of inducing\n"
    "Tensors that a variant does not use are ignored. Shapes that do not fit are a usage error.\n"
    "The file --out has out [B, N, H, M]; with --grad also grad_q, grad_k, grad_v, grad_points. Clustered\n"
    "variants add codes and labels [B, H, N], counts [B, H, C], topk [B, H, C, k] and mass [B, H, C]; lsh adds\n"
    "buckets [B, H, rounds, N], and with keys=own key_buckets [B, H, rounds, S]. Tensors of float64 are "
    "computed\n"
    "in float64, on the CPU. Those of bfloat16 are computed in float32, or with --precision bf16 in bfloat16,\n"
    "and give float32 results.\n"
    "\n"
    "Examples:\n"
    "  attend --example 512 --compare full                          every variant: error against time\n"
    "  attend --in qkv.safetensors --attention i-clustered-25:topk=16 --out result.safetensors --grad\n"
    "  attend --in qkv.safetensors --attention full,clustered-25 --picture weights.svg\n"
    "\n"
    "Attention variants:\n";

struct Attend {
  // Declares the settings, and takes those that the user gave.
  explicit Attend(CommandLine& command_line) : line(command_line) {
    line("attention", attention, several_variants,
         "attention variants (listed below), separated by commas; with --out only one; default with --compare or "
         "--picture: all");
    line("in", in, Text::file, "safetensors file with q, k, v and other tensors (see below)", Keep::not_in_config);
    line("example", example, {0, 1 << 20},
         "instead of --in: example tensors with N queries and keys, 4 heads of size 32");
    line("out", out, Text::file, "write the output and the variant's choices to this safetensors file (see below)",
         Keep::not_in_config);
    line("grad", options.gradients, "also compute gradients");
    line("causal", causal, "causal mask: query i attends to keys up to i");
    line("compare", compare, one_variant,
         "report distances to this variant, such as full: mean L1 distance of attention rows, relative error of the "
         "output");
    line("picture", picture, Text::file,
         "draw the attention weights of each head of the first batch element in this SVG file; --compare is then full "
         "by "
         "default",
         Keep::not_in_config);
    compute.fields(line);
    line.footer(concat(files, describe_attention_variants()));
    line.parse();
  }

  void run() {
    check<UsageError>(in.empty() != (example == 0),
                      "expected --in with a file of tensors, or --example with a number; see attend --help");
    if (compare.empty() && !picture.empty()) compare = "full";
    std::vector<std::string> specs = split_specs(attention);
    if (specs.empty() && !compare.empty()) specs = every_variant();
    check<UsageError>(!specs.empty(), "expected --attention with a variant; see attend --help");
    check<UsageError>(specs.size() == 1 || out.empty(), "--out: one file has the results of one variant; got ",
                      specs.size(), " of them");
    options.compute = compute.apply();
    options.seed = uint64_t(compute.seed);
    check<UsageError>(fs::path(picture).extension() != ".png", "--picture ", picture,
                      ": is written as SVG; choose a name that ends in .svg");
    if (!out.empty()) out = output_path("--out", out, in).string();
    if (!picture.empty()) picture = output_path("--picture", picture, in).string();
    check<UsageError>(out.empty() || out != picture, "--picture ", picture, ": is the file of --out; choose another");
    inputs = read_inputs(in.empty() ? example_file(example, options.seed) : read_safetensors(in));
    inputs.mask.causal = causal;
    if (!compute.device && inputs.q.dtype() == DType::float64) options.compute = {Device::cpu, DType::float32};
    for (const std::string& text : inputs.notes) note(concat(inputs.file.where, ": ", text), line.quiet);
    // Also with --quiet, for a misspelled name changes the result.
    for (const std::string& name : inputs.unknown) note(concat(inputs.file.where, ": unknown tensor ", name), false);
    for (const std::string& spec : specs)  // given labels may give queries one cluster in any case
      if (!inputs.given.labels.defined())
        note(full_attention_note(*make_attention(spec), inputs.queries(), inputs.keys()), line.quiet);
    catch_interrupts(line.quiet);
    for (const std::string& spec : specs) run_variant(spec, specs.size() > 1);
    const bool any = std::ranges::any_of(results, [](const Result& result) { return result.runner != nullptr; });
    check<UsageError>(any, "no variant works on these tensors: ", results.front().problem);
    if (!compare.empty() && std::ranges::find(specs, compare) == specs.end()) run_variant(compare, false);
    if (!out.empty()) write_safetensors(out, results[0].runner->output(specs[0]));
    if (!compare.empty()) look();
    tell_results();
  }

  // Errors: UsageError, DataError: it does not work on these tensors; one of `several` is skipped then. Interrupted.
  void run_variant(const std::string& spec, bool several) {
    note("running " + spec, line.quiet || !several);
    Result& result = results.emplace_back();
    result.spec = spec;
    try {
      result.runner = std::make_unique<Runner>(spec, inputs, options);
    } catch (const Error& error) {
      const bool does_not_fit = dynamic_cast<const UsageError*>(&error) || dynamic_cast<const DataError*>(&error);
      if (!several || !does_not_fit) throw;
      result.problem = error.what();
    }
    if (interrupted()) throw Interrupted();
  }

  // Computes the distances, and writes the picture.
  void look() {
    const Result& other = *std::ranges::find(results, compare, &Result::spec);
    check<UsageError>(other.runner != nullptr, other.problem);
    const int64_t B = inputs.batches(), H = inputs.heads(), S = inputs.keys();
    const std::vector<int64_t> sample = sample_of(inputs.queries(), options.seed);
    const auto rows = int64_t(sample.size());
    if (rows < inputs.queries())
      note(concat("attention rows: a sample of ", rows, " of the ", inputs.queries(), " queries"), line.quiet);
    constexpr int64_t side = 64;  // cells; at most about 5 MB of SVG for 15 variants and 8 heads
    for (Result& result : results) {
      if (!result.runner) continue;
      result.error = relative_error(result.runner->out, other.runner->out);
      result.distances.assign(size_t(B * H), 0);
      if (!picture.empty() && B > 0) result.maps.assign(size_t(H), svg::Heatmap(rows, S, side));
    }
    constexpr int64_t at_once = 512;
    for (int64_t first = 0; first < rows; first += at_once) {
      const std::vector<int64_t> part(sample.begin() + first, sample.begin() + std::min(rows, first + at_once));
      const Tensor others = other.runner->weights(part);
      for (Result& result : results) {
        if (!result.runner) continue;
        if (interrupted()) throw Interrupted();
        const Tensor own = result.runner->weights(part);
        const auto sums = sum(abs(own - others), {2, 3}).value().to_vector<float>();
        for (size_t head = 0; head < sums.size(); ++head) result.distances[head] += sums[head];
        for (size_t h = 0; h < result.maps.size(); ++h)
          for (size_t i = 0; i < part.size(); ++i)
            result.maps[h].add(first + int64_t(i), own.data<float>() + int64_t(h * part.size() + i) * S, S);
      }
    }
    int64_t counted = 0;  // rows of padding are zero in all variants
    for (int64_t b = 0; b < B; ++b) counted += inputs.valid_of(sample, b) * H;
    for (Result& result : results)
      if (result.runner && counted > 0)
        result.l1 = std::accumulate(result.distances.begin(), result.distances.end(), 0.0) / double(counted);
    if (!picture.empty()) replace_file(picture, {drawn(sample)});
  }

  // An SVG file of all maps. If there are several variants and heads, each variant has a row.
  std::string drawn(const std::vector<int64_t>& sample) const {
    const int64_t H = inputs.heads();
    std::vector<double> edges;
    for (double edge = 0.5 / double(inputs.keys()); edge < 1 && edges.size() < size_t(svg::ramp); edge *= 2)
      edges.push_back(edge);
    std::vector<svg::Picture> maps;
    for (const Result& result : results)
      for (size_t h = 0; h < result.maps.size(); ++h) {
        svg::Heatmap map = result.maps[h];
        const std::string title = H > 1 ? concat(result.spec, ", head ", h + 1) : result.spec;
        map.title = "Attention weights of " + title;
        map.edges = edges;
        map.row_colors = row_colors(map, int64_t(h), result.runner->made, sample);
        const double l1 = result.distances[h] / double(inputs.valid_of(sample, 0));
        maps.push_back({svg::draw(map), concat(title, ": L1 ", svg::number(l1))});
      }
    const std::string reading = concat(
        "Each row is a query; each column is a key. Darker cells have larger weights; each level starts at twice the "
        "one before. The colors at the left are clusters, or lsh's buckets. L1: the mean distance of rows to those of ",
        compare, ".");
    return svg::sheet("Attention weights of each head", reading, maps, H > 1 ? int(H) : 4);
  }

  // A table, or with --json an object.
  void tell_results() const {
    const auto cell = [](double value, int columns, int decimals) {
      return std::isfinite(value) ? formatted("%*.*f", columns, decimals, value) : formatted("%*s", columns, "-");
    };
    Json found = {{"queries", inputs.queries()}, {"keys", inputs.keys()}, {"results", Json::array()}};
    std::string text = formatted("%-32s%21s", "attention", options.gradients ? "ms (with gradients)" : "ms");
    if (!compare.empty()) text += "  L1 of rows  error of output   (to " + compare + ")";
    for (const Result& result : results) {
      Json& one = found["results"].emplace_back(Json::object());
      one["attention"] = result.spec;
      text += formatted("\n%-32s", result.spec.c_str());
      if (!result.runner) {
        one["problem"] = result.problem;
        text += "  - " + result.problem;
        continue;
      }
      one["seconds"] = result.runner->seconds;
      text += cell(result.runner->seconds * 1e3, 21, 3);
      if (compare.empty()) continue;
      one["l1"] = finite_or_null(result.l1);
      one["error"] = finite_or_null(result.error);
      text += cell(result.l1, 12, 4) + cell(result.error, 17, 4);
    }
    line.tell(found, text + "\n");
  }

  ComputeSettings compute;
  RunOptions options;
  std::string in, out, picture, compare, attention;
  bool causal = false;
  int64_t example = 0;
  Inputs inputs;
  std::vector<Result> results;
  CommandLine& line;
};

}  // namespace
}  // namespace cairn::attend

int main(int argc, char** argv) {
  return cairn::run_program(
      "attend",
      "Run any attention variant on your tensors, and compare variants: results, gradients, errors, time, pictures.",
      "", {{"", [](cairn::CommandLine& line) { cairn::attend::Attend(line).run(); }, ""}}, argc, argv);
}

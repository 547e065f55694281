// attend: any attention variant on anybody's tensors.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/attend/run.h"
#include "apps/common/artifact.h"
#include "apps/common/command.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/svg.h"
#include "core/random.h"
#include "nn/io/file.h"

namespace cairn::attend {
namespace {

namespace fs = std::filesystem;

// What a variant gave. Distances are to the variant of --compare.
struct Result {
  std::string spec, problem{};  // why it did not run
  std::unique_ptr<Runner> runner{};
  Outcome outcome{};
  double error = NAN;                // the distance of the output, relative to the other output
  double l1 = NAN;                   // the mean over rows of their L1 distance, 0 to 2; NaN: no rows
  std::vector<double> distances{};   // L1, of each head summed over rows, [B, H]
  std::vector<svg::Heatmap> maps{};  // the weights of each head of the first batch element
};

// A specification of each variant, with a number as one might choose it for a few hundred queries.
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

// Not finite: the other has only zeros.
double relative_error(const Tensor& out, const Tensor& other) {
  const auto size_of = [](const Tensor& x) { return std::sqrt(sum(unary(Unary::square, x)).item()); };
  const Tensor a = out.cast(DType::float64), b = other.cast(DType::float64);
  return size_of(binary(Binary::subtract, a, b)) / size_of(b);
}

// The queries whose rows are looked at: all up to 4096; of more 512, drawn one from each of 512 equal stretches.
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

// The cluster, or the bucket of the first round, of the first query in each row of a head's map; -1: none.
std::vector<int32_t> row_colors(const svg::Heatmap& map, int64_t head, const AttentionChoices& made,
                                const std::vector<int64_t>& sample) {
  std::vector<int32_t> colors(size_t(map.rows), -1);  // so that all tiles are of one size
  const Tensor groups = made["labels"].defined() ? made["labels"] : made["buckets"];
  if (!groups.defined()) return colors;
  const std::vector<int32_t> labels = groups.to_vector<int32_t>();  // [B, H, N] or [B, H, rounds, N]
  const int64_t first = head * groups.elements() / (groups.size(0) * groups.size(1));
  for (int64_t r = 0; r < map.rows; ++r) colors[size_t(r)] = labels[size_t(first + sample[size_t(r * map.row_step)])];
  return colors;
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
           "  attend --example 512 --compare full                          every variant: error against time\n"
           "  attend --in qkv.safetensors --attention i-clustered-25:topk=16 --out result.safetensors --grad\n"
           "  attend --in qkv.safetensors --attention full,clustered-25 --picture weights.svg\n"
           "\n"
           "Attention variants:\n" +
           describe_attention_variants() +
           "\nExit codes: 0 done, 1 failure, 2 usage or tensors that do not fit, 3 a bad file, 4 device or out of\n"
           "memory, 130 interrupted.";
  }

  void fields(SettingFields& f) override {
    f("attention", attention, Text::variants,
      "the variant; with --compare or --picture several, comma-separated, by default all");
    f("in", in, Text::file, "tensors q, k, v and others, see below (safetensors)", Keep::no);
    f("example", example, {1, 1 << 20}, "instead of --in: an example of so many queries and keys, in 4 heads of 32");
    f("out", out, Text::file, "write the output, and what the variant chose, here (safetensors)", Keep::no);
    f("grad", options.gradients, "also compute gradients");
    f("causal", causal, "query i attends to keys up to i");
    f("compare", compare, Text::variant,
      "a variant, such as full, to tell the distance to: of attention rows (mean L1), and of the output");
    f("picture", picture, Text::file,
      "draw the attention weights of each head of the first batch element here (SVG); --compare is full by default",
      Keep::no);
    compute.fields(f);
  }

  void run(Communicator&) override {
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
    options.runs = compare.empty() ? 1 : 5;
    check<UsageError>(fs::path(picture).extension() != ".png", "--picture ", picture,
                      ": is written as SVG; choose a name that ends in .svg");
    if (!out.empty()) out = output_path("--out", out, in).string();
    if (!picture.empty()) picture = output_path("--picture", picture, in).string();
    inputs = read_inputs(in.empty() ? example_file(example, options.seed) : read_safetensors(in));
    inputs.mask.causal = causal;
    if (!compute.device && inputs.q.dtype() == DType::float64) options.compute = {Device::cpu, DType::float32};
    for (const std::string& text : inputs.notes) note(concat(inputs.file.where, ": ", text), quiet);
    // Also with --quiet, for a misspelled name changes the result.
    for (const std::string& name : inputs.unknown) note(concat(inputs.file.where, ": unknown tensor ", name), false);
    for (const std::string& spec : specs) note_if_full(*make_attention(spec), inputs.queries(), inputs.keys(), quiet);
    catch_interrupts(quiet);
    for (const std::string& spec : specs) run_variant(spec, specs.size() > 1);
    const bool any = std::ranges::any_of(results, [](const Result& result) { return result.runner != nullptr; });
    check<UsageError>(any, "no variant can work on these tensors: ", results.front().problem);
    if (!compare.empty() && std::ranges::find(specs, compare) == specs.end()) run_variant(compare, false);
    if (!out.empty()) write_safetensors(out, output_file(specs[0], inputs, results[0].outcome));
    if (!compare.empty()) look();
    tell_results();
  }

  // Errors: UsageError, DataError: it cannot work on these tensors; one of `several` is passed over then. Interrupted.
  void run_variant(const std::string& spec, bool several) {
    note("running " + spec, quiet || !several);
    Result& result = results.emplace_back();
    result.spec = spec;
    try {
      auto runner = std::make_unique<Runner>(spec, inputs, options);
      result.outcome = runner->run();
      result.runner = std::move(runner);
    } catch (const Error& error) {
      const int code = exit_code_of(error);
      if (!several || (code != 2 && code != 3)) throw;
      result.problem = error.what();
    }
    if (interrupted()) throw Interrupted();
  }

  // Finds the distances of those that ran, and writes the picture.
  void look() {
    const Result& other = *std::ranges::find(results, compare, &Result::spec);
    check<UsageError>(other.runner != nullptr, other.problem);
    const int64_t B = inputs.batches(), H = inputs.heads(), S = inputs.keys();
    const std::vector<int64_t> sample = sample_of(inputs.queries(), options.seed);
    const auto rows = int64_t(sample.size());
    if (rows < inputs.queries())
      note(concat("rows of weights: a sample of ", rows, " of the ", inputs.queries(), " queries"), quiet);
    // 64 heatmaps of 128 rows and columns, or as many cells: at most some 10 MB of SVG.
    const double tiles = double(results.size()) * double(std::max<int64_t>(1, H));
    const auto side = std::clamp<int64_t>(int64_t(128 * std::sqrt(64 / tiles)), 16, 128);
    for (Result& result : results) {
      if (!result.runner) continue;
      result.error = relative_error(result.outcome.out, other.outcome.out);
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
        const auto sums = sum(unary(Unary::abs, binary(Binary::subtract, own, others)), {2, 3}).to_vector<float>();
        for (size_t head = 0; head < sums.size(); ++head) result.distances[head] += sums[head];
        for (size_t h = 0; h < result.maps.size(); ++h)
          for (size_t i = 0; i < part.size(); ++i)
            result.maps[h].add(first + int64_t(i), own.data<float>() + int64_t(h * part.size() + i) * S, S);
      }
    }
    int64_t counted = 0;  // rows beyond a length are zeros in all variants
    for (int64_t b = 0; b < B; ++b) counted += inputs.valid_of(sample, b) * H;
    for (Result& result : results)
      if (result.runner && counted > 0)
        result.l1 = std::accumulate(result.distances.begin(), result.distances.end(), 0.0) / double(counted);
    if (!picture.empty()) replace_file(picture, {drawn(sample)});
  }

  // An SVG file of all maps. Several variants of several heads stand in a row each.
  std::string drawn(const std::vector<int64_t>& sample) const {
    const int64_t H = inputs.heads();
    std::vector<double> edges;
    for (double edge = 0.5 / double(inputs.keys()); edge < 1 && edges.size() < size_t(svg::ramp); edge *= 2)
      edges.push_back(edge);
    std::vector<svg::Tile> tiles;
    for (const Result& result : results)
      for (size_t h = 0; h < result.maps.size(); ++h) {
        svg::Heatmap map = result.maps[h];
        const std::string title = H > 1 ? concat(result.spec, ", head ", h + 1) : result.spec;
        map.title = "Attention weights of " + title;
        map.edges = edges;
        map.row_colors = row_colors(map, int64_t(h), result.outcome.made, sample);
        const double l1 = result.distances[h] / double(inputs.valid_of(sample, 0));
        tiles.push_back({svg::draw(map), title, concat("L1 to ", compare, " ", svg::number(l1))});
      }
    const bool all = int64_t(sample.size()) == inputs.queries();
    const int64_t columns = H > 1 && results.size() > 1 ? H : 4;
    return svg::sheet("Attention weights of each head",
                      concat("A row for each ",
                             all ? "query" : concat("of ", sample.size(), " queries, drawn out of ", inputs.queries()),
                             ", a column for each key; darker is more, in powers of two from half of even attention "
                             "on. The strip at the left has a color for each cluster."),
                      tiles, int(std::min<int64_t>(columns, int64_t(tiles.size()))));
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
      one["seconds"] = result.outcome.seconds;
      text += cell(result.outcome.seconds * 1e3, 21, 3);
      if (compare.empty()) continue;
      one["l1"] = finite_or_null(result.l1);
      one["error"] = finite_or_null(result.error);
      text += cell(result.l1, 12, 4) + cell(result.error, 17, 4);
    }
    tell(found, text + "\n");
  }

  ComputeSettings compute;
  RunOptions options;
  std::string in, out, picture, compare, attention;
  bool causal = false;
  int64_t example = 0;
  Inputs inputs;
  std::vector<Result> results;
};

}  // namespace
}  // namespace cairn::attend

int main(int argc, char** argv) {
  return cairn::run_program(
      "attend", "Any attention variant on anybody's tensors.", "",
      {[]() -> std::unique_ptr<cairn::Command> { return std::make_unique<cairn::attend::Attend>(); }}, argc, argv);
}

#pragma once
// What attention variants make of a model's embeddings of one's own text, beside full attention.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/text_search/measure.h"
#include "apps/text_search/walk.h"

namespace cairn::text_search {

// Of texts, so that another can tell whether he has the same.
struct Corpus {
  int64_t files = 0, bytes = 0;
  std::string
      hash;  // xxh128 of a line a file, "<xxh128 of its bytes>  <path below its root>", as xxh128sum prints them
};

// Sequences of exactly `length` tokens from the files that a walk finds: [CLS], length - 2 tokens of one file, [SEP],
// one behind another. If there are more than `maximum`, so many of them at even distances. Memory: one file and
// 2 `maximum` sequences. Error (UsageError): fewer than two.
Sequences cut_sequences(const WalkOptions& options, const WordPiece& tokenizer, int64_t length, int64_t maximum,
                        Corpus& corpus);

struct VariantResult {
  std::string spec;
  Cosines cosine;         // with full attention's embedding of the same sequence
  double neighbors_kept;  // the share of a sequence's ten nearest neighbors that are those of full attention
  double seconds_per_token;
};
struct LengthResult {
  int64_t length = 0, sequences = 0;
  std::vector<VariantResult> variants;  // full first
};
LengthResult compare(int64_t length, const std::vector<std::string>& specs, const Measured& measured);

struct Comparison {
  std::string model, device;
  int64_t batch = 0, threads = 0;
  Corpus corpus;
  std::vector<LengthResult> lengths;
};
std::string comparison_text(const Comparison& comparison);
nlohmann::ordered_json comparison_json(const Comparison& comparison);
// Error against time as SVG, a chart for each length. Variants that differ in the option refine alone are one curve.
std::string comparison_picture(const Comparison& comparison);

}  // namespace cairn::text_search

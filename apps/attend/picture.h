#pragma once
// Rows of attention weights of several variants: how far they are from another variant's, and a picture of them.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/attend/run.h"
#include "apps/common/svg.h"

namespace cairn::attend {

// What a variant gave.
struct Result {
  std::string spec, problem{};  // why it did not run
  std::unique_ptr<Runner> runner{};
  Outcome outcome{};
  double error = NAN;              // of the output, relative to the other variant's
  double l1 = NAN;                 // the mean over rows of their L1 distance to the other's, 0 to 2; NaN: no rows
  std::vector<svg::Tile> tiles{};  // of each head of the first batch element
};

// The queries whose rows are looked at: all up to 4096; of more 512, drawn one from each of 512 equal stretches.
std::vector<int64_t> sample_of(int64_t queries, uint64_t seed);

// Finds `l1` of those that ran, and the tiles if there is to be a picture. Error: Interrupted.
void look_at(std::vector<Result>& results, const Runner& other, const Inputs& inputs,
             const std::vector<int64_t>& sample, bool picture);

// An SVG file of all tiles. Several variants of several heads stand in a row each.
std::string draw_picture(const std::vector<Result>& results, const Inputs& inputs, const std::vector<int64_t>& sample);

}  // namespace cairn::attend

#pragma once
// Rows of attention weights of several variants: how far they are from another variant's, and a picture of them.
#include <cstdint>
#include <string>
#include <vector>

#include "apps/attend/run.h"
#include "apps/common/svg.h"

namespace cairn::attend {

// The queries whose rows are looked at: all up to 4096; of more 512, drawn one from each of 512 equal stretches.
std::vector<int64_t> sample_of(int64_t queries, uint64_t seed);

// A variant that has run.
struct Shown {
  const Runner* runner;
  AttentionChoices made;         // by which queries are colored
  double l1 = 0;                 // the mean over rows of their L1 distance to the other's, 0 to 2; NaN: no rows
  std::vector<svg::Tile> tiles;  // of each head of the first batch element
};
// Finds these numbers, and the tiles if there is to be a picture. Error: Interrupted.
void look_at(std::vector<Shown>& variants, const Runner& other, const Inputs& inputs,
             const std::vector<int64_t>& sample, bool picture);

// An SVG file of all tiles. Several variants of several heads stand in a row each.
std::string draw_picture(const std::vector<Shown>& variants, const Inputs& inputs, const std::vector<int64_t>& sample);

}  // namespace cairn::attend

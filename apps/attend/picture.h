#pragma once
// The matrices of attention weights of several variants beside each other, for every head of the first batch element.
#include <string>
#include <vector>

#include "apps/attend/run.h"
#include "apps/common/svg.h"

namespace cairn::attend {

// The number of heads that are drawn: all up to 16, none if there is no batch element.
int64_t drawn_heads(const Inputs& inputs);

// A tile for each of these heads. `others` are the weights of the variant `other`, to tell each head's distance to.
std::vector<svg::Tile> draw_heads(const Inputs& inputs, const Runner& runner, const AttentionChoices& made,
                                  const std::string& other, const HeadWeights& others);

// An SVG file of the tiles of all variants, those of one variant behind each other. Several variants of several heads
// stand in a row each.
std::string draw_picture(const std::vector<svg::Tile>& tiles, const Inputs& inputs);

}  // namespace cairn::attend

#pragma once
// The matrices of attention weights of several variants beside each other.
#include <cmath>
#include <string>
#include <vector>

#include "apps/attend/run.h"

namespace cairn::attend {

struct Panel {
  std::string spec;
  std::vector<double> weights;  // [N][S]
  std::vector<int32_t> labels;  // of the queries' clusters or buckets, -1: none; empty: there are none
  double l1 = NAN;              // to full attention
};

// Of one head, from 0, of the first batch element; `others` are the weights to compare with.
Panel panel_of(const Inputs& inputs, const Runner& runner, const std::string& spec, const AttentionChoices& made,
               int64_t head, const std::vector<double>& others);

// An SVG file.
std::string draw_panels(const std::vector<Panel>& panels, int64_t queries, int64_t keys, const std::string& other);

}  // namespace cairn::attend

#pragma once
// A report: one HTML page without scripts and without other files. It is well-formed XML, fits narrow and wide windows,
// and follows the reader's light or dark theme. Pictures come from svg.h. All text is escaped here.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/common/run_folder.h"
#include "apps/common/svg.h"
#include "nn/attention/observe.h"

namespace cairn {

class Report {
 public:
  using Rows = std::vector<std::vector<std::string>>;

  Report(const std::string& title, const std::string& lead);

  // The main figures, at the top of the page.
  struct KeyFigure {
    std::string label, value, note;
  };
  void summary(const std::vector<KeyFigure>& figures);

  void section(const std::string& title);
  void text(const std::string& paragraph);

  void figure(const svg::Picture& picture) { figures({picture}, 1); }
  // Side by side: `columns` on a wide page (1, 2 or 4), half as many on a narrow one.
  void figures(const std::vector<svg::Picture>& pictures, int columns);
  // A table with column names. The first column names the rows.
  void table(const std::vector<std::string>& names, const Rows& rows);

  std::string html() const;

 private:
  std::string title_, body_;
};

// ---- what the reports of trainings have in common

// "1 step", "2 steps".
std::string count(int64_t n, const std::string& what);
// An object as rows for Report::table(): keys and values.
Report::Rows rows_of(const Json& object);

// A metric of the evaluations in metrics.jsonl. Error (DataError): the file is another program's.
svg::Series evaluation_curve(const RunFolder& run, const std::string& metric, const std::string& name, int color = 0);
// The section "Learning" of a run of so many steps: its loss, in this unit, and a chart of its evaluations. The
// captions are the descriptions. Error as above.
void write_curves(Report& page, const RunFolder& run, int64_t steps, const std::string& unit,
                  svg::LineChart evaluations);

// observe() on one sequence of n positions. Empty if dense weights take too much memory; `forward` runs in any case.
std::vector<Observation> observe_sequence(const std::vector<MultiHeadAttention*>& layers, int64_t n,
                                          const std::function<void()>& forward);
// The attention weights of one sequence for which of_interest(query, key), summed and divided by `queries`:
// [layer][head].
std::vector<std::vector<double>> weight_shares(const std::vector<Observation>& layers, int64_t queries,
                                               const std::function<bool(int64_t, int64_t)>& of_interest);
// Legend and maps of the attention weights in one sequence, with the clusters of the queries where the variant has
// them; if `attention` is another, beside those of full attention on the same queries and keys. `shares` [layer][head]
// are of weights of interest, named `share`: a map shows the head of a layer with the largest. `reading` says how to
// read it.
void write_attention_maps(Report& page, const std::string& attention, const std::vector<Observation>& layers,
                          const std::vector<std::vector<double>>& shares, const std::string& share,
                          const std::string& reading);
// Adds the configuration and the provenance of the run, and writes report.html.
void write_page(Report& page, RunFolder& run);

}  // namespace cairn

#pragma once
// A report: one HTML page without scripts and without other files. It is well-formed XML, fits narrow and wide windows,
// and follows the reader's light or dark theme. Pictures come from svg.h. All text is escaped here.
#include <string>
#include <utility>
#include <vector>

namespace cairn {

class Report {
 public:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  Report(const std::string& title, const std::string& lead);

  // The main figures, at the top of the page.
  struct KeyFigure {
    std::string label, value, note;
  };
  void summary(const std::vector<KeyFigure>& figures);

  void section(const std::string& title);
  void text(const std::string& paragraph);

  struct Picture {
    std::string svg, caption;
  };
  void figure(const Picture& picture) { figures({picture}, 1); }
  // Side by side: `columns` on a wide page (1, 2 or 4), half as many on a narrow one.
  void figures(const std::vector<Picture>& pictures, int columns);
  // A table with column names. The first column names the rows.
  void columns(const std::vector<std::string>& names, const std::vector<std::vector<std::string>>& rows);
  // A table of names and values, which the reader opens with a click.
  void table(const std::string& title, const Pairs& rows);

  std::string html() const;

 private:
  std::string title_, body_;
};

}  // namespace cairn

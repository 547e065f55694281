#include "apps/common/svg.h"

#include <cmath>
#include <cstddef>
#include <regex>

#include "apps/common/report.h"
#include "tests/apps/markup.h"
#include "tests/catch.h"

using namespace cairn;  // NOLINT: tests only

namespace {

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// No picture may say NaN or infinity where a coordinate belongs.
void check_picture(const std::string& picture) {
  INFO(picture);
  CHECK(markup_error(picture) == "");
  CHECK(occurrences(picture, "nan") == 0);
  CHECK(occurrences(picture, "inf") == 0);
  CHECK(occurrences(picture, "role=\"img\"") == 1);
  CHECK(occurrences(picture, "<title>") == 1);
}

}  // namespace

TEST_CASE("the markup check finds what is wrong", "[svg]") {
  CHECK(markup_error("<a b=\"1\"><c/>text &amp; more</a>") == "");
  CHECK(markup_error("<a><b></a></b>") != "");
  CHECK(markup_error("<a>") != "");
  CHECK(markup_error("<a b=1></a>") != "");
  CHECK(markup_error("<a>x & y</a>") != "");
  CHECK(markup_error("<a b=\"<\"></a>") != "");
  CHECK(markup_error("<a/><b/>") != "");
}

TEST_CASE("text is escaped and numbers are written for people", "[svg]") {
  CHECK(svg::escape("a<b> & \"c\"\n") == "a&lt;b&gt; &amp; &quot;c&quot; ");
  CHECK(svg::number(0) == "0");
  CHECK(svg::number(0.1234) == "0.123");
  CHECK(svg::number(0.5) == "0.5");
  CHECK(svg::number(-2.5) == "−2.5");
  CHECK(svg::number(99.96) == "100");
  CHECK(svg::number(999.9) == "1,000");
  CHECK(svg::number(12500) == "12,500");
  CHECK(svg::number(1234567) == "1.23M");
  CHECK(svg::number(999999) == "999,999");
  CHECK(svg::number(999999.9) == "1M");
  CHECK(svg::number(0.000123) == "0.000123");
  CHECK(svg::number(0.837, true) == "83.7%");
  CHECK(svg::number(1, true) == "100%");
  CHECK(svg::number(0.9978, true) == "99.78%");
  CHECK(svg::number(0.999999, true) == "99.99%");
  CHECK(svg::number(NAN) == "–");
  CHECK(svg::number(NAN, true) == "–");
  CHECK(svg::number(-INFINITY) == "−∞");
}

TEST_CASE("pictures of odd data are well-formed", "[svg]") {
  const std::vector<std::vector<double>> data{
      {}, {NAN, NAN}, {1}, {0, 0, 0}, {-1, 2, -3}, {1e300, -1e300, 5}, {1, NAN, 2e9}, {INFINITY, 1, 2, -INFINITY}};
  for (const auto& values : data)
    for (bool log : {false, true}) {
      std::vector<double> steps;
      for (size_t i = 0; i < values.size(); ++i) steps.push_back(double(i));
      svg::LineChart lines;
      lines.title = "<&\">", lines.y.log = log, lines.x.log = log;
      lines.series = {{"one & two", steps, values, 0, false, true}, {"", values, steps, 9, true, false}};
      lines.bands = {{0, 1, "<b>"}, {NAN, 2, "x"}}, lines.rules = {{0.5, "a<b"}, {NAN, "x"}};
      check_picture(draw(lines));

      svg::Heatmap map;
      map.rows = int64_t(values.size()), map.columns = 1, map.values = values, map.write_values = log;
      map.row_title = "<", map.column_title = "&", map.diagonals = {0, 5}, map.marked_rows = {0};
      check_picture(draw(map));

      svg::Cells cells;
      for (double value : values) cells.rows.push_back({"&", {{svg::number(value), "<", int(cells.rows.size())}}});
      check_picture(draw(cells));
    }
}

TEST_CASE("a line stops where its data does", "[svg]") {
  svg::LineChart chart;
  chart.series = {{"s", {0, 1, 2, 3, 4}, {1, 2, NAN, 2, 1}}};
  const std::string picture = draw(chart);
  const size_t from = picture.find("class=\"line s0\"");
  const std::string path = picture.substr(from, picture.find("/>", from) - from);
  CHECK(occurrences(path, "M") == 2);
  CHECK(occurrences(path, "L") == 2);
  chart.series[0].y = {};
  CHECK(occurrences(draw(chart), "no data") == 1);
}

TEST_CASE("a heatmap draws runs of a level as one stroke, and nothing below its first edge", "[svg]") {
  svg::Heatmap map;
  map.rows = 2, map.columns = 4, map.edges = {0.1, 0.5};
  map.values = {0, 0.1, 0.2, 0.6, NAN, 0.05, 0.7, 0.7};
  const std::string picture = draw(map);
  CHECK(occurrences(picture, "d=\"M1 0h2\"") == 1);        // 0.1 and 0.2, the edge belonging to its level
  CHECK(occurrences(picture, "d=\"M3 0h1M2 1h2\"") == 1);  // 0.6, 0.7, 0.7
  CHECK(occurrences(picture, "odd\" d=\"M0 1h1\"") == 1);  // NaN
  CHECK(occurrences(picture, "cells") == 3);
}

TEST_CASE("large heatmaps are pooled by their maximum", "[svg]") {
  CHECK(svg::pooling(128) == 1);
  CHECK(svg::pooling(129) == 2);
  CHECK(svg::pooling(512) == 4);
  svg::Heatmap map;
  map.rows = map.columns = 512, map.edges = {0.5};
  map.values.assign(512 * 512, 0.0);
  map.values[511 * 512 + 6] = 1;
  CHECK(occurrences(draw(map), "d=\"M1 127h1\"") == 1);
}

TEST_CASE("the pictures of a sheet have one scale, and its rows their height", "[svg]") {
  svg::Heatmap small, large;
  small.rows = small.columns = large.columns = 2, large.rows = 20;
  small.row_labels = {"a", "b"}, large.row_labels = std::vector<std::string>(20, "a long name of a row");
  const std::string sheet = svg::sheet("two", "", {{draw(small), "a", ""}, {draw(large), "b", ""}}, 2, 300, 200);
  const std::string one = svg::sheet("one", "", {{draw(small), "a", ""}}, 2, 300, 200);
  check_picture(svg::sheet("none", "", {}, 2));
  CHECK(markup_error(sheet) == "");
  CHECK(occurrences(sheet, "viewBox=\"0 0 600 200\"") == 1);
  CHECK(occurrences(one, "viewBox=\"0 0 600 200\"") == 0);
  const std::regex picture(
      "<svg x=[^>]* width=\"([0-9.]+)\" height=\"([0-9.]+)\"[^>]* viewBox=\"0 0 ([0-9.]+) ([0-9.]+)\"");
  std::vector<double> scales;
  for (std::sregex_iterator at(sheet.begin(), sheet.end(), picture), end; at != end; ++at)
    for (size_t side : {1, 2}) scales.push_back(std::stod((*at)[side]) / std::stod((*at)[side + 2]));
  REQUIRE(scales.size() == 4);
  for (double scale : scales) CHECK(scale == Approx(scales[0]).epsilon(0.01));
  CHECK(scales[0] < 1);
}

TEST_CASE("a report is one well-formed page that needs nothing else", "[svg]") {
  Report page("<title> & \"more\"", "lead");
  page.summary({{"a<", "1", "&"}});
  page.section("<s>");
  page.subsection("<s>");
  page.text("x < y");
  page.figure({draw(svg::LineChart{}), "a & b"});
  page.table("table", {{"name<", "value & value"}});
  const std::string html = page.html();
  CHECK(markup_error(html.substr(html.find("<html"))) == "");
  for (const char* outside : {"<script", "<link", "url(", "src=", "@import", "href="}) {
    INFO(outside);
    CHECK(html.find(outside) == std::string::npos);
  }
}

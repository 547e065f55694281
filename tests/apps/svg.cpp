#include "apps/common/svg.h"

#include <cmath>
#include <cstddef>

#include "apps/common/report.h"
#include "tests/apps/process.h"
#include "tests/catch.h"

using namespace cairn;  // NOLINT: tests only

namespace {

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("text is escaped, and numbers are readable", "[svg]") {
  CHECK(svg::escape("a<b> & \"c\"\n") == "a&lt;b&gt; &amp; &quot;c&quot; ");
  std::string odd = "]]> \xed\xa0\x80 \uFFFE \uFFFF ";
  for (int i = 0; i < 1 << 16; ++i) odd += {char(i), char(i >> 8), ' '};
  CHECK(markup_error("<a b=\"" + svg::escape(odd) + "\">" + svg::escape(odd) + "</a>") == "");
  const std::vector<std::pair<double, std::string>> numbers{
      {0, "0"},         {-0.0, "0"},      {0.1234, "0.123"}, {0.5, "0.5"},           {-2.5, "−2.5"},
      {99.96, "100"},   {999.9, "1,000"}, {12500, "12,500"}, {1234567, "1.23M"},     {999999, "999,999"},
      {999999.9, "1M"}, {1e12, "1T"},     {1e300, "1e+300"}, {0.000123, "0.000123"}, {NAN, "–"},
      {-INFINITY, "−∞"}};
  for (const auto& [value, text] : numbers) CHECK(svg::number(value) == text);
  const std::vector<std::pair<double, std::string>> shares{
      {0.837, "83.7%"}, {1, "100%"}, {0.9978, "99.78%"}, {0.999999, "99.99%"}, {NAN, "–"}};
  for (const auto& [value, text] : shares) CHECK(svg::number(value, true) == text);
}

TEST_CASE("pictures of odd data are well-formed, and never show NaN or infinity", "[svg]") {
  std::string pictures;
  for (const std::vector<double>& values : std::vector<std::vector<double>>{
           {}, {NAN, NAN}, {1}, {0, 0, 0}, {-1, 2, -3}, {1e300, -1e300, 5}, {1, NAN, 2e9}, {INFINITY, 1, -INFINITY}})
    for (const bool log : {false, true}) {
      std::vector<double> steps;
      for (size_t i = 0; i < values.size(); ++i) steps.push_back(double(i));
      svg::LineChart lines{"<&\">", "&", {}, {}, {}, {{0, 1, "<b>"}}};
      lines.x.log = lines.y.log = log;
      lines.series = {{"one & two", steps, values, 0, true}, {"", values, steps, 9, false}};
      pictures += svg::draw(lines);
      svg::Heatmap map(int64_t(values.size()), 1);
      map.title = "<";
      map.edges = {0, 2};
      map.values.assign(values.begin(), values.end());
      pictures += svg::draw(map);
      svg::Cells cells{"<", "&", {}};
      for (double value : values) cells.rows.push_back({"&", {{svg::number(value), svg::level(value, {0, 2}), "<"}}});
      pictures += svg::draw(cells);
    }
  CHECK(markup_error("<all>" + pictures + "</all>") == "");
  for (const char* bad : {"nan", "inf"}) CHECK(occurrences(pictures, bad) == 0);
  CHECK(occurrences(pictures, "<svg ") == 48);
  CHECK(occurrences(pictures, "role=\"img\"") == 48);
  CHECK(occurrences(pictures, "<title>") == 48);
}

TEST_CASE("a line stops where its data does", "[svg]") {
  svg::LineChart chart;
  chart.series = {{"s", {0, 1, 2, 3, 4}, {1, 2, NAN, 2, 1}}};
  const std::string picture = svg::draw(chart);
  const size_t from = picture.find("class=\"line s0\"");
  const std::string path = picture.substr(from, picture.find("/>", from) - from);
  CHECK(occurrences(path, "M") == 2);
  CHECK(occurrences(path, "L") == 2);
  CHECK(occurrences(svg::draw(svg::LineChart{}), "no data") == 1);
}

TEST_CASE("a heatmap draws neighboring cells of a level as one stroke, and nothing below its first edge", "[svg]") {
  svg::Heatmap map(2, 4);
  map.edges = {0.1, 0.5};
  map.values = {0, 0.1F, 0.2F, 0.6F, NAN, 0.05F, 0.7F, 0.7F};
  const std::string picture = svg::draw(map);
  CHECK(occurrences(picture, "d=\"M1 0h2\"") == 1);        // 0.1 and 0.2; the edge belongs to its level
  CHECK(occurrences(picture, "d=\"M3 0h1M2 1h2\"") == 1);  // 0.6, 0.7, 0.7
  CHECK(occurrences(picture, "cells") == 2);
}

TEST_CASE("a heatmap of categories has a hue for each", "[svg]") {
  svg::Heatmap map(1, 4);
  map.categories = 2;
  map.values = {1, NAN, 0, 0};
  const std::string picture = svg::draw(map);
  CHECK(picture.find("stroke:hsl(0 60% 42%)\" d=\"M2 0h2\"") != std::string::npos);
  CHECK(picture.find("stroke:hsl(138 60% 56%)\" d=\"M0 0h1\"") != std::string::npos);
}

TEST_CASE("large heatmaps are pooled by their maximum", "[svg]") {
  CHECK((svg::pooling(128) == 1 && svg::pooling(129) == 2 && svg::pooling(512) == 4));
  svg::Heatmap map(512, 512);
  map.edges = {0.5};
  for (int64_t r = 0; r < 512; ++r) {
    std::vector<float> row(512, r % 2 ? NAN : 0);
    if (r == 510) row[6] = 1;
    map.add(r, row.data(), 512);
  }
  CHECK(occurrences(svg::draw(map), "d=\"M1 127h1\"") == 1);
}

TEST_CASE("a sheet shows each picture", "[svg]") {
  const std::string picture = svg::draw(svg::LineChart{});
  const std::string sheet = svg::sheet("three", "", {{picture, "<"}, {picture, "&"}, {picture, ""}}, 2);
  CHECK(markup_error(sheet) == "");
  CHECK(occurrences(sheet, "viewBox=\"0 0 580 624\"") == 1);
  for (const char* place : {"x=\"10\" y=\"10\" width=\"270\"", "x=\"300\" y=\"10\"", "x=\"10\" y=\"322\""})
    CHECK(occurrences(sheet, place) == 1);
  CHECK(markup_error(svg::sheet("none", "", {}, 2)) == "");
}

TEST_CASE("a report is one well-formed page without external files", "[svg]") {
  Report page("<title> & \"more\"", "lead");
  page.summary({{"a<", "1", "&"}});
  page.section("<s>");
  page.text("x < y");
  page.figure({svg::draw(svg::LineChart{}), "a & b"});
  page.table({"<", "b"}, {{"&", "1"}});
  const std::string html = page.html();
  CHECK(markup_error(html) == "");
  for (const char* outside : {"<script", "<link", "url(", "src=", "@import", "href="}) {
    INFO(outside);
    CHECK(html.find(outside) == std::string::npos);
  }
}

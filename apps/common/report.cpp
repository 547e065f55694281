#include "apps/common/report.h"

#include <cstddef>

#include "apps/common/svg.h"
#include "core/error.h"

namespace cairn {
namespace {

constexpr const char* page_style = R"(*{box-sizing:border-box}
body{margin:0;background:var(--surface);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:40px 32px 64px}
h1{font-size:30px;line-height:1.2;margin:0 0 8px;letter-spacing:-.01em}h2{font-size:22px;line-height:1.25;margin:56px 0 8px;padding-top:20px;border-top:1px solid var(--line)}
p{margin:8px 0;max-width:72ch}.lead{font-size:18px;color:var(--soft)}
.summary{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:24px 0 0}
.summary div{background:var(--panel);border-radius:8px;padding:14px 16px}.summary dt{font-size:13px;color:var(--soft)}
.summary dd{margin:0;font-size:26px;line-height:1.3;font-weight:600;font-variant-numeric:tabular-nums}.summary dd+dd{font-size:13px;font-weight:400;color:var(--soft);line-height:1.4}
.grid{display:grid;gap:24px 28px;margin:20px 0;align-items:start}.grid2{grid-template-columns:1fr 1fr}.grid4{grid-template-columns:repeat(4,1fr);gap:20px 24px}
figure{margin:0;min-width:0}figure>div{overflow-x:auto;padding:1px}figcaption{font-size:14px;line-height:1.45;color:var(--soft);margin-top:8px;max-width:76ch}
details{margin:12px 0;border:1px solid var(--line);border-radius:8px;overflow:hidden}summary{cursor:pointer;padding:10px 16px;font-weight:600}
table{border-collapse:collapse;width:100%;font-size:14px}td,th{text-align:left;vertical-align:top;padding:5px 16px;border-top:1px solid var(--line);font-weight:400;overflow-wrap:anywhere}
th{color:var(--soft);width:34%}.columns th{width:auto}td{font-variant-numeric:tabular-nums}
@media(max-width:760px){main{padding:24px 16px 48px}.grid2{grid-template-columns:minmax(0,1fr)}.grid4{grid-template-columns:1fr 1fr;gap:16px 12px}h1{font-size:25px}h2{margin-top:40px}.columns td,.columns th{padding:5px;overflow-wrap:normal}}
@media print{details{break-inside:avoid}figure{break-inside:avoid}}
)";

std::string element(const std::string& tag, const std::string& text) {
  return concat("<", tag, ">", svg::escape(text), "</", tag.substr(0, tag.find(' ')), ">\n");
}

}  // namespace

Report::Report(const std::string& title, const std::string& lead)
    : title_(title), body_(element("h1", title) + element("p class=\"lead\"", lead)) {}

void Report::summary(const std::vector<KeyFigure>& figures) {
  body_ += "<dl class=\"summary\">\n";
  for (const KeyFigure& figure : figures)
    body_ +=
        "<div>" + element("dt", figure.label) + element("dd", figure.value) + element("dd", figure.note) + "</div>\n";
  body_ += "</dl>\n";
}

void Report::section(const std::string& title) { body_ += element("h2", title); }
void Report::text(const std::string& paragraph) { body_ += element("p", paragraph); }

void Report::figures(const std::vector<Picture>& pictures, int columns) {
  body_ += concat("<div class=\"grid grid", columns, "\">\n");
  for (const Picture& picture : pictures) {
    body_ += concat("<figure><div>", picture.svg, "</div>");
    if (!picture.caption.empty()) body_ += element("figcaption", picture.caption);
    body_ += "</figure>\n";
  }
  body_ += "</div>\n";
}

void Report::columns(const std::vector<std::string>& names, const std::vector<std::vector<std::string>>& rows) {
  body_ += "<table class=\"columns\"><thead><tr>";
  for (const std::string& name : names) body_ += element("th scope=\"col\"", name);
  body_ += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    body_ += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) body_ += element(i == 0 ? "th scope=\"row\"" : "td", row[i]);
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table>\n";
}

void Report::table(const std::string& title, const Pairs& rows) {
  body_ += concat("<details>", element("summary", title), "<table><tbody>\n");
  for (const auto& [name, value] : rows)
    body_ += concat("<tr>", element("th scope=\"row\"", name), element("td", value), "</tr>\n");
  body_ += "</tbody></table></details>\n";
}

std::string Report::html() const {
  return concat(
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n",
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n", element("title", title_),
      "<style>\n", svg::style(), page_style, "</style>\n</head>\n<body>\n<main>\n", body_,
      "</main>\n</body>\n</html>\n");
}

}  // namespace cairn

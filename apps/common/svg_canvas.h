#pragma once
// What all pictures are drawn with: elements collected as text.
#include <type_traits>

#include "apps/common/svg.h"

namespace cairn::svg {

// A coordinate: at most two decimals, no trailing zeros.
std::string coordinate(double value);
// About as wide as the text is drawn.
double width_of(const std::string& text);
// A ramp class for level 1..levels.
std::string ramp_class(int64_t level, int64_t levels);

// Text, characters and coordinates behind each other.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string result;
  const auto add = [&](const auto& part) {
    using Part = std::decay_t<decltype(part)>;
    if constexpr (std::is_arithmetic_v<Part> && !std::is_same_v<Part, char>)
      result += coordinate(double(part));
    else
      result += part;
  };
  (add(parts), ...);
  return result;
}

// Collects elements; every coordinate is in the units of the view box.
struct Canvas {
  std::string out;

  void path(const std::string& d, const std::string& kind) {
    if (!d.empty()) out += cat("<path class=\"", kind, "\" d=\"", d, "\"/>");
  }
  void line(double x1, double y1, double x2, double y2, const char* kind) {
    path(cat('M', x1, ' ', y1, 'L', x2, ' ', y2), kind);
  }
  void rect(double x, double y, double w, double h, const std::string& kind) {
    out += cat("<rect class=\"", kind, "\" x=\"", x, "\" y=\"", y, "\" width=\"", w, "\" height=\"", h, "\"/>");
  }
  // anchor: start, middle, end.
  void text(double x, double y, const std::string& text, const char* anchor = "start", const std::string& kind = "") {
    if (text.empty()) return;
    out += cat("<text x=\"", x, "\" y=\"", y, '"');
    if (anchor[0] != 's') out += cat(" text-anchor=\"", anchor, '"');
    if (!kind.empty()) out += cat(" class=\"", kind, '"');
    out += cat('>', escape(text), "</text>");
  }
  // The picture. At least `minimum` pixels wide, whatever the container; at most `stretch` times its own size.
  std::string finish(double w, double h, const std::string& title, const std::string& description, double minimum = 0,
                     double stretch = 1.25) const;
};

}  // namespace cairn::svg

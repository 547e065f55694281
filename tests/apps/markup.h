#pragma once
// A small check of XML: tags balance, attributes are quoted, text and attributes are escaped, there is one root.
#include <cstddef>
#include <string>
#include <vector>

namespace cairn {

// What is wrong with it, or nothing.
inline std::string markup_error(const std::string& text) {
  std::vector<std::string> open;
  bool root = false;
  const auto escaped = [](const std::string& part) {
    for (size_t at = part.find('&'); at != std::string::npos; at = part.find('&', at + 1)) {
      bool known = false;
      for (const char* entity : {"&amp;", "&lt;", "&gt;", "&quot;"})
        known |= part.compare(at, std::string(entity).size(), entity) == 0;
      if (!known) return false;
    }
    return part.find('<') == std::string::npos;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t tag = text.find('<', at);
    const std::string between = text.substr(at, tag - at);
    if (!escaped(between)) return "text is not escaped: " + between;
    if (open.empty() && between.find_first_not_of(" \n") != std::string::npos)
      return "text outside the root: " + between;
    if (tag == std::string::npos) break;
    const size_t end = text.find('>', tag);
    if (end == std::string::npos) return "a tag does not end";
    std::string inside = text.substr(tag + 1, end - tag - 1);
    at = end + 1;
    const bool closes = inside[0] == '/', closed = inside.back() == '/';
    if (closes) {
      if (open.empty() || open.back() != inside.substr(1)) return "unexpected <" + inside + ">";
      open.pop_back();
      continue;
    }
    if (closed) inside.pop_back();
    if (open.empty() && root) return "a second root: <" + inside + ">";
    root = true;
    const size_t name = inside.find(' ');
    for (size_t i = name; i < inside.size();) {
      const size_t first = inside.find_first_not_of(" \n", i), equals = inside.find('=', i);
      if (first == std::string::npos) break;
      if (equals == std::string::npos || inside[equals + 1] != '"')
        return "an attribute without quotes: <" + inside + ">";
      const size_t last = inside.find('"', equals + 2);
      if (last == std::string::npos || !escaped(inside.substr(equals + 2, last - equals - 2)))
        return "an attribute is not escaped: <" + inside + ">";
      i = last + 1;
    }
    if (!closed) open.push_back(inside.substr(0, name));
  }
  if (!open.empty()) return "<" + open.back() + "> is not closed";
  return root ? "" : "nothing";
}

}  // namespace cairn

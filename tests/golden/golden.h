#pragma once
// Reads the files that tests/golden/make_golden.py writes; the format is described there.
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace cairn {

class Golden {
 public:
  // `file` in tests/golden. Error (DataError): missing or malformed, with the line.
  explicit Golden(const std::string& file) : path_(std::string(CAIRN_SOURCE_DIR "/tests/golden/") + file) {
    std::ifstream in(path_);
    check<DataError>(in.is_open(), path_, ": cannot be read");
    std::string line, name;
    for (int number = 1; std::getline(in, line); ++number) {
      if (line.empty() || line[0] == '#') continue;
      const size_t colon = line.find(':');
      std::istringstream words(colon == std::string::npos ? line : line.substr(colon + 1));
      if (colon != std::string::npos) {
        expect_complete(name);
        name = line.substr(0, colon);
        Entry& added = entries_[name];
        for (int64_t size; words >> size;) added.shape.push_back(size);
      } else {
        check<DataError>(!name.empty(), path_, ", line ", number, ": numbers without a name");
        for (double value; words >> value;) entries_[name].values.push_back(value);
      }
      check<DataError>(words.eof(), path_, ", line ", number, ": expected numbers");
    }
    expect_complete(name);
  }

  bool has(const std::string& name) const { return entries_.count(name) > 0; }
  // Error (DataError): no such entry.
  const std::vector<double>& values(const std::string& name) const { return entry(name).values; }
  const Shape& shape(const std::string& name) const { return entry(name).shape; }
  Tensor tensor(const std::string& name, DType dtype = DType::float32) const {
    return Tensor::from(values(name), shape(name)).cast(dtype);
  }
  // What stands before the first / of names that end with /`part`: the cases that have it.
  std::vector<std::string> cases_with(const std::string& part) const {
    std::vector<std::string> cases;
    for (const auto& [name, entry] : entries_) {
      const size_t slash = name.find('/');
      if (slash != std::string::npos && name.substr(slash + 1) == part) cases.push_back(name.substr(0, slash));
    }
    return cases;
  }

 private:
  struct Entry {
    Shape shape;
    std::vector<double> values;
  };

  const Entry& entry(const std::string& name) const {
    const auto found = entries_.find(name);
    check<DataError>(found != entries_.end(), path_, ": no entry '", name, "'");
    return found->second;
  }
  void expect_complete(const std::string& name) const {
    if (name.empty()) return;
    const Entry& last = entry(name);
    check<DataError>(int64_t(last.values.size()) == last.shape.elements(), path_, ": ", name, " of shape ", last.shape,
                     " has ", last.values.size(), " numbers");
  }

  std::string path_;
  std::map<std::string, Entry> entries_;
};

}  // namespace cairn

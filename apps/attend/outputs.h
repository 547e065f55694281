#pragma once
// What `attend` is asked for, and how it tells and writes what it found.
#include <cmath>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "apps/attend/run.h"

namespace cairn::attend {

// What the user asked for; empty: not that.
struct Request {
  RunOptions run{{}, 1, false, 0};
  std::string in, out, picture;                  // files
  std::filesystem::path out_path, picture_path;  // where out and picture are written, behind symbolic links
  std::string compare;                           // the variant to tell the distance to
  bool quiet = false;
};

struct Result {
  std::string spec, problem;  // why it did not run
  Outcome outcome;
  Distance distance{NAN, NAN};
};

// What a run gives, as a file.
TensorFile output_file(const std::string& spec, const Inputs& inputs, const Outcome& outcome);

// The results as JSON, and as a table.
nlohmann::ordered_json results_json(const Request& request, const Inputs& inputs, const std::vector<Result>& results);
std::string results_text(const Request& request, const std::vector<Result>& results);

}  // namespace cairn::attend

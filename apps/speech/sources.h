#pragma once
// Recordings with their phones, before they are prepared.
#include <filesystem>
#include <string>
#include <vector>

namespace cairn::speech {

struct Source {
  std::string name;  // unique
  std::filesystem::path audio;
  std::vector<std::string> phones;
  std::vector<double> ends;  // of the phones, in seconds; empty: unknown
  std::string part;          // train, dev or test
};

// The pause of the alignments. It is no phone of a target.
inline constexpr const char* pause = "pau";

// A Festival voice: the labels are in lab/NAME.lab, the recordings in wav/NAME.wav. Error (DataError): a file is
// missing or damaged, with its line.
std::vector<Source> read_festvox(const std::filesystem::path& folder);
// A file with a JSON object in each line: {"audio": "a.wav", "labels": ["k", "a"]}, and optionally "part". The path is
// relative to the file. Error (DataError): a line has another form.
std::vector<Source> read_manifest(const std::filesystem::path& file);

}  // namespace cairn::speech

#include "apps/speech/sources.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "apps/speech/corpus.h"
#include "core/error.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn::speech {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Sorts by name, and divides: every tenth to test, every tenth to dev, the rest to train, where no part is given. Error
// (DataError): a name appears twice.
std::vector<Source> divided(std::vector<Source> sources, const fs::path& from) {
  std::sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return a.name < b.name; });
  for (size_t i = 1; i < sources.size(); ++i)
    check<DataError>(sources[i].name != sources[i - 1].name, from, ": ", in_quotes(sources[i].name), " appears twice");
  for (size_t i = 0; i < sources.size(); ++i)
    if (sources[i].part.empty()) sources[i].part = i % 10 == 9 ? "test" : i % 10 == 4 ? "dev" : "train";
  return sources;
}

// A file of labels: after a line "#", each line has the end of a phone in seconds, a color, and the phone.
void read_lab(const fs::path& file, Source& source) {
  std::istringstream text(read_file(file));
  std::string line, color, phone;
  bool begun = false;
  for (int number = 1; std::getline(text, line); ++number) {
    if (!begun) {
      begun = line == "#";
      continue;
    }
    std::istringstream words(line);
    double end = 0;
    check<DataError>(bool(words >> end >> color >> phone), file, ": line ", number,
                     ": expected the end of a phone in seconds, a color and the phone, got ", in_quotes(line));
    source.phones.push_back(phone);
    source.ends.push_back(end);
  }
  check<DataError>(begun, file, ": no line \"#\", after which the labels of a Festival voice begin");
}

Source source_of(const Json& line, const fs::path& folder, const std::string& where) try {
  const std::string audio = line.at("audio");
  Source source{audio, folder / audio, line.at("labels"), {}, line.value("part", "")};
  for (const std::string& phone : source.phones) check_phone(phone, where);
  check<DataError>(source.part.empty() || source.part == "train" || source.part == "dev" || source.part == "test",
                   where, ": \"part\": expected train, dev or test, got ", in_quotes(source.part));
  return source;
} catch (const Json::exception&) {
  throw DataError(concat(where, R"(: expected an object like {"audio": "a.wav", "labels": ["k", "a"]})"));
}

}  // namespace

std::vector<Source> read_festvox(const fs::path& folder) {
  std::vector<Source> sources;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "lab", error)) {
    if (entry.path().extension() != ".lab") continue;
    const std::string name = entry.path().stem();
    sources.push_back({name, folder / "wav" / (name + ".wav"), {}, {}, ""});
    read_lab(entry.path(), sources.back());
  }
  check<DataError>(!error && !sources.empty(), "--festvox ", folder,
                   ": no Festival voice: there are no files in lab/; apps/speech/corpus.sh fetches one");
  return divided(std::move(sources), folder);
}

std::vector<Source> read_manifest(const fs::path& file) {
  std::vector<Source> sources;
  std::istringstream text(read_file(file));
  std::string line;
  for (size_t number = 1; std::getline(text, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    // With the lines before it, so that an error names the right line.
    const Json json = parse_json(std::string(number - 1, '\n') + line, file);
    sources.push_back(source_of(json, file.parent_path(), concat(file, ": line ", number)));
  }
  check<DataError>(!sources.empty(), file, ": no recordings");
  return divided(std::move(sources), file);
}

}  // namespace cairn::speech

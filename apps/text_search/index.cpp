#include "apps/text_search/index.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>
#include <utility>

#include "apps/common/run_folder.h"
#include "apps/text_search/rows.h"
#include "apps/text_search/walk.h"
#include "core/error.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* passages_name = "passages.jsonl";
constexpr const char* embeddings_name = "embeddings.safetensors";
constexpr const char* unfinished_ending = ".new";
constexpr std::string_view format_name = "cairn text index ", format_version = "1";
constexpr uint64_t max_header_bytes = uint64_t{1} << 20, block_bytes = uint64_t{1} << 16;
constexpr const char* advice = "; index again with --rebuild";

fs::path file_in(const fs::path& folder, const char* name, const std::string& ending = "") {
  return folder / (name + ending);
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  check(!error, path, ": cannot be removed: ", error);
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

IndexHeader read_index_header(const FileReader& file, const std::string& where, bool unfinished = false) {
  std::string beginning(std::min(file.size(), sizeof(uint64_t) + max_header_bytes), '\0');
  file.read_at(0, beginning.data(), beginning.size());
  return parse_index_header(beginning, file.size(), where, unfinished);
}

// The lines of a text that comes in blocks: hands out where each ends, and the hash of all.
struct LinesRead {
  std::vector<uint64_t> ends;
  std::string hash;
};
LinesRead read_lines(FileReader& file, bool ends) {
  LinesRead lines;
  Xxh128 hash;
  std::string block(std::min(file.size(), block_bytes), '\0');
  for (uint64_t done = 0; done < file.size(); done += block.size()) {
    block.resize(std::min(file.size() - done, block_bytes));
    file.read(block.data(), block.size());
    hash.add(block.data(), block.size());
    for (size_t at = 0; ends && (at = block.find('\n', at)) != std::string::npos;) lines.ends.push_back(done + ++at);
  }
  lines.hash = hash.text();
  return lines;
}

std::string hash_of(const fs::path& passages) {
  FileReader file(passages);
  return read_lines(file, false).hash;
}

bool is_count(const Json& value) { return value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t(INT64_MAX); }

// The order of records in an index.
bool comes_before(const Record& a, const Record& b) {
  return path_less(a.path, b.path) || (a.path == b.path && a.passage < b.passage);
}

void check_row(const float* row, int64_t features, int64_t i, const std::string& where) {
  check<DataError>(has_unit_length(row, features), where, ": damaged: row ", i + 1, " has not the length 1", advice);
}

// Renames the new embeddings if the passages `to` are those that they were written with.
void finish_renaming(const fs::path& folder, const std::string& from, const std::string& to) {
  const fs::path embeddings = file_in(folder, embeddings_name, from), passages = file_in(folder, passages_name, to);
  if (is_there(file_in(folder, passages_name, from)) || !is_there(embeddings) || !is_there(passages)) return;
  bool belongs = false;
  try {
    belongs = read_index_header(FileReader(embeddings), embeddings.string()).passages_hash == hash_of(passages);
  } catch (const DataError&) {
  }
  if (!belongs) return;
  rename_file(embeddings, file_in(folder, embeddings_name, to));
}

}  // namespace

bool has_unit_length(const float* row, int64_t features) {
  double square = 0;
  for (int64_t i = 0; i < features; ++i) square += double(row[i]) * double(row[i]);
  return std::abs(square - 1) < 1e-2;
}

bool IndexSettings::agrees_with(const IndexSettings& other) const {
  const auto all = [](const IndexSettings& s) {
    return std::tie(s.fingerprint, s.attention, s.seed, s.passage_tokens, s.features);
  };
  return all(*this) == all(other);
}

std::string header_text(const IndexHeader& header) {
  const IndexSettings& settings = header.settings;
  const std::string complete = header.complete ? "yes" : "no";
  return rows_header({{"format", concat(format_name, format_version)},
                      {"fingerprint", settings.fingerprint},
                      {"model", settings.model},
                      {"attention", settings.attention},
                      {"seed", std::to_string(settings.seed)},
                      {"passage_tokens", std::to_string(settings.passage_tokens)},
                      {"paths", dump(settings.paths)},
                      {"exclude", dump(settings.exclude)},
                      {"complete", complete},
                      {"passages_xxh128", header.passages_hash}},
                     header.rows, settings.features, 3 + 32 - complete.size() - header.passages_hash.size());
}

IndexHeader parse_index_header(std::string_view beginning, uint64_t file_bytes, const std::string& where,
                               bool unfinished) {
  const auto expect = [&](bool condition, const auto&... message) {
    check<DataError>(condition, where, ": ", message...);
  };
  uint64_t size = 0;
  expect(beginning.size() >= sizeof(size), "not an index: ", beginning.size(), " bytes");
  std::memcpy(&size, beginning.data(), sizeof(size));
  beginning.remove_prefix(sizeof(size));
  expect(size <= max_header_bytes, "not an index: a header of ", size, " bytes, expected at most ", max_header_bytes);
  expect(size <= beginning.size(), "cut off: expected a header of ", size, " bytes, got ", beginning.size());
  const Json json = parse_json(beginning.substr(0, size), where + ": header");
  expect(json.is_object() && json.size() == 2 && json.contains("__metadata__") && json.contains("embeddings"),
         "not an index: expected one tensor, embeddings, and metadata");
  const Json &metadata = json["__metadata__"], &tensor = json["embeddings"];
  const auto text = [&](const char* key) {
    expect(metadata.is_object() && metadata.contains(key) && metadata[key].is_string(), "not an index: no text \"", key,
           "\" in its metadata");
    return metadata[key].get<std::string>();
  };
  const auto number = [&](const char* key) {
    const std::string digits = text(key);
    int64_t value = -1;
    const char* end = digits.data() + digits.size();
    expect(std::from_chars(digits.data(), end, value).ptr == end && value >= 0, key, ": expected a number, got ",
           in_quotes(digits));
    return value;
  };
  const auto list = [&](const char* key) {
    if (!metadata.contains(key)) return std::vector<std::string>();  // of an older version
    const Json texts = parse_json(text(key), concat(where, ": ", key));
    expect(
        texts.is_array() && std::all_of(texts.begin(), texts.end(), [](const Json& each) { return each.is_string(); }),
        key, ": expected an array of strings");
    return texts.get<std::vector<std::string>>();
  };
  const std::string format = text("format");
  expect(format.starts_with(format_name), "not an index: format ", in_quotes(format));
  expect(format.substr(format_name.size()) == format_version, "made by another version: format ", in_quotes(format),
         ", expected \"", format_name, format_version, '"', advice);
  IndexHeader header;
  IndexSettings& settings = header.settings;
  settings.fingerprint = text("fingerprint");
  settings.model = text("model");
  settings.attention = text("attention");
  settings.seed = number("seed");
  settings.passage_tokens = number("passage_tokens");
  settings.paths = list("paths"), settings.exclude = list("exclude");
  header.complete = text("complete") == "yes";
  header.passages_hash = text("passages_xxh128");
  header.bytes = sizeof(size) + size;

  const auto is_pair = [&](const char* key) {
    return tensor.contains(key) && tensor[key].is_array() && tensor[key].size() == 2 && is_count(tensor[key][0]) &&
           is_count(tensor[key][1]);
  };
  expect(tensor.is_object() && tensor.contains("dtype") && tensor["dtype"] == "F32" && is_pair("shape") &&
             is_pair("data_offsets"),
         "embeddings: expected F32 of shape [n, features] and data_offsets");
  header.rows = tensor["shape"][0], settings.features = tensor["shape"][1];
  expect(settings.features >= 1 && settings.features <= int64_t{1} << 20, "embeddings: ", settings.features,
         " features, expected 1 to ", int64_t{1} << 20);
  const uint64_t row_bytes = uint64_t(settings.features) * sizeof(float), rows_bytes = file_bytes - header.bytes;
  if (unfinished) {
    header.rows = int64_t(rows_bytes / row_bytes);
    return header;
  }
  uint64_t bytes = 0;
  expect(!__builtin_mul_overflow(uint64_t(header.rows), row_bytes, &bytes) && bytes == rows_bytes &&
             tensor["data_offsets"] == Json({0, bytes}),
         "damaged: ", rows_bytes, " bytes behind the header, expected ", header.rows, " rows of ", settings.features,
         " numbers", advice);
  return header;
}

std::string record_text(const Record& record) {
  return dump({{"path", record.path},
               {"line", record.line},
               {"last_line", record.last_line},
               {"begin", record.begin},
               {"end", record.end},
               {"passage", record.passage},
               {"last", record.last},
               {"file_hash", record.file_hash},
               {"text", record.text}}) +
         "\n";
}

Record parse_record(std::string_view line, const std::string& where) {
  const Json json = parse_json(line, where);
  check<DataError>(json.is_object(), where, ": expected an object, got ", json.type_name());
  const auto member = [&](const char* key) -> const Json& {
    const auto found = json.find(key);
    check<DataError>(found != json.end(), where, ": no ", key);
    return *found;
  };
  const auto text = [&](const char* key) {
    const Json& value = member(key);
    check<DataError>(value.is_string(), where, ": ", key, ": expected a string, got ", value.type_name());
    return value.get<std::string>();
  };
  const auto number = [&](const char* key, int64_t least) {
    const Json& value = member(key);
    check<DataError>(is_count(value) && value.get<int64_t>() >= least, where, ": ", key,
                     ": expected a whole number of at least ", least);
    return value.get<int64_t>();
  };
  Record record;
  record.path = text("path");
  check<DataError>(record.path.starts_with('/') && record.path.find('\0') == std::string::npos, where,
                   ": path: expected an absolute path, got ", in_quotes(record.path));
  record.line = number("line", 1);
  record.last_line = number("last_line", record.line);
  record.begin = number("begin", 0);
  record.end = number("end", record.begin);
  record.passage = number("passage", 0);
  const Json& last = member("last");
  check<DataError>(last.is_boolean(), where, ": last: expected true or false, got ", last.type_name());
  record.last = last.get<bool>();
  record.file_hash = text("file_hash");
  record.text = text("text");
  return record;
}

IndexStream::IndexStream(const fs::path& folder, const std::string& ending, bool unfinished)
    : unfinished_(unfinished),
      where_(file_in(folder, passages_name, ending).string()),
      embeddings_where_(file_in(folder, embeddings_name, ending).string()),
      passages_(where_),
      embeddings_(embeddings_where_),
      passages_left_(passages_.size()),
      header_(read_index_header(embeddings_, embeddings_where_, unfinished)),
      row_(size_t(header_.settings.features)) {
  for (uint64_t left = header_.bytes; left > 0;) {
    char head[4096];
    const size_t part = size_t(std::min<uint64_t>(left, sizeof head));
    embeddings_.read(head, part);
    left -= part;
  }
  advance();
}

// Moves on to the next line; false at the end. An unfinished line is one that does not end.
bool IndexStream::read_line() {
  size_t end;
  while ((end = ahead_.find('\n', ahead_begin_)) == std::string::npos) {
    ahead_.erase(0, std::exchange(ahead_begin_, 0));
    if (passages_left_ == 0 && ahead_.empty()) return false;
    check<DataError>(passages_left_ > 0, where_, ": cut off in record ", number_ + 1, advice);
    check<DataError>(ahead_.size() <= max_record_bytes, where_, ": record ", number_ + 1, " has more than ",
                     max_record_bytes, " bytes");
    const size_t old = ahead_.size(), more = size_t(std::min(passages_left_, block_bytes));
    ahead_.resize(old + more);
    passages_.read(&ahead_[old], more);
    passages_left_ -= more;
  }
  line_.assign(ahead_, ahead_begin_, end + 1 - ahead_begin_);
  ahead_begin_ = end + 1;
  return true;
}

void IndexStream::advance() try {
  std::optional<Record> before = std::move(record_);
  record_.reset();
  const bool more = number_ < header_.rows;
  if (!read_line()) {
    check<DataError>(!more || unfinished_, where_, ": ", number_, " records, expected ", header_.rows, advice);
    return;
  }
  check<DataError>(more, where_, ": more than ", header_.rows, " records", advice);
  Record record =
      parse_record(std::string_view(line_).substr(0, line_.size() - 1), concat(where_, ": record ", number_ + 1));
  check<DataError>(!before || comes_before(*before, record), where_, ": record ", number_ + 1, " is not in its place",
                   advice);
  embeddings_.read(row_.data(), row_.size() * sizeof(float));
  check_row(row_.data(), header_.settings.features, number_, embeddings_where_);
  ++number_;
  record_ = std::move(record);
} catch (const DataError&) {
  if (!unfinished_) throw;
}

IndexWriter::IndexWriter(fs::path folder, const IndexSettings& settings, const std::string& base)
    : folder_(std::move(folder)), ending_(base + unfinished_ending) {
  header_.settings = settings;
  const std::string header = header_text(header_);
  check<UsageError>(header.size() <= max_header_bytes, "the PATHs and --exclude have ", header.size(),
                    " bytes, more than the ", max_header_bytes, " that an index has for them");
  passages_ = std::make_unique<FileWriter>(file_in(folder_, passages_name, ending_));
  embeddings_ = std::make_unique<FileWriter>(file_in(folder_, embeddings_name, ending_));
  embeddings_->write(header.data(), header.size());
}

IndexWriter::IndexWriter(fs::path folder, IndexStream& unfinished, const std::string& base)
    : folder_(std::move(folder)), ending_(base + unfinished_ending) {
  header_.settings = unfinished.header().settings;
  uint64_t bytes = 0;
  for (; unfinished.record(); unfinished.advance()) {
    const std::string& line = unfinished.line();
    hash_.add(line.data(), line.size());
    bytes += line.size();
    last_ = *unfinished.record();
    ++header_.rows;
  }
  passages_ = std::make_unique<FileWriter>(file_in(folder_, passages_name, ending_), bytes);
  embeddings_ = std::make_unique<FileWriter>(
      file_in(folder_, embeddings_name, ending_),
      unfinished.header().bytes + uint64_t(header_.rows * header_.settings.features) * sizeof(float));
}

void IndexWriter::append(const Record& record, const std::string& line, const std::vector<float>& row) {
  last_ = record;
  last_.text.clear();
  files_ += record.last;
  hash_.add(line.data(), line.size());
  passages_->write(line.data(), line.size());
  embeddings_->write(row.data(), row.size() * sizeof(float));
  ++header_.rows;
}

void IndexWriter::sync() {
  passages_->sync();
  embeddings_->sync();
}

void IndexWriter::finish(bool complete, const std::string& to) {
  header_.complete = complete;
  header_.passages_hash = hash_.text();
  embeddings_->overwrite(0, header_text(header_));
  sync();
  passages_.reset(), embeddings_.reset();
  // Two files are not renamed in one step. If it ends between the two, the hash says that the new embeddings are those
  // of the passages.
  for (const char* name : {passages_name, embeddings_name})
    rename_file(file_in(folder_, name, ending_), file_in(folder_, name, to));
}

void check_out(const fs::path& out) {
  std::error_code error;
  if (!fs::is_directory(out, error)) return;  // make_out_folder says what else is wrong
  for (fs::directory_iterator entry(out, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    bool ours = name == FolderLock::file_name;
    for (const char* each : {passages_name, embeddings_name})
      for (const std::string base : {"", rebuild_ending})
        ours |= name == each + base || name == each + base + unfinished_ending;
    check<UsageError>(ours, "--out ", out, ": holds ", in_quotes(name),
                      ", which is not part of an index; choose another folder");
  }
}

std::optional<IndexHeader> find_index(const fs::path& folder) {
  const fs::path passages = file_in(folder, passages_name), embeddings = file_in(folder, embeddings_name);
  const bool has_passages = is_there(passages), has_embeddings = is_there(embeddings);
  if (!has_passages && !has_embeddings) return {};
  check<DataError>(has_embeddings, embeddings, ": is missing, and ", passages_name, " is there", advice);
  check<DataError>(has_passages, passages, ": is missing, and ", embeddings_name, " is there", advice);
  return read_index_header(FileReader(embeddings), embeddings.string());
}

void check_passages(const fs::path& folder, const IndexHeader& header) {
  check<DataError>(hash_of(file_in(folder, passages_name)) == header.passages_hash, file_in(folder, passages_name),
                   ": damaged: not the file that ", embeddings_name, " was written with", advice);
}

std::optional<IndexHeader> find_unfinished(const fs::path& folder, const std::string& ending) try {
  if (!is_there(file_in(folder, passages_name, ending)) || !is_there(file_in(folder, embeddings_name, ending)))
    return {};
  const IndexStream stream(folder, ending, true);
  if (!stream.record()) return {};
  return stream.header();
} catch (const DataError&) {
  return {};
}

bool is_index(const fs::path& folder) {
  return is_there(file_in(folder, passages_name)) && is_there(file_in(folder, embeddings_name));
}

void remove_index(const fs::path& folder, const std::string& ending) {
  for (const char* name : {passages_name, embeddings_name}) remove_file(file_in(folder, name, ending));
}

void finish_renaming(const fs::path& folder) {
  const std::string rebuilt = std::string(rebuild_ending) + unfinished_ending;
  finish_renaming(folder, unfinished_ending, "");
  finish_renaming(folder, rebuilt, "");
  finish_renaming(folder, rebuilt, rebuild_ending);
}

void append_rest(IndexWriter& writer, IndexStream& old) {
  const Record last = writer.last();
  const auto is_done = [&](const Record& record) {
    return !comes_before(last, record) || (record.path == last.path && record.file_hash != last.file_hash);
  };
  if (!last.path.empty())
    while (old.record() && is_done(*old.record())) old.advance();
  for (; old.record(); old.advance()) writer.append(*old.record(), old.line(), old.row());
}

bool recover_index(const fs::path& folder, const IndexSettings& settings, bool has_old, const std::string& base) {
  const std::string ending = base + unfinished_ending;
  const auto header = find_unfinished(folder, ending);
  // The header is written again in its place.
  if (!header || !header->settings.agrees_with(settings) || header_text(*header).size() != header->bytes) {
    remove_index(folder, ending);
    return false;
  }
  std::optional<IndexStream> unfinished(std::in_place, folder, ending, true);
  IndexWriter writer(folder, *unfinished, base);
  unfinished.reset();
  if (has_old) {
    IndexStream old(folder, base, !base.empty());
    append_rest(writer, old);
  }
  writer.finish(false, base);
  return true;
}

Index::Index(const fs::path& folder) : where_(file_in(folder, passages_name).string()) {
  const fs::path embeddings = file_in(folder, embeddings_name);
  check<DataError>(is_there(where_) || is_there(embeddings), "--index ", folder,
                   is_there(file_in(folder, embeddings_name, unfinished_ending)) ||
                           is_there(file_in(folder, embeddings_name, rebuild_ending)) ||
                           is_there(file_in(folder, embeddings_name, std::string(rebuild_ending) + unfinished_ending))
                       ? ": is not finished; run text-search index again"
                       : ": there is no index; text-search index makes one");
  // Whoever is writing an index renames one file after the other.
  for (int attempt = 0; attempt < 3; ++attempt) {
    passages_ = std::make_unique<FileReader>(where_);
    LinesRead lines = read_lines(*passages_, true);
    for (const std::string& ending :
         {std::string(), std::string(unfinished_ending), std::string(rebuild_ending) + unfinished_ending}) {
      const fs::path path = file_in(folder, embeddings_name, ending);
      if (!is_there(path)) continue;
      try {
        embeddings_ = std::make_unique<FileReader>(path);
        header_ = read_index_header(*embeddings_, path.string());
      } catch (const DataError&) {
        if (ending.empty()) throw;
        continue;
      }
      if (header_.passages_hash != lines.hash) continue;
      embeddings_where_ = path.string();
      check<DataError>(int64_t(lines.ends.size()) == header_.rows, where_, ": ", lines.ends.size(),
                       " records, expected ", header_.rows, advice);
      ends_ = std::move(lines.ends);
      return;
    }
  }
  throw DataError(concat(where_, ": damaged: not the file that ", embeddings_name, " was written with", advice));
}

Record Index::record(int64_t i) const {
  const uint64_t begin = i == 0 ? 0 : ends_[size_t(i) - 1], end = ends_[size_t(i)];
  const std::string where = concat(where_, ": record ", i + 1);
  check<DataError>(end - begin <= max_record_bytes, where, " has more than ", max_record_bytes, " bytes");
  std::string line(end - begin - 1, '\0');
  passages_->read_at(begin, line.data(), line.size());
  return parse_record(line, where);
}

void Index::read_rows(int64_t first, int64_t count, float* rows) const {
  const uint64_t row_bytes = uint64_t(header_.settings.features) * sizeof(float);
  embeddings_->read_at(header_.bytes + uint64_t(first) * row_bytes, rows, uint64_t(count) * row_bytes);
  for (int64_t i = 0; i < count; ++i)
    check_row(rows + i * header_.settings.features, header_.settings.features, first + i, embeddings_where_);
}

}  // namespace cairn::text_search

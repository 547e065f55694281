#pragma once
// An index on disk: a folder with embeddings.safetensors (tensor `embeddings`, float32 [n, features], rows of unit
// length) and passages.jsonl (one JSON object a line, of the passage that the row of that number belongs to). Records
// stand in path_less order, those of a file in its order.
//
// A new index is written beside the old one, as files that end in ".new". Stopped in the middle they are a beginning of
// an index, which recover_index() completes with what the old one has. A run that rebuilds does not touch the old index
// until it is complete: stopped, it leaves its beginning as files that end in ".rebuild", and it writes
// ".rebuild.new".
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/io/file.h"
#include "nn/io/hash.h"

namespace cairn::text_search {

// What the embeddings depend on besides the texts, and how the model is opened again.
struct IndexSettings {
  std::string fingerprint;  // of the model's weights and vocabulary
  std::string model;        // its folder
  std::string attention;
  int64_t seed = 1, passage_tokens = 256, features = 0;
  // What it is of: files and folders, canonical, and the globs that are left out. Embeddings do not depend on them.
  std::vector<std::string> paths{}, exclude{};

  // Do equal texts have equal passages and embeddings?
  bool agrees_with(const IndexSettings& other) const;
};

// What embeddings.safetensors begins with. The header has room for any number of rows, so it can be written first.
struct IndexHeader {
  IndexSettings settings;
  int64_t rows = 0;
  bool complete = false;      // was not stopped before all files were embedded
  std::string passages_hash;  // xxh128 of passages.jsonl; empty while the index is being written
  uint64_t bytes = 0;         // of the header: where the rows begin
};
std::string header_text(const IndexHeader& header);
// Reads it from the beginning of a file of `file_bytes` bytes; `where` begins every message. With `unfinished`, the
// rows are as many as there are whole ones. Errors (DataError): not an index, damaged, of another version.
IndexHeader parse_index_header(std::string_view beginning, uint64_t file_bytes, const std::string& where,
                               bool unfinished = false);

// Is a row finite and of unit length?
bool has_unit_length(const float* row, int64_t features);

// A line of passages.jsonl.
struct Record {
  std::string path;                 // absolute
  int64_t line = 1, last_line = 1;  // of the file, from 1
  int64_t begin = 0, end = 0;       // its bytes in the file
  int64_t passage = 0;              // its number in the file, from 0
  bool last = false;                // of the file
  std::string file_hash, text;      // xxh128 of the file's bytes; the passage, what is not UTF-8 replaced
};
std::string record_text(const Record& record);  // with the line's end
// Error (DataError): it is none.
Record parse_record(std::string_view line, const std::string& where);
// No line is longer.
inline constexpr size_t max_record_bytes = size_t{1} << 20;

// An index's lines and rows, one after another. Errors (DataError): damage; unless `unfinished`, whose end it is.
class IndexStream {
 public:
  // ending: of the files' names; "" for the index.
  IndexStream(const std::filesystem::path& folder, const std::string& ending, bool unfinished = false);

  const IndexHeader& header() const { return header_; }
  // The record that the stream has come to; null at the end.
  const Record* record() const { return record_ ? &*record_ : nullptr; }
  const std::string& line() const { return line_; }  // as it stands in the file, with its end
  const std::vector<float>& row() const { return row_; }
  void advance();

 private:
  bool read_line();

  bool unfinished_;
  std::string where_, embeddings_where_;
  FileReader passages_, embeddings_;
  uint64_t passages_left_;
  std::string ahead_;
  size_t ahead_begin_ = 0;
  IndexHeader header_;
  int64_t number_ = 0;  // of the record
  std::string line_;
  std::vector<float> row_;
  std::optional<Record> record_;
};

// What a run that rebuilds has instead of an old index.
inline constexpr const char* rebuild_ending = ".rebuild";

// Writes a new index as files that end in `base`.new. Errors (Error): it cannot be written; the old index is as it was.
class IndexWriter {
 public:
  IndexWriter(std::filesystem::path folder, const IndexSettings& settings, const std::string& base = "");
  // Goes on behind the records of an unfinished index, which it reads to their end.
  IndexWriter(std::filesystem::path folder, IndexStream& unfinished, const std::string& base = "");

  // Behind all that come before it in an index. `line` is record_text(record).
  void append(const Record& record, const std::string& line, const std::vector<float>& row);
  // What was appended is on the disk.
  void sync();
  // Puts the new index into the place of the one whose files end in `to`.
  void finish(bool complete, const std::string& to = "");

  int64_t rows() const { return header_.rows; }
  int64_t files() const { return files_; }      // whose last passage was appended
  const Record& last() const { return last_; }  // no path: there is none

 private:
  std::filesystem::path folder_;
  std::string ending_;
  IndexHeader header_;
  Xxh128 hash_;
  Record last_;  // without its text
  int64_t files_ = 0;
  std::unique_ptr<FileWriter> passages_, embeddings_;
};

// Error (UsageError): --out is neither an index, an empty folder nor a name for a new one.
void check_out(const std::filesystem::path& out);
// The header of the index in the folder; none where there is no index. Errors (DataError): as parse_index_header; files
// of an index alone.
std::optional<IndexHeader> find_index(const std::filesystem::path& folder);
// The header of what a killed run (`base`.new) or a stopped one that rebuilds (".rebuild") left; none where there is
// nothing of use.
std::optional<IndexHeader> find_unfinished(const std::filesystem::path& folder, const std::string& ending);
// Does the folder hold the two files of an index?
bool is_index(const std::filesystem::path& folder);
// Removes the two files of an index that end so.
void remove_index(const std::filesystem::path& folder, const std::string& ending);
// Error (DataError): passages.jsonl is not the file that embeddings.safetensors was written with.
void check_passages(const std::filesystem::path& folder, const IndexHeader& header);
// Puts a new index into its place if the run that wrote it was killed while it did so.
void finish_renaming(const std::filesystem::path& folder);
// Completes the unfinished index that a killed run left with what the old one (its files end in `base`), if there is
// one, has behind it, and puts it into its place. Returns false if there was none; one with other settings is removed.
bool recover_index(const std::filesystem::path& folder, const IndexSettings& settings, bool has_old,
                   const std::string& base = "");
// Appends what an index has behind the writer's last record. Of the last record's file, passages are copied only if the
// file's hash has not changed.
void append_rest(IndexWriter& writer, IndexStream& old);

// An index to look passages up in.
class Index {
 public:
  // Errors (DataError): there is none, damage.
  explicit Index(const std::filesystem::path& folder);

  const IndexHeader& header() const { return header_; }
  int64_t size() const { return header_.rows; }
  Record record(int64_t i) const;
  // Rows first .. first + count: [count, features]. Error (DataError): one is damaged.
  void read_rows(int64_t first, int64_t count, float* rows) const;

 private:
  std::string where_, embeddings_where_;
  std::unique_ptr<FileReader> passages_, embeddings_;
  IndexHeader header_;
  std::vector<uint64_t> ends_;  // of the lines, in bytes
};

}  // namespace cairn::text_search

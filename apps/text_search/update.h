#pragma once
// Brings an index up to date with the files that it is of.
#include <filesystem>
#include <functional>
#include <vector>

#include "apps/text_search/index.h"
#include "apps/text_search/passages.h"
#include "apps/text_search/walk.h"
#include "core/tensor.h"

namespace cairn::text_search {

// What indexing needs of a model.
struct IndexModel {
  IndexSettings settings;
  Tokenize tokenize;
  int32_t cls = 0, sep = 0;
  int64_t batch = 32;
  // Embeddings float32 [n, features] of n <= batch sequences of like length, with [CLS] and [SEP].
  std::function<Tensor(const std::vector<std::vector<int32_t>>& sequences)> embed;
};

// What has been done so far; in the end also what the index has.
struct IndexCounts {
  int64_t files = 0, passages = 0;         // of the index; files whose last passage it has
  int64_t unchanged = 0, removed = 0;      // files
  int64_t embedded = 0, tokens = 0;        // passages, and their tokens
  int64_t bytes = 0, unchanged_bytes = 0;  // of files; of those that needed no model
  bool interrupted = false;
  SkippedCounts skipped{};
};

struct UpdateOptions {
  std::filesystem::path out;
  WalkOptions walk;
  // An index that is damaged, of another model or of other roots is no error; none of its rows is used.
  bool rebuild = false;
  std::function<bool()> stop;                        // looked at after each batch and file
  std::function<void(const IndexCounts&)> progress;  // called after each batch and file
};

// Makes the index `out`, or brings it up to date: passages of files that it has are copied, others are embedded, files
// that are gone leave it, and files that cannot be read, or are in folders that cannot, keep their old passages.
// Stopped, it keeps what was embedded, and what the old index had of files that were not reached; with `rebuild`, the
// old index stays as it is, and the next call that rebuilds goes on. Memory: some batches, one file. Errors:
// UsageError: another run is writing there; the folder is something else; the index has other settings or roots; a root
// is in it. DataError: it is damaged. Error: it cannot be written, then the old index is as it was, and the next call
// goes on with what was embedded.
IndexCounts update_index(const UpdateOptions& options, const IndexModel& model);

}  // namespace cairn::text_search

#include "apps/text_search/update.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "apps/common/program.h"
#include "apps/common/run_folder.h"
#include "core/error.h"
#include "core/storage.h"
#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

struct Stopped {};

// Passages in the order of the index, some of which are still to be embedded: enough of them to make batches of like
// length.
class Window {
 public:
  Window(const UpdateOptions& options, const IndexModel& model, IndexWriter& writer, IndexCounts& counts)
      : options_(options), model_(model), writer_(writer), counts_(counts) {}

  void copy(const IndexStream& old) {
    add({*old.record(), old.line(), {}, old.row(), 0});
    if (int64_t(items_.size()) - waiting_ >= max_copied) flush();
  }
  // `bytes` of the file are done once it is embedded.
  void embed(const Record& record, std::vector<int32_t> tokens, int64_t bytes) {
    tokens.insert(tokens.begin(), model_.cls);
    tokens.push_back(model_.sep);
    add({record, record_text(record), std::move(tokens), {}, bytes});
    if (++waiting_ >= batches * model_.batch) flush();
  }

  // Embeds what waits and appends all to the index. Stopped, it appends what has an embedding.
  void flush() {
    const bool stopped = embed_waiting();
    for (const Item& item : items_)
      if (!item.row.empty()) writer_.append(item.record, item.line, item.row);
    if (waiting_ > 0) writer_.sync();
    items_.clear();
    waiting_ = 0;
    if (stopped) throw Stopped();
  }

 private:
  struct Item {
    Record record;  // without its text, which is in the line
    std::string line;
    std::vector<int32_t> tokens;
    std::vector<float> row;  // empty until it is embedded
    int64_t bytes;
  };
  // A killed run loses a window at most. 4 batches have 4% of padding in texts of this project, 1 has 9%, 16 have 2%.
  static constexpr int64_t batches = 4, max_copied = 2048;

  void add(Item item) {
    item.record.text = {};
    items_.push_back(std::move(item));
  }

  // Returns true if it was stopped.
  bool embed_waiting() {
    std::vector<Item*> order;
    for (Item& item : items_)
      if (item.row.empty()) order.push_back(&item);
    std::stable_sort(order.begin(), order.end(),
                     [](const Item* a, const Item* b) { return a->tokens.size() > b->tokens.size(); });
    for (size_t begin = 0, end; begin < order.size(); begin = end) {
      if (options_.stop && options_.stop()) return true;
      end = std::min(begin + size_t(model_.batch), order.size());
      std::vector<std::vector<int32_t>> sequences;
      for (size_t i = begin; i < end; ++i) sequences.push_back(order[i]->tokens);
      const Tensor rows = model_.embed(sequences);
      const float* row = rows.data<float>();
      for (size_t i = begin; i < end; ++i, row += model_.settings.features) {
        check<DataError>(has_unit_length(row, model_.settings.features), order[i]->record.path, ": line ",
                         order[i]->record.line, ": the model's embedding has not the length 1; is the model damaged?");
        order[i]->row.assign(row, row + model_.settings.features);
        counts_.tokens += int64_t(order[i]->tokens.size());
        counts_.bytes += order[i]->bytes;
        ++counts_.embedded;
      }
      if (options_.progress) options_.progress(counts_);
    }
    return false;
  }

  const UpdateOptions& options_;
  const IndexModel& model_;
  IndexWriter& writer_;
  IndexCounts& counts_;
  std::vector<Item> items_;
  int64_t waiting_ = 0;
};

// The bytes that a file has when it is opened; a log may grow meanwhile. Error (DataError): it cannot be read.
std::string read_beginning(const std::string& path) {
  const FileReader file(path);
  check<OutOfMemory>(file.size() <= available_memory(Device::cpu), path, ": out of memory: the file has ", file.size(),
                     " bytes, and ", available_memory(Device::cpu), " are there for this process");
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

class Update {
 public:
  Update(const UpdateOptions& options, const IndexModel& model, IndexStream* old, IndexWriter& writer,
         IndexCounts& counts)
      : options_(options), model_(model), old_(old), counts_(counts), window_(options, model, writer, counts) {}

  void run() {
    const auto found = [this](const FoundFile& file) {
      const int64_t embedded = visit(file);
      counts_.bytes += file.bytes - embedded;
      counts_.unchanged_bytes += file.bytes - embedded;
      if (options_.progress) options_.progress(counts_);
      if (!options_.stop || !options_.stop()) return;
      window_.flush();
      throw Stopped();
    };
    walk(options_.walk, counts_.skipped, found, [this](const std::string& path) { keep_old(path); });
    while (old_record()) remove_old();
    window_.flush();
  }

 private:
  const Record* old_record() const { return old_ ? old_->record() : nullptr; }

  void pass_old(const std::string& path) {
    while (old_record() && old_record()->path == path) old_->advance();
  }
  void remove_old() {
    pass_old(std::string(old_record()->path));
    ++counts_.removed;
  }

  void remove_old_before(const std::string& path) {
    while (old_record() && path_less(old_record()->path, path)) remove_old();
  }
  // Of what cannot be read, a file or a folder, the old passages stay.
  void keep_old(const std::string& path) {
    remove_old_before(path);
    while (old_record() && is_below(old_record()->path, path)) copy_old();
  }

  // Is the record that the old index has come to that of this passage?
  bool has_old(const FoundFile& file, const std::string& hash, int64_t passage) const {
    const Record* old = old_record();
    return old && old->path == file.path && old->file_hash == hash && old->passage == passage;
  }
  void copy_old() {
    window_.copy(*old_);
    old_->advance();
  }

  // Returns how many of the file's bytes are counted as they are embedded.
  int64_t visit(const FoundFile& file) {
    const auto skip = [this](Skipped reason) { return ++counts_.skipped[size_t(reason)], 0; };
    remove_old_before(file.path);
    std::string text;
    try {
      text = read_beginning(file.path);
    } catch (const DataError&) {
      keep_old(file.path);
      return skip(Skipped::unreadable);
    }
    if (is_binary(text)) return skip(Skipped::binary);
    const std::string hash = xxh128(text);
    // A file that the old index has whole is not cut into passages again.
    int64_t passages = 0;
    for (bool last = false; !last && has_old(file, hash, passages); ++passages) {
      last = old_record()->last;
      copy_old();
      if (last) return ++counts_.unchanged, 0;
    }
    const int64_t copied = passages;
    int64_t counted = 0, embedded = 0;
    PassageCutter cutter(text, model_.tokenize, model_.settings.passage_tokens - 2);
    Passage passage;
    for (passages = 0; cutter.next(passage); ++passages) {
      const auto begin = int64_t(passage.begin), end = int64_t(passage.end), bytes = end - std::exchange(counted, end);
      if (passages < copied) continue;
      if (has_old(file, hash, passages)) {
        copy_old();
        continue;
      }
      embedded += bytes;
      window_.embed({file.path, passage.line, passage.last_line, begin, end, passages, passage.last, hash,
                     text.substr(passage.begin, passage.end - passage.begin)},
                    std::move(passage.tokens), bytes);
    }
    if (passages == 0) return skip(Skipped::empty);
    pass_old(file.path);  // of the file as it was
    return embedded;
  }

  const UpdateOptions& options_;
  const IndexModel& model_;
  IndexStream* old_;
  IndexCounts& counts_;
  Window window_;
};

// Error (UsageError): the index that is there has other settings or paths.
void check_same(const UpdateOptions& options, const IndexSettings& old, const IndexSettings& settings) {
  if (options.rebuild) return;
  std::vector<std::string> had, got;
  const auto compare = [&](const auto& theirs, const auto& ours, const auto&... text) {
    if (theirs == ours) return;
    had.push_back(concat(text..., theirs));
    got.push_back(concat(text..., ours));
  };
  const auto quoted = [](const std::string& text) { return concat(in_quotes(text)); };
  const auto listed = [&](const std::vector<std::string>& paths) {
    std::vector<std::string> all;
    for (const std::string& path : paths) all.push_back(quoted(path));
    return joined(all);
  };
  compare(quoted(old.fingerprint), quoted(settings.fingerprint), "model ");
  compare(quoted(old.attention), quoted(settings.attention), "attention ");
  compare(old.seed, settings.seed, "seed ");
  compare(concat(old.passage_tokens, " tokens"), concat(settings.passage_tokens, " tokens"), "passages of ");
  compare(old.features, settings.features, "features ");
  if (!old.paths.empty()) compare(listed(old.paths), listed(settings.paths), "PATH ");  // empty: of an older version
  check<UsageError>(
      had.empty(), "--out ", options.out, ": this index was made with ", joined(had), ", got ", joined(got),
      old.fingerprint == settings.fingerprint ? ""
                                              : concat(" (its model was ", in_quotes(old.model), " as it was then)"),
      "; choose another folder, or --rebuild to replace it");
}

// Has the folder an index to go on with? Error (UsageError): it has other settings or paths.
bool has_usable(const UpdateOptions& options, const IndexSettings& settings) {
  std::optional<IndexHeader> old;
  try {
    old = find_index(options.out);
    if (old && !options.rebuild) check_passages(options.out, *old);
  } catch (const DataError&) {
    if (!options.rebuild) throw;
  }
  if (old) check_same(options, old->settings, settings);
  if (options.rebuild) {
    const auto stopped = find_unfinished(options.out, rebuild_ending);
    if (stopped && stopped->settings.agrees_with(settings)) return true;
    remove_index(options.out, rebuild_ending);
    return false;
  }
  if (!old)
    if (const auto killed = find_unfinished(options.out, ".new")) check_same(options, killed->settings, settings);
  return old.has_value();
}

}  // namespace

IndexCounts update_index(const UpdateOptions& given, const IndexModel& model) {
  check_out(given.out);
  const FolderLock lock(given.out);
  UpdateOptions options = given;
  const std::filesystem::path out = std::filesystem::canonical(given.out);
  options.walk.leave_out.push_back(out);
  IndexSettings settings = model.settings;
  settings.exclude = options.walk.exclude;
  for (const auto& root : options.walk.roots) {
    check<UsageError>(!is_below(root.string(), out.string()), root, ": is the index itself, or in it; expected a PATH ",
                      "outside of --out ", options.out);
    settings.paths.push_back(root.string());
  }
  finish_renaming(options.out);
  const std::string base = options.rebuild ? rebuild_ending : "";
  bool has_old = has_usable(options, settings);
  has_old |= recover_index(options.out, settings, has_old, base);

  std::optional<IndexStream> old;
  if (has_old) old.emplace(options.out, base, options.rebuild);
  IndexWriter writer(options.out, settings, base);
  IndexCounts counts;
  try {
    Update(options, model, old ? &*old : nullptr, writer, counts).run();
  } catch (const Stopped&) {
    counts.interrupted = true;
    if (old) append_rest(writer, *old);
  }
  counts.passages = writer.rows(), counts.files = writer.files();
  if (options.rebuild && !counts.interrupted) {
    // Nothing of a run before this one is to be found by the next.
    writer.sync();
    old.reset();
    for (const char* ending : {rebuild_ending, ".new"}) remove_index(options.out, ending);
  }
  writer.finish(!counts.interrupted, counts.interrupted ? base : "");
  return counts;
}

}  // namespace cairn::text_search

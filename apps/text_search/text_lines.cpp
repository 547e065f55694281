#include "apps/text_search/text_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "core/error.h"
#include "nn/io/file.h"

namespace cairn::text_search {
namespace {

// A file that is open for reading.
class Input {
 public:
  explicit Input(const std::string& file)
      : name_(file == "-" ? "standard input" : file),
        handle_(file == "-" ? STDIN_FILENO : again([&] { return open(file.c_str(), O_RDONLY | O_CLOEXEC); })) {
    if (handle_ < 0) fail("opened");
  }
  ~Input() {
    if (handle_ != STDIN_FILENO) close(handle_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  // The next bytes; none at the end.
  std::string_view read() {
    const ssize_t got = again([this] { return ::read(handle_, buffer_.data(), buffer_.size()); });
    if (got < 0) fail("read");
    return {buffer_.data(), size_t(got)};
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    const int number = errno;
    throw DataError(concat(name_, ": cannot be ", what, ": ", std::strerror(number)));
  }

  std::string name_;
  int handle_;
  std::string buffer_ = std::string(size_t{1} << 16, '\0');
};

}  // namespace

int64_t count_lines(const std::string& file) {
  std::error_code none;
  if (file == "-" || !std::filesystem::is_regular_file(file, none)) return 0;
  Input input(file);
  int64_t lines = 0;
  char last = '\n';
  for (std::string_view bytes = input.read(); !bytes.empty(); bytes = input.read()) {
    lines += std::count(bytes.begin(), bytes.end(), '\n');
    last = bytes.back();
  }
  return lines + (last != '\n');
}

void tokenize_lines(const WordPiece& tokenizer, const std::string& file, int64_t max_tokens,
                    const std::function<void(int32_t id)>& token, const std::function<void()>& line_end) {
  Input input(file);
  WordPiece::Stream stream(tokenizer);
  std::vector<WordPiece::Token> tokens;
  int64_t count = 0;  // of the line's tokens; 0 between lines
  const auto pass_on = [&] {
    if (count == 0) token(tokenizer.cls()), ++count;
    for (const WordPiece::Token& t : tokens)
      if (max_tokens == 0 || count + 1 < max_tokens) token(t.id), ++count;
    tokens.clear();
  };
  const auto end = [&] {
    stream.end(tokens);
    pass_on();
    token(tokenizer.sep());
    line_end();
    count = 0;
  };
  bool open = false;  // has the line begun?
  for (std::string_view piece = input.read(); !piece.empty(); piece = input.read()) {
    while (!piece.empty()) {
      const size_t length = std::min(piece.find('\n'), piece.size());
      open = true;
      if (max_tokens == 0 || count + 1 < max_tokens) stream.add(piece.substr(0, length), tokens);
      pass_on();
      piece.remove_prefix(length);
      if (piece.empty()) break;
      end();
      open = false;
      piece.remove_prefix(1);
    }
  }
  if (open) end();
}

}  // namespace cairn::text_search

#include "apps/common/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "core/error.h"

namespace cairn {
namespace {

std::string bar(double fraction, int width) {
  const int full = int(fraction * width);
  std::string text;
  for (int i = 0; i < width; ++i) text += i < full ? "━" : "─";
  if (!colors()) return text;
  const size_t bytes = 3 * size_t(full);  // each stroke is three bytes of UTF-8
  return "\033[36m" + text.substr(0, bytes) + "\033[90m" + text.substr(bytes) + "\033[0m";
}

}  // namespace

size_t columns(int stream, size_t otherwise) {
  winsize size{};
  return ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

std::string clock_time(double seconds) {
  const int64_t whole = std::llround(seconds);
  return (whole >= 3600 ? formatted("%lld:%02lld", (long long)whole / 3600, (long long)whole / 60 % 60)
                        : formatted("%lld", (long long)whole / 60)) +
         formatted(":%02lld", (long long)whole % 60);
}

Progress::Progress(int64_t total, bool quiet, Counts counts)
    : total_(total),
      counts_(counts),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO)),
      start_(Clock::now()),
      last_draw_(start_) {}

Progress::~Progress() {
  if (!quiet_ && terminal_ && drawn_) std::cerr << '\n';
}

void Progress::draw(int64_t done, const std::string& numbers, bool ended) {
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = elapsed > 0 ? double(done - first_) / elapsed : 0;
  const double fraction = total_ > 0 ? double(done) / double(total_) : 1;
  const bool bytes = counts_ == Counts::bytes;
  const std::string time = clock_time(elapsed),
                    rates = bytes ? "  " + time : formatted("  %.1f steps/s  %s", rate, time.c_str()),
                    left = concat(bytes ? "  about " : "  at most ",
                                  rate > 0 ? clock_time(double(total_ - done) / rate) : "?", " more");
  // What matters most comes first; a narrow terminal loses the rest.
  const bool small = total_ < 1'000'000;
  const double unit = small ? 1e3 : 1e6;
  std::string line = bytes
                         ? formatted("%.1f/%.1f %s  ", double(done) / unit, double(total_) / unit, small ? "KB" : "MB")
                         : std::to_string(done) + "/" + std::to_string(total_) + "  ";
  line += numbers;
  const size_t width = terminal_ ? std::max<size_t>(1, columns(STDERR_FILENO, 80) - 1) : std::string::npos;
  if (line.size() + rates.size() <= width) line += rates;
  if (!ended && line.size() + left.size() <= width) line += left;
  if (!terminal_) {
    std::cerr << line << '\n';
    return;
  }
  if (line.size() > width) line.resize(width);
  const int room = int(width) - int(line.size()) - 1;
  std::cerr << "\r\033[K";
  if (room >= 8) std::cerr << bar(fraction, std::min(room, 24)) << ' ';
  std::cerr << line << std::flush;
  drawn_ = true;
}

void Progress::start_at(int64_t done) {
  first_ = last_done_ = done;
  start_ = last_draw_ = Clock::now();
}

void Progress::update(int64_t done, const std::string& numbers) {
  last_done_ = done;
  last_numbers_ = numbers;
  if (quiet_) return;
  const auto now = Clock::now();
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000);
  if (now - last_draw_ < pause) return;
  last_draw_ = now;
  draw(done, numbers);
}

void Progress::note(const std::string& text) {
  if (quiet_) return;
  if (terminal_ && drawn_) std::cerr << "\r\033[K";
  std::cerr << text << '\n';
  if (terminal_ && drawn_) draw(last_done_, last_numbers_);
}

void Progress::finish() {
  if (quiet_) return;
  draw(last_done_, last_numbers_, true);
  if (terminal_) std::cerr << '\n';
  drawn_ = false;
}

}  // namespace cairn

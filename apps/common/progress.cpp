#include "apps/common/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "apps/common/format.h"
#include "core/error.h"

namespace cairn {
namespace {

std::string bar(double fraction, int width) {
  std::string text;
  for (int i = 0; i < width; ++i) text += i < int(fraction * width) ? "━" : "─";
  return text;
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

Progress::Progress(int64_t total, bool quiet, int64_t done)
    : total_(total), first_(done), last_done_(done), quiet_(quiet), terminal_(isatty(STDERR_FILENO)) {}

Progress::~Progress() {
  if (drawn_) std::cerr << '\n';
}

void Progress::draw(bool ended) {
  const double elapsed = clock_.seconds();
  const double rate = elapsed > 0 ? double(last_done_ - first_) / elapsed : 0;
  // The most important part comes first, because a narrow terminal cuts the rest.
  std::string line = concat(last_done_, "/", total_, "  ", last_numbers_);
  line += formatted("  %.1f/s  %s", rate, clock_time(elapsed).c_str());
  if (!ended) line += "  at most " + (rate > 0 ? clock_time(double(total_ - last_done_) / rate) : "?") + " left";
  if (!terminal_) {
    std::cerr << line << '\n';
    return;
  }
  const size_t width = std::max<size_t>(1, columns(STDERR_FILENO, 80) - 1);
  line.resize(std::min(line.size(), width));
  const int room = int(width) - int(line.size()) - 1;
  std::cerr << "\r\033[K";
  if (room >= 8) std::cerr << bar(total_ > 0 ? double(last_done_) / double(total_) : 1, std::min(room, 24)) << ' ';
  std::cerr << line << std::flush;
  drawn_ = true;
}

void Progress::update(int64_t done, const std::string& numbers) {
  last_done_ = done;
  last_numbers_ = numbers;
  if (quiet_) return;
  if (clock_.seconds() - last_draw_ < (terminal_ ? 0.1 : 10)) return;
  last_draw_ = clock_.seconds();
  draw(false);
}

void Progress::note(const std::string& text) {
  if (quiet_) return;
  if (drawn_) std::cerr << "\r\033[K";
  std::cerr << text << '\n';
  if (drawn_) draw(false);
}

void Progress::finish() {
  if (quiet_) return;
  draw(true);
  if (terminal_) std::cerr << '\n';
  drawn_ = false;
}

}  // namespace cairn

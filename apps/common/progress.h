#pragma once
// How long work shows itself: on a terminal one line that is redrawn, with a bar, rate, remaining time and live
// numbers; elsewhere a plain line now and then. All of it on standard error.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cairn {

// Seconds since it was made, plus those of earlier sessions.
class Stopwatch {
 public:
  explicit Stopwatch(double before = 0) : before_(before) {}
  double seconds() const { return before_ + std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  double before_;
  Clock::time_point start_ = Clock::now();
};

class Progress {
 public:
  // Of `total` steps, `done` of which an earlier session made: they do not count in the rate. `quiet` shows nothing.
  Progress(int64_t total, bool quiet, int64_t done = 0);
  ~Progress();

  // After `done` steps, with live numbers such as "loss 1.83".
  void update(int64_t done, const std::string& numbers);
  // A line of its own above the bar, for what a reader should know.
  void note(const std::string& text);
  // The last state, for good.
  void finish();

 private:
  void draw(bool ended);

  int64_t total_, first_, last_done_;
  bool quiet_, terminal_;
  bool drawn_ = false;
  std::string last_numbers_;
  Stopwatch clock_;
  double last_draw_ = 0;
};

// The width of a terminal; `otherwise` where the stream (STDOUT_FILENO, STDERR_FILENO) is none.
size_t columns(int stream, size_t otherwise);

// "1:05", "2:03:04".
std::string clock_time(double seconds);

}  // namespace cairn

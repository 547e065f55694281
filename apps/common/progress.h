#pragma once
// The progress of long work, on standard error: on a terminal, one line that is redrawn, with a bar, numbers, rate and
// remaining time; elsewhere, a plain line every ten seconds.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cairn {

// Seconds since its construction, plus those of earlier sessions.
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
  // For `total` steps. The rate does not count the `done` steps of an earlier session. `quiet` shows nothing.
  Progress(int64_t total, bool quiet, int64_t done = 0);
  ~Progress();

  // Shows the state after `done` steps, with current numbers such as "loss 1.83".
  void update(int64_t done, const std::string& numbers);
  // Prints a line above the bar.
  void note(const std::string& text);
  // Shows the final state.
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

// The width of the terminal; `otherwise` if the stream (STDOUT_FILENO, STDERR_FILENO) is not a terminal.
size_t columns(int stream, size_t otherwise);

// "1:05", "2:03:04".
std::string clock_time(double seconds);

}  // namespace cairn

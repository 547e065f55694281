// This library is preloaded into a program (LD_PRELOAD). It counts the calls that change files, from the beginning of
// main() on, and makes one of them go wrong, as CAIRN_FAULT says:
//
//   count            no call goes wrong
//   kill:N           call N kills the process (SIGKILL); a write has written half of its bytes by then
//   power:N          the same, and bytes that no fsync brought to the disk are lost
//   fail:N:ENOSPC    call N fails with that errno
//   lack:0:EPERM     all calls fail with it that a save goes on without: fchown, fchmod, flock, fsync of a folder
//   short:N          call N, if it is a write, writes half of its bytes, as a system may
//
// CAIRN_FAULT_LOG names a file that gets a line for each call, "12 rename run/a -> run/b".
//
// It makes system calls directly, because it replaces the functions of the C library.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace {

enum class Mode { count, kill, power, fail, lack, cut };

Mode mode = Mode::count;
long target = 0;  // the number of the call; 0: none
int error_number = 0;
int log_file = -1;
std::atomic<bool> armed{false};  // within main()
std::atomic<long> calls{0};

constexpr struct {
  const char* name;
  int number;
} error_names[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},     {"EFBIG", EFBIG}, {"EACCES", EACCES},
                   {"EROFS", EROFS},   {"EINTR", EINTR}, {"EPERM", EPERM}, {"ENOSYS", ENOSYS}};

[[noreturn]] void misused(const char* what) {
  std::fprintf(stderr, "faults: %s\n", what);
  _exit(99);
}

void read_environment() {
  const char* text = std::getenv("CAIRN_FAULT");
  if (!text) return;
  char word[16] = "", error[16] = "";
  std::sscanf(text, "%15[a-z]:%ld:%15s", word, &target, error);
  constexpr const char* modes[] = {"count", "kill", "power", "fail", "lack", "short"};
  int found = -1;
  for (int i = 0; i < int(std::size(modes)); ++i)
    if (std::strcmp(word, modes[i]) == 0) found = i;
  if (found < 0) misused("CAIRN_FAULT is not understood");
  mode = Mode(found);
  for (const auto& each : error_names)
    if (std::strcmp(error, each.name) == 0) error_number = each.number;
  if (mode == Mode::fail && error_number == 0) misused("CAIRN_FAULT names an unknown errno");
  if (const char* path = std::getenv("CAIRN_FAULT_LOG"))
    log_file = int(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
}

template <class... Args>
void log(const char* format, Args... args) {
  if (log_file < 0) return;
  char line[1200];
  const int size = std::snprintf(line, sizeof line, format, args...);
  if (size > 0) (void)syscall(SYS_write, log_file, line, size < int(sizeof line) ? size : int(sizeof line) - 1);
}

const char* path_of(int file, char (&path)[512]) {
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const long size = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  path[size < 0 ? 0 : size] = 0;
  return path;
}

// ---- the contents of the disk, for power:N. A file's bytes are safe up to its size at the last fsync.

struct Written {
  dev_t device;
  ino_t inode;
  long safe;
  int file;  // our own handle, so that a file that was renamed or closed can still be cut
};
Written written[256];
std::atomic<int> written_count{0};

Written* find_written(const struct stat& status) {
  for (int i = 0; i < written_count; ++i)
    if (written[i].inode == status.st_ino && written[i].device == status.st_dev) return &written[i];
  return nullptr;
}

// Called before the first change of an open file: its present contents count as safe.
void remember(int file, bool emptied) {
  if (mode != Mode::power) return;
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return;
  Written* entry = find_written(status);
  if (!entry) {
    if (written_count >= 256) misused("more than 256 files");
    entry = &written[written_count];
    char link[64];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const int own = int(syscall(SYS_openat, AT_FDCWD, link, O_RDWR | O_CLOEXEC));
    *entry = {status.st_dev, status.st_ino, long(status.st_size), own};
    ++written_count;
  }
  if (emptied) entry->safe = 0;
}

void made_safe(int file) {
  struct stat status {};
  if (mode != Mode::power || fstat(file, &status) != 0) return;
  if (Written* entry = find_written(status)) entry->safe = long(status.st_size);
}

[[noreturn]] void die() {
  if (mode == Mode::power)
    for (int i = 0; i < written_count; ++i) {
      struct stat status {};
      if (fstat(written[i].file, &status) == 0 && long(status.st_size) > written[i].safe)
        (void)syscall(SYS_ftruncate, written[i].file, written[i].safe);
    }
  syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  for (;;) pause();
}

// ---- the calls

enum class Outcome { as_usual, fails, half };

// Counts a call. If the process is to be killed, it does not return, except for a write.
Outcome next(const char* name, const char* path, const char* to = nullptr, bool is_write = false) {
  if (!armed) return Outcome::as_usual;
  const long n = ++calls;
  log(to ? "%ld %s %s -> %s\n" : "%ld %s %s%s\n", n, name, path, to ? to : "");
  const bool lacks = mode == Mode::lack && std::strstr("fchown fchmod flock folder-sync", name);
  if (n != target && !lacks) return Outcome::as_usual;
  switch (mode) {
    case Mode::kill:
    case Mode::power:
      if (is_write) return Outcome::half;
      die();
    case Mode::lack:
    case Mode::fail: errno = error_number; return Outcome::fails;
    case Mode::cut: return is_write ? Outcome::half : Outcome::as_usual;
    default: return Outcome::as_usual;
  }
}

int open_file(int folder, const char* path, int flags, mode_t permissions) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if (writes && next("open", path) == Outcome::fails) return -1;
  const int file = int(syscall(SYS_openat, folder, path, flags, permissions));
  if (file >= 0 && writes && armed) remember(file, flags & O_TRUNC);
  return file;
}

mode_t permissions_of(int flags, va_list arguments) {
  return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

int remove_name(const char* name, int folder, const char* path, int flags) {
  if (next(name, path) == Outcome::fails) return -1;
  return int(syscall(SYS_unlinkat, folder, path, flags));
}

int move_name(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  if (next("rename", from, to) == Outcome::fails) return -1;
  return int(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

bool fails(const char* name, int file) {
  char path[512];
  return next(name, path_of(file, path)) == Outcome::fails;
}

int bring_to_disk(const char* name, long number, int file) {
  struct stat status {};
  if (fails(fstat(file, &status) == 0 && S_ISDIR(status.st_mode) ? "folder-sync" : name, file)) return -1;
  const int result = int(syscall(number, file));
  if (result == 0) made_safe(file);
  return result;
}

// write_some(n) makes the call with n of these bytes.
template <class F>
ssize_t write_bytes(const char* name, int file, const void* bytes, size_t size, F write_some) {
  char path[512];
  if (file <= STDERR_FILENO) return write_some(bytes, size);
  switch (next(name, path_of(file, path), nullptr, true)) {
    case Outcome::fails: return -1;
    case Outcome::half: {
      const ssize_t done = write_some(bytes, mode == Mode::cut ? (size + 1) / 2 : size / 2);
      if (mode != Mode::cut) die();
      return done;
    }
    default: return write_some(bytes, size);
  }
}

int (*real_main)(int, char**, char**);

int main_within(int count, char** arguments, char** environment) {
  read_environment();
  armed = true;
  const int result = real_main(count, arguments, environment);
  armed = false;
  return result;
}

template <class F>
F original(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int __libc_start_main(int (*program_main)(int, char**, char**), int count, char** arguments, void (*init)(),
                      void (*fini)(), void (*unload)(), void* stack) {
  real_main = program_main;
  return original<decltype(&__libc_start_main)>("__libc_start_main")(main_within, count, arguments, init, fini, unload,
                                                                     stack);
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t permissions = permissions_of(flags, arguments);
  va_end(arguments);
  return open_file(AT_FDCWD, path, flags, permissions);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t permissions = permissions_of(flags, arguments);
  va_end(arguments);
  return open_file(folder, path, flags, permissions);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));

ssize_t write(int file, const void* bytes, size_t size) {
  return write_bytes("write", file, bytes, size,
                     [&](const void* some, size_t n) { return ssize_t(syscall(SYS_write, file, some, n)); });
}
ssize_t pwrite(int file, const void* bytes, size_t size, off_t at) {
  return write_bytes("pwrite", file, bytes, size,
                     [&](const void* some, size_t n) { return ssize_t(syscall(SYS_pwrite64, file, some, n, at)); });
}
ssize_t pwrite64(int file, const void* bytes, size_t size, off_t at) __attribute__((alias("pwrite")));
ssize_t writev(int file, const iovec* buffers, int count) {
  return write_bytes("writev", file, "", 2, [&](const void*, size_t n) {
    // Half of two buffers is the first one.
    return ssize_t(syscall(SYS_writev, file, buffers, n == 2 ? count : 1));
  });
}

int fsync(int file) { return bring_to_disk("fsync", SYS_fsync, file); }
int fdatasync(int file) { return bring_to_disk("fdatasync", SYS_fdatasync, file); }

int flock(int file, int operation) { return fails("flock", file) ? -1 : int(syscall(SYS_flock, file, operation)); }
int fchmod(int file, mode_t bits) { return fails("fchmod", file) ? -1 : int(syscall(SYS_fchmod, file, bits)); }
int fchown(int file, uid_t user, gid_t group) {
  return fails("fchown", file) ? -1 : int(syscall(SYS_fchown, file, user, group));
}

int ftruncate(int file, off_t size) { return fails("ftruncate", file) ? -1 : int(syscall(SYS_ftruncate, file, size)); }
int ftruncate64(int file, off_t size) __attribute__((alias("ftruncate")));

// For a file that was open for writing. It is closed even if the call fails.
int close(int file) {
  char path[512];
  const long flags = armed && file > STDERR_FILENO ? syscall(SYS_fcntl, file, F_GETFL) : -1;
  const bool writes = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
  const bool fails = writes && next("close", path_of(file, path)) == Outcome::fails;
  const int number = errno, result = int(syscall(SYS_close, file));
  if (!fails) return result;
  errno = number;
  return -1;
}

int rename(const char* from, const char* to) { return move_name(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int a, const char* from, int b, const char* to) { return move_name(a, from, b, to, 0); }
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
  return move_name(a, from, b, to, flags);
}

int mkdir(const char* path, mode_t permissions) {
  if (next("mkdir", path) == Outcome::fails) return -1;
  return int(syscall(SYS_mkdirat, AT_FDCWD, path, permissions));
}
int mkdirat(int folder, const char* path, mode_t permissions) {
  if (next("mkdir", path) == Outcome::fails) return -1;
  return int(syscall(SYS_mkdirat, folder, path, permissions));
}

int unlink(const char* path) { return remove_name("unlink", AT_FDCWD, path, 0); }
int unlinkat(int folder, const char* path, int flags) { return remove_name("unlink", folder, path, flags); }
int rmdir(const char* path) { return remove_name("rmdir", AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) {
  struct stat status {};
  const bool is_folder = lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
  return is_folder ? rmdir(path) : unlink(path);
}

}  // extern "C"

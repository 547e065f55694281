#pragma once
// fork() in a process with several threads: the child has only the thread that forked, and a mutex that another thread
// holds at that moment stays locked in the child for ever.
#include <pthread.h>

#include <mutex>

namespace cairn {

// From now on a fork waits until it has the mutex, and both processes then release it. Call it once a mutex.
template <std::mutex& (*mutex)()>
void keep_over_fork() {
  pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, [] { mutex().unlock(); });
}

}  // namespace cairn

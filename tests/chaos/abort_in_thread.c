// SPDX-License-Identifier: Apache-2.0
// Preloaded: after SIGUSR2, the thread whose name is in VERBENA_TEST_ABORT_IN calls abort(3) at its next
// blocking call, as a thread does that finds its state corrupted. A signal sent to the library's threads
// would not work: they block all signals.
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum { kSliceMs = 10 };
static volatile sig_atomic_t asked;
static const char* thread_name;

static void ask(int number) {
  asked = number;
}

__attribute__((constructor)) static void begin(void) {
  thread_name = getenv("VERBENA_TEST_ABORT_IN");
  if (thread_name != NULL) signal(SIGUSR2, ask);
}

static int is_the_one(void) {
  char name[16];
  if (thread_name == NULL || prctl(PR_GET_NAME, name) != 0 || strcmp(name, thread_name) != 0) return 0;
  if (asked != 0) abort();
  return 1;
}

int poll(struct pollfd* entries, nfds_t count, int timeout) {
  int found = 0;
  if (!is_the_one() || (timeout >= 0 && timeout <= kSliceMs)) return REAL(poll)(entries, count, timeout);
  while (is_the_one() && (found = REAL(poll)(entries, count, kSliceMs)) == 0) continue;
  return found;
}

int epoll_wait(int set, struct epoll_event* events, int most, int timeout) {
  int found = 0;
  if (!is_the_one() || (timeout >= 0 && timeout <= kSliceMs))
    return REAL(epoll_wait)(set, events, most, timeout);
  while (is_the_one() && (found = REAL(epoll_wait)(set, events, most, kSliceMs)) == 0) continue;
  return found;
}

int epoll_pwait2(int set, struct epoll_event* events, int most, const struct timespec* timeout,
                 const sigset_t* mask) {
  int (*real)(int, struct epoll_event*, int, const struct timespec*, const sigset_t*) =
      (int (*)(int, struct epoll_event*, int, const struct timespec*, const sigset_t*))dlsym(RTLD_NEXT,
                                                                                             "epoll_pwait2");
  const struct timespec slice = {.tv_nsec = kSliceMs * 1000000L};
  int found = 0;
  if (!is_the_one() || timeout != NULL) return real(set, events, most, timeout, mask);
  while (is_the_one() && (found = real(set, events, most, &slice, mask)) == 0) continue;
  return found;
}

int ppoll(struct pollfd* entries, nfds_t count, const struct timespec* timeout, const sigset_t* mask) {
  const struct timespec slice = {.tv_nsec = kSliceMs * 1000000L};
  int found = 0;
  if (!is_the_one() || timeout != NULL) return REAL(ppoll)(entries, count, timeout, mask);
  while (is_the_one() && (found = REAL(ppoll)(entries, count, &slice, mask)) == 0) continue;
  return found;
}

int epoll_pwait(int set, struct epoll_event* events, int most, int timeout, const sigset_t* mask) {
  int found = 0;
  if (!is_the_one() || (timeout >= 0 && timeout <= kSliceMs))
    return REAL(epoll_pwait)(set, events, most, timeout, mask);
  while (is_the_one() && (found = REAL(epoll_pwait)(set, events, most, kSliceMs, mask)) == 0) continue;
  return found;
}

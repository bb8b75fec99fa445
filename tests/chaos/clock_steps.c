// SPDX-License-Identifier: Apache-2.0
// Preloaded: the realtime clock steps by hours, forward and back, each time it is read. The kernel does not
// know of the steps. So a thread that waits until a time of this clock wakes up too early, or hangs.
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long step(void) {
  static atomic_long turn;
  static const long hours[] = {0, 7, -5, 30000, -26, 1, -30000};
  return hours[atomic_fetch_add(&turn, 1) % 7] * 3600;
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  static int (*real)(clockid_t, struct timespec*);
  if (real == NULL) real = REAL(clock_gettime);
  const int failed = real(clock, time);
  if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI))
    time->tv_sec += step();
  return failed;
}

int gettimeofday(struct timeval* restrict to, void* restrict zone) {
  (void)zone;
  struct timespec time;
  const int failed = clock_gettime(CLOCK_REALTIME, &time);
  if (failed == 0) *to = (struct timeval){time.tv_sec, time.tv_nsec / 1000};
  return failed;
}

time_t time(time_t* to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to != NULL) *to = now.tv_sec;
  return now.tv_sec;
}

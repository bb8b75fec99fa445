// SPDX-License-Identifier: Apache-2.0
// Preloaded: makes the N-th call of the library for memory, a descriptor or a thread fail, as when there is
// none left. Calls of libibverbs and librdmacm count, and calls of the C++ library for them.
//
//     VERBENA_TEST_FAIL_AT=N     that call fails
//     VERBENA_TEST_FAIL_FROM=N   that call and all later ones fail
//     VERBENA_TEST_COUNT=FILE    gets the number of calls when the program ends
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { kMaxRanges = 8 };
static struct {
  uintptr_t begin;
  uintptr_t end;
} ranges[kMaxRanges];
static int range_count;
static long fail_at;
static long fail_from;
static const char* count_file;
static atomic_long calls;

static int note_library(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  (void)data;
  if (strstr(info->dlpi_name, "libibverbs.so") == NULL && strstr(info->dlpi_name, "librdmacm.so") == NULL &&
      strstr(info->dlpi_name, "libstdc++.so") == NULL)
    return 0;
  for (int i = 0; i < info->dlpi_phnum && range_count < kMaxRanges; ++i) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
    ranges[range_count].begin = info->dlpi_addr + part->p_vaddr;
    ranges[range_count].end = ranges[range_count].begin + part->p_memsz;
    ++range_count;
  }
  return 0;
}

static long number(const char* name) {
  const char* value = getenv(name);
  return value != NULL ? atol(value) : 0;
}

__attribute__((constructor)) static void begin(void) {
  char path[256];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = 0;
  if (strstr(path, "verbena") != NULL && strstr(path, "/bin/") != NULL) return;  // our own programs
  fail_at = number("VERBENA_TEST_FAIL_AT");
  fail_from = number("VERBENA_TEST_FAIL_FROM");
  count_file = getenv("VERBENA_TEST_COUNT");
  dl_iterate_phdr(note_library, NULL);
}

__attribute__((destructor)) static void end(void) {
  if (count_file == NULL) return;
  FILE* to = fopen(count_file, "w");
  if (to == NULL) return;
  fprintf(to, "%ld\n", atomic_load(&calls));
  fclose(to);
}

static int fails(void* caller) {
  const uintptr_t at = (uintptr_t)caller;
  for (int i = 0; i < range_count; ++i) {
    if (at < ranges[i].begin || at >= ranges[i].end) continue;
    const long n = atomic_fetch_add(&calls, 1) + 1;
    return n == fail_at || (fail_from != 0 && n >= fail_from);
  }
  return 0;
}
#define FAILS() fails(__builtin_return_address(0))

// Other names of the functions in the C library: dlsym() itself allocates.
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static void* none(int error) {
  errno = error;
  return NULL;
}
static int refuse(int error) {
  errno = error;
  return -1;
}

void* malloc(size_t bytes) {
  return FAILS() ? none(ENOMEM) : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  return FAILS() ? none(ENOMEM) : __libc_calloc(count, bytes);
}
void* realloc(void* block, size_t bytes) {
  return FAILS() ? none(ENOMEM) : __libc_realloc(block, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return FAILS() ? none(ENOMEM) : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** to, size_t alignment, size_t bytes) {
  void* made = FAILS() ? NULL : __libc_memalign(alignment, bytes);
  if (made == NULL) return ENOMEM;
  *to = made;
  return 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (FAILS()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return REAL(mmap)(at, bytes, protection, flags, file, offset);
}
int socket(int domain, int type, int protocol) {
  return FAILS() ? refuse(EMFILE) : REAL(socket)(domain, type, protocol);
}
int socketpair(int domain, int type, int protocol, int pair[2]) {
  return FAILS() ? refuse(EMFILE) : REAL(socketpair)(domain, type, protocol, pair);
}
int eventfd(unsigned value, int flags) {
  int (*real)(unsigned, int) = (int (*)(unsigned, int))dlsym(RTLD_NEXT, "eventfd");
  return FAILS() ? refuse(EMFILE) : real(value, flags);
}
int epoll_create1(int flags) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "epoll_create1");
  return FAILS() ? refuse(EMFILE) : real(flags);
}
int timerfd_create(int clock, int flags) {
  int (*real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "timerfd_create");
  return FAILS() ? refuse(EMFILE) : real(clock, flags);
}
int memfd_create(const char* name, unsigned flags) {
  return FAILS() ? refuse(EMFILE) : REAL(memfd_create)(name, flags);
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return FAILS() ? refuse(EMFILE) : REAL(open)(path, flags, mode);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  return FAILS() ? EAGAIN : REAL(pthread_create)(thread, attributes, run, argument);
}

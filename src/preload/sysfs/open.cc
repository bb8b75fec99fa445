// SPDX-License-Identifier: Apache-2.0
// Functions that open a path.
#include <cstdarg>
#include <cstdio>

#include <fcntl.h>
#include <sys/types.h>

#include "base/interpose.h"
#include "preload/sysfs/shown_path.h"

namespace verbena::sysfs {
namespace {

bool takes_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

}  // namespace

// Reads the mode argument, which exists only if a file may be created.
#define READ_MODE(mode, flags)        \
  mode_t mode = 0;                    \
  if (takes_mode(flags)) {            \
    va_list arguments;                \
    va_start(arguments, flags);       \
    mode = va_arg(arguments, mode_t); \
    va_end(arguments);                \
  }

#define OPEN(name)                                                                                \
  INTERPOSE(int, name, (const char* path, int flags, ...)) {                                      \
    READ_MODE(mode, flags)                                                                        \
    return with_path(path, [&](const char* target) { return next_##name(target, flags, mode); }); \
  }
#define OPEN_AT(name)                                                      \
  INTERPOSE(int, name, (int at, const char* path, int flags, ...)) {       \
    READ_MODE(mode, flags)                                                 \
    return with_path_at(at, path, [&](int directory, const char* target) { \
      return next_##name(directory, target, flags, mode);                  \
    });                                                                    \
  }

#define OPEN_CHECKED(name)                                                                  \
  INTERPOSE(int, name, (const char* path, int flags)) {                                     \
    return with_path(path, [&](const char* target) { return next_##name(target, flags); }); \
  }
#define OPEN_AT_CHECKED(name)                                                                                \
  INTERPOSE(int, name, (int at, const char* path, int flags)) {                                              \
    return with_path_at(                                                                                     \
        at, path, [&](int directory, const char* target) { return next_##name(directory, target, flags); }); \
  }
#define CREATE(name)                                                                       \
  INTERPOSE(int, name, (const char* path, mode_t mode)) {                                  \
    return with_path(path, [&](const char* target) { return next_##name(target, mode); }); \
  }
#define OPEN_STREAM(name)                                                                  \
  INTERPOSE(FILE*, name, (const char* path, const char* mode)) {                           \
    return with_path(path, [&](const char* target) { return next_##name(target, mode); }); \
  }
#define REOPEN_STREAM(name)                                                                        \
  INTERPOSE(FILE*, name, (const char* path, const char* mode, FILE* stream)) {                     \
    return with_path(path, [&](const char* target) { return next_##name(target, mode, stream); }); \
  }

OPEN(open)
OPEN(open64)
OPEN(__open)
OPEN(__open64)
OPEN_AT(openat)
OPEN_AT(openat64)
// _FORTIFY_SOURCE replaces calls without a mode by these functions.
OPEN_CHECKED(__open_2)
OPEN_CHECKED(__open64_2)
OPEN_AT_CHECKED(__openat_2)
OPEN_AT_CHECKED(__openat64_2)
CREATE(creat)
CREATE(creat64)
OPEN_STREAM(fopen)
OPEN_STREAM(fopen64)
REOPEN_STREAM(freopen)
REOPEN_STREAM(freopen64)

}  // namespace verbena::sysfs

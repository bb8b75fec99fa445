// SPDX-License-Identifier: Apache-2.0
// Functions that open, query or simplify a path. This file does not access the buffers that queries fill, so
// their types are void.
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

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

// Define a function that passes its arguments on, with the path translated: `target` instead of `path`, and
// `directory` instead of `at`.
#define PASS(result, name, parameters, ...)                                               \
  INTERPOSE(result, name, parameters) {                                                   \
    return with_path(path, [&](const char* target) { return next_##name(__VA_ARGS__); }); \
  }
#define PASS_AT(result, name, parameters, ...)                                                        \
  INTERPOSE(result, name, parameters) {                                                               \
    return with_path_at(at, path,                                                                     \
                        [&](int directory, const char* target) { return next_##name(__VA_ARGS__); }); \
  }

OPEN(open)
OPEN(open64)
OPEN(__open)
OPEN(__open64)
OPEN_AT(openat)
OPEN_AT(openat64)
// _FORTIFY_SOURCE replaces calls without a mode by these functions.
PASS(int, __open_2, (const char* path, int flags), target, flags)
PASS(int, __open64_2, (const char* path, int flags), target, flags)
PASS_AT(int, __openat_2, (int at, const char* path, int flags), directory, target, flags)
PASS_AT(int, __openat64_2, (int at, const char* path, int flags), directory, target, flags)
PASS(int, creat, (const char* path, mode_t mode), target, mode)
PASS(int, creat64, (const char* path, mode_t mode), target, mode)
PASS(FILE*, fopen, (const char* path, const char* mode), target, mode)
PASS(FILE*, fopen64, (const char* path, const char* mode), target, mode)
PASS(FILE*, freopen, (const char* path, const char* mode, FILE* stream), target, mode, stream)
PASS(FILE*, freopen64, (const char* path, const char* mode, FILE* stream), target, mode, stream)

PASS(int, stat, (const char* path, void* status), target, status)
PASS(int, stat64, (const char* path, void* status), target, status)
PASS(int, lstat, (const char* path, void* status), target, status)
PASS(int, lstat64, (const char* path, void* status), target, status)
PASS_AT(int, fstatat, (int at, const char* path, void* status, int flags), directory, target, status, flags)
PASS_AT(int, fstatat64, (int at, const char* path, void* status, int flags), directory, target, status, flags)
PASS_AT(int, statx, (int at, const char* path, int flags, unsigned mask, void* status), directory, target,
        flags, mask, status)
// Programs built with a C library before 2.33 call these functions instead.
PASS(int, __xstat, (int version, const char* path, void* status), version, target, status)
PASS(int, __xstat64, (int version, const char* path, void* status), version, target, status)
PASS(int, __lxstat, (int version, const char* path, void* status), version, target, status)
PASS(int, __lxstat64, (int version, const char* path, void* status), version, target, status)
PASS_AT(int, __fxstatat, (int version, int at, const char* path, void* status, int flags), version, directory,
        target, status, flags)
PASS_AT(int, __fxstatat64, (int version, int at, const char* path, void* status, int flags), version,
        directory, target, status, flags)

PASS(int, access, (const char* path, int mode), target, mode)
PASS(int, eaccess, (const char* path, int mode), target, mode)
PASS(int, euidaccess, (const char* path, int mode), target, mode)
PASS_AT(int, faccessat, (int at, const char* path, int mode, int flags), directory, target, mode, flags)

INTERPOSE(int, chdir, (const char* path)) {
  const int result = with_path(path, [](const char* target) { return next_chdir(target); });
  if (result == 0) note_working_directory(path);
  return result;
}

PASS(ssize_t, readlink, (const char* path, char* to, size_t size), target, to, size)
PASS_AT(ssize_t, readlinkat, (int at, const char* path, char* to, size_t size), directory, target, to, size)
PASS(ssize_t, __readlink_chk, (const char* path, char* to, size_t size, size_t room), target, to, size, room)
PASS_AT(ssize_t, __readlinkat_chk, (int at, const char* path, char* to, size_t size, size_t room), directory,
        target, to, size, room)

// ls -l reads access control lists.
PASS(ssize_t, getxattr, (const char* path, const char* name, void* value, size_t size), target, name, value,
     size)
PASS(ssize_t, lgetxattr, (const char* path, const char* name, void* value, size_t size), target, name, value,
     size)
PASS(ssize_t, listxattr, (const char* path, char* names, size_t size), target, names, size)
PASS(ssize_t, llistxattr, (const char* path, char* names, size_t size), target, names, size)

PASS(int, statfs, (const char* path, void* status), target, status)
PASS(int, statfs64, (const char* path, void* status), target, status)
PASS(int, statvfs, (const char* path, void* status), target, status)
PASS(int, statvfs64, (const char* path, void* status), target, status)

PASS(int, inotify_add_watch, (int queue, const char* path, uint32_t mask), queue, target, mask)

// ---- simplifying a path. The C library follows links internally, where calls cannot be intercepted. So
// these functions work on the real path and translate the result back to the shown path.

namespace {

// Changes `real`, the system's result for a shown path, to the shown path, which every other function
// accepts. A result outside the agent's directory (a link to /dev/null) needs no change.
void show_again(char* real, std::string_view home) {
  paths::PathText target(home);
  char simple_home[PATH_MAX];
  if (::realpath(target.c_str(), simple_home) == nullptr) return;
  const size_t size = std::strlen(simple_home);
  if (std::strncmp(real, simple_home, size) != 0 || root_of(real + size) == nullptr) return;
  std::memmove(real, real + size, std::strlen(real + size) + 1);
}

template <class Function>
[[gnu::noinline]] char* simplify_shown(const char* path, Function function) {
  const ShownPath where(chosen_directory(), AT_FDCWD, path);
  char* result = function(where.replaced() ? where.target() : path);
  if (where.shown() && result != nullptr) show_again(result, where.home());
  return result;
}

template <class Function>
char* simplify(const char* path, Function function) {
  return may_be_shown(path) ? simplify_shown(path, function) : function(path);
}

}  // namespace

INTERPOSE(char*, realpath, (const char* path, char* to)) {
  return simplify(path, [&](const char* target) { return next_realpath(target, to); });
}

INTERPOSE(char*, __realpath_chk, (const char* path, char* to, size_t room)) {
  return simplify(path, [&](const char* target) { return next___realpath_chk(target, to, room); });
}

INTERPOSE(char*, canonicalize_file_name, (const char* path)) {
  return simplify(path, [&](const char* target) { return next_canonicalize_file_name(target); });
}

}  // namespace verbena::sysfs

// SPDX-License-Identifier: Apache-2.0
// Functions that query a path: status, access, links, extended attributes, file systems. This file does not
// access the buffers that they fill, so their types are void.
#include <cstdint>

#include <sys/types.h>

#include "base/interpose.h"
#include "preload/sysfs/shown_path.h"

namespace verbena::sysfs {

#define ASK(name, parameters, ...)                                                        \
  INTERPOSE(int, name, parameters) {                                                      \
    return with_path(path, [&](const char* target) { return next_##name(__VA_ARGS__); }); \
  }
#define ASK_SIZE(name, parameters, ...)                                                   \
  INTERPOSE(ssize_t, name, parameters) {                                                  \
    return with_path(path, [&](const char* target) { return next_##name(__VA_ARGS__); }); \
  }
#define ASK_AT(result, name, parameters, ...)                                                         \
  INTERPOSE(result, name, parameters) {                                                               \
    return with_path_at(at, path,                                                                     \
                        [&](int directory, const char* target) { return next_##name(__VA_ARGS__); }); \
  }

ASK(stat, (const char* path, void* status), target, status)
ASK(stat64, (const char* path, void* status), target, status)
ASK(lstat, (const char* path, void* status), target, status)
ASK(lstat64, (const char* path, void* status), target, status)
ASK_AT(int, fstatat, (int at, const char* path, void* status, int flags), directory, target, status, flags)
ASK_AT(int, fstatat64, (int at, const char* path, void* status, int flags), directory, target, status, flags)
ASK_AT(int, statx, (int at, const char* path, int flags, unsigned mask, void* status), directory, target,
       flags, mask, status)
// Programs built with a C library before 2.33 call these functions instead.
ASK(__xstat, (int version, const char* path, void* status), version, target, status)
ASK(__xstat64, (int version, const char* path, void* status), version, target, status)
ASK(__lxstat, (int version, const char* path, void* status), version, target, status)
ASK(__lxstat64, (int version, const char* path, void* status), version, target, status)
ASK_AT(int, __fxstatat, (int version, int at, const char* path, void* status, int flags), version, directory,
       target, status, flags)
ASK_AT(int, __fxstatat64, (int version, int at, const char* path, void* status, int flags), version,
       directory, target, status, flags)

ASK(access, (const char* path, int mode), target, mode)
ASK(eaccess, (const char* path, int mode), target, mode)
ASK(euidaccess, (const char* path, int mode), target, mode)
ASK_AT(int, faccessat, (int at, const char* path, int mode, int flags), directory, target, mode, flags)

INTERPOSE(int, chdir, (const char* path)) {
  const int result = with_path(path, [](const char* target) { return next_chdir(target); });
  if (result == 0) note_working_directory(path);
  return result;
}

ASK_SIZE(readlink, (const char* path, char* to, size_t size), target, to, size)
ASK_AT(ssize_t, readlinkat, (int at, const char* path, char* to, size_t size), directory, target, to, size)
ASK_SIZE(__readlink_chk, (const char* path, char* to, size_t size, size_t room), target, to, size, room)
ASK_AT(ssize_t, __readlinkat_chk, (int at, const char* path, char* to, size_t size, size_t room), directory,
       target, to, size, room)

// ls -l reads access control lists.
ASK_SIZE(getxattr, (const char* path, const char* name, void* value, size_t size), target, name, value, size)
ASK_SIZE(lgetxattr, (const char* path, const char* name, void* value, size_t size), target, name, value, size)
ASK_SIZE(listxattr, (const char* path, char* names, size_t size), target, names, size)
ASK_SIZE(llistxattr, (const char* path, char* names, size_t size), target, names, size)

ASK(statfs, (const char* path, void* status), target, status)
ASK(statfs64, (const char* path, void* status), target, status)
ASK(statvfs, (const char* path, void* status), target, status)
ASK(statvfs64, (const char* path, void* status), target, status)

ASK(inotify_add_watch, (int queue, const char* path, uint32_t mask), queue, target, mask)

}  // namespace verbena::sysfs

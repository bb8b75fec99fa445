// SPDX-License-Identifier: Apache-2.0
// glob(3) accesses the file system inside the C library, where calls cannot be intercepted. So it gets
// functions for that (GLOB_ALTDIRFUNC).
#include <cstring>

#include <glob.h>
#include <sys/stat.h>

#include "base/interpose.h"
#include "preload/sysfs/directories.h"
#include "preload/sysfs/shown_path.h"

namespace verbena::sysfs {
namespace {

using OnError = int (*)(const char*, int);

void use_our_functions(glob_t& state) {
  state.gl_opendir = [](const char* path) -> void* { return open_shown_directory(path); };
  state.gl_readdir = [](void* directory) { return read_shown_directory(static_cast<DIR*>(directory)); };
  state.gl_closedir = [](void* directory) { close_shown_directory(static_cast<DIR*>(directory)); };
  state.gl_stat = ::stat;
  state.gl_lstat = ::lstat;
}

// Whether a pattern may match a path that we show. A pattern need not contain a root's full name:
// /sys/class/inf*.
bool may_find_shown(const char* pattern) {
  return may_be_shown(pattern) || (pattern != nullptr && (std::strncmp(pattern, "/sys/", 5) == 0 ||
                                                          std::strncmp(pattern, "/dev/", 5) == 0));
}

template <class Glob>
int glob_shown(const char* pattern, int flags, glob_t* state, Glob glob) {
  if (!may_find_shown(pattern) || (flags & GLOB_ALTDIRFUNC) != 0 || state == nullptr) return glob(flags);
  use_our_functions(*state);
  const int result = glob(flags | GLOB_ALTDIRFUNC);
  state->gl_flags &= ~GLOB_ALTDIRFUNC;
  return result;
}

}  // namespace

INTERPOSE(int, glob, (const char* pattern, int flags, OnError on_error, glob_t* state)) {
  return glob_shown(pattern, flags, state,
                    [&](int with) { return next_glob(pattern, with, on_error, state); });
}

// The same function on the supported machines.
static_assert(sizeof(glob_t) == sizeof(glob64_t));
INTERPOSE(int, glob64, (const char* pattern, int flags, OnError on_error, glob_t* state)) {
  return glob_shown(pattern, flags, state,
                    [&](int with) { return next_glob64(pattern, with, on_error, state); });
}

}  // namespace verbena::sysfs

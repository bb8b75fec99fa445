// SPDX-License-Identifier: Apache-2.0
// Functions that list a directory. A root that the machine also has (because it has RDMA hardware) is listed
// merged: first the agent's entries, then the machine's other entries. A parent of roots, such as /sys/class,
// is listed in the other order: first the machine's entries, then the roots. So names found in it can be
// looked up by its descriptor.
//
// glob(3) accesses the file system inside the C library, where calls cannot be intercepted. So it gets
// functions for that (GLOB_ALTDIRFUNC).
#include <cstdlib>

#include <dirent.h>
#include <glob.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/interpose.h"
#include "preload/sysfs/shown_path.h"

namespace verbena::sysfs {
namespace {

// Two directories that the program sees as one DIR.
struct Pair {
  std::atomic<DIR*> first{nullptr};  // the one that the program holds; nullptr: a free entry
  std::atomic<DIR*> second{nullptr};
};
constinit Pair pairs[16];
constinit std::atomic<int> pair_count{0};

Pair* pair_of(DIR* first) {
  if (pair_count.load(std::memory_order_relaxed) == 0 || first == nullptr) return nullptr;
  for (Pair& pair : pairs) {
    if (pair.first.load(std::memory_order_acquire) == first) return &pair;
  }
  return nullptr;
}

// False if the table is full: the second directory then stays invisible.
bool join(DIR* first, DIR* second) {
  for (Pair& pair : pairs) {
    DIR* free_entry = nullptr;
    if (!pair.first.compare_exchange_strong(free_entry, first)) continue;
    pair.second.store(second, std::memory_order_release);
    pair_count.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

DIR* part(Pair& pair) {
  DIR* second = pair.second.exchange(nullptr);
  pair.first.store(nullptr, std::memory_order_release);
  pair_count.fetch_sub(1, std::memory_order_relaxed);
  return second;
}

bool has(DIR* directory, const char* name) {
  const ErrnoKeeper keeper;
  char status[256];  // struct stat's contents do not matter
  return syscall(SYS_newfstatat, dirfd(directory), name, status, AT_SYMLINK_NOFOLLOW) == 0;
}

}  // namespace

INTERPOSE(int, closedir, (DIR * directory)) {
  if (Pair* pair = pair_of(directory)) next_closedir(part(*pair));
  return next_closedir(directory);
}

namespace {
[[gnu::noinline]] DIR* open_parent(const char* path, const char* parent);
[[gnu::noinline]] DIR* open_in_root(const char* path);
}  // namespace

INTERPOSE(DIR*, opendir, (const char* path)) {
  if (may_be_shown(path)) return open_in_root(path);
  if (const char* parent = parent_of_root(path)) return open_parent(path, parent);
  return next_opendir(path);
}

namespace {

// Continues the listing of `first` with `second`.
void merge(DIR* first, DIR* second) {
  if (second != nullptr && !join(first, second)) next_closedir(second);
}

DIR* open_parent(const char* path, const char* parent) {
  DIR* directory = next_opendir(path);
  const paths::PathText beside = shown_beside(parent);
  if (directory != nullptr && beside.valid()) {
    const ErrnoKeeper keeper;
    merge(directory, next_opendir(beside.c_str()));
  }
  return directory;
}

DIR* open_in_root(const char* path) {
  const ShownPath where(chosen_directory(), AT_FDCWD, path);
  DIR* directory = next_opendir(where.replaced() ? where.target() : path);
  if (directory != nullptr && where.merged_root() != nullptr)
    merge(directory, next_opendir(where.merged_root()));
  return directory;
}

}  // namespace

INTERPOSE(DIR*, fdopendir, (int fd)) {
  const char* root = merged_root_open_as(fd);
  DIR* directory = next_fdopendir(fd);
  if (directory != nullptr && root != nullptr) merge(directory, next_opendir(root));
  return directory;
}

INTERPOSE(void, rewinddir, (DIR * directory)) {
  if (Pair* pair = pair_of(directory)) next_rewinddir(pair->second.load(std::memory_order_acquire));
  next_rewinddir(directory);
}

#define READ(name, Entry)                                                \
  INTERPOSE(Entry*, name, (DIR * directory)) {                           \
    Entry* entry = next_##name(directory);                               \
    Pair* pair = entry == nullptr ? pair_of(directory) : nullptr;        \
    if (pair == nullptr) return entry;                                   \
    do {                                                                 \
      entry = next_##name(pair->second.load(std::memory_order_acquire)); \
    } while (entry != nullptr && has(directory, entry->d_name));         \
    return entry;                                                        \
  }

#define READ_INTO(name, Entry)                                                          \
  INTERPOSE(int, name, (DIR * directory, Entry * entry, Entry * *result)) {             \
    int error = next_##name(directory, entry, result);                                  \
    Pair* pair = error == 0 && *result == nullptr ? pair_of(directory) : nullptr;       \
    if (pair == nullptr) return error;                                                  \
    do {                                                                                \
      error = next_##name(pair->second.load(std::memory_order_acquire), entry, result); \
    } while (error == 0 && *result != nullptr && has(directory, entry->d_name));        \
    return error;                                                                       \
  }

READ(readdir, dirent)
READ(readdir64, dirent64)
READ_INTO(readdir_r, dirent)
READ_INTO(readdir64_r, dirent64)

namespace {

bool holds_name(dirent** list, int count, const char* name) {
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(list[i]->d_name, name) == 0) return true;
  }
  return false;
}

// Moves the entries of `more` that `list` lacks to `list`. Both were allocated with malloc(3) by the C
// library.
int append(dirent*** list, int count, dirent** more, int more_count) {
  const auto room = static_cast<size_t>(count) + static_cast<size_t>(more_count);
  auto** grown = static_cast<dirent**>(std::realloc(*list, (room + 1) * sizeof(dirent*)));
  if (grown != nullptr) *list = grown;
  const int named = count;
  for (int i = 0; i < more_count; ++i) {
    if (grown != nullptr && !holds_name(*list, named, more[i]->d_name)) {
      grown[count++] = more[i];
    } else {
      std::free(more[i]);
    }
  }
  std::free(more);
  return count;
}

using Filter = int (*)(const dirent*);
using Order = int (*)(const dirent**, const dirent**);

// Adds the entries of another directory that the list lacks, and sorts the list.
template <class Scan>
int scan_also(const char* path, dirent*** list, int count, Order order, Scan scan) {
  const ErrnoKeeper keeper;
  dirent** more = nullptr;
  const int more_count = scan(AT_FDCWD, path, &more);
  if (more_count < 0) return count;
  const int total = append(list, count, more, more_count);
  if (order != nullptr) {
    std::qsort(*list, static_cast<size_t>(total), sizeof(dirent*),
               reinterpret_cast<int (*)(const void*, const void*)>(order));
  }
  return total;
}

template <class Scan>
[[gnu::noinline]] int scan_shown(int at, const char* path, dirent*** list, Order order, Scan scan) {
  const ShownPath where(chosen_directory(), at, path);
  const int count = where.replaced() ? scan(AT_FDCWD, where.target(), list) : scan(at, path, list);
  if (count < 0 || where.merged_root() == nullptr) return count;
  return scan_also(where.merged_root(), list, count, order, scan);
}

template <class Scan>
[[gnu::noinline]] int scan_parent(const char* path, const char* parent, dirent*** list, Order order,
                                  Scan scan) {
  const int count = scan(AT_FDCWD, path, list);
  const paths::PathText beside = shown_beside(parent);
  return count < 0 || !beside.valid() ? count : scan_also(beside.c_str(), list, count, order, scan);
}

template <class Scan>
int scan_at(int at, const char* path, dirent*** list, Order order, Scan scan) {
  if (may_be_shown(path)) return scan_shown(at, path, list, order, scan);
  const char* parent = parent_of_root(path);
  if (parent != nullptr && at == AT_FDCWD) return scan_parent(path, parent, list, order, scan);
  return scan(at, path, list);
}

// The 64-bit variants are the same functions on the supported machines.
static_assert(sizeof(dirent) == sizeof(dirent64));

}  // namespace

#define SCAN(name)                                                                             \
  INTERPOSE(int, name, (const char* path, dirent*** list, Filter filter, Order order)) {       \
    return scan_at(AT_FDCWD, path, list, order, [&](int, const char* target, dirent*** into) { \
      return next_##name(target, into, filter, order);                                         \
    });                                                                                        \
  }
#define SCAN_AT(name)                                                                              \
  INTERPOSE(int, name, (int at, const char* path, dirent*** list, Filter filter, Order order)) {   \
    return scan_at(at, path, list, order, [&](int directory, const char* target, dirent*** into) { \
      return next_##name(directory, target, into, filter, order);                                  \
    });                                                                                            \
  }

SCAN(scandir)
SCAN(scandir64)
SCAN_AT(scandirat)
SCAN_AT(scandirat64)

namespace {

using OnError = int (*)(const char*, int);

void use_our_functions(glob_t& state) {
  state.gl_opendir = [](const char* path) -> void* { return shown_opendir(path); };
  state.gl_readdir = [](void* directory) { return shown_readdir(static_cast<DIR*>(directory)); };
  state.gl_closedir = [](void* directory) { shown_closedir(static_cast<DIR*>(directory)); };
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

#define GLOB(name)                                                                            \
  INTERPOSE(int, name, (const char* pattern, int flags, OnError on_error, glob_t* state)) {   \
    return glob_shown(pattern, flags, state,                                                  \
                      [&](int with) { return next_##name(pattern, with, on_error, state); }); \
  }

GLOB(glob)
GLOB(glob64)
// The same function on the supported machines.
static_assert(sizeof(glob_t) == sizeof(glob64_t));

}  // namespace verbena::sysfs

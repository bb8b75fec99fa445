// SPDX-License-Identifier: Apache-2.0
// Functions that simplify a path. The C library follows links internally, where calls cannot be intercepted.
// So these functions work on the real path and translate the result back to the shown path.
#include <climits>
#include <cstdlib>
#include <cstring>

#include "base/interpose.h"
#include "preload/sysfs/shown_path.h"

namespace verbena::sysfs {
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
char* simplify_shown(const char* path, Function function) __attribute__((noinline));

template <class Function>
char* simplify_shown(const char* path, Function function) {
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

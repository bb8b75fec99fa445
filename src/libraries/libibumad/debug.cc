// SPDX-License-Identifier: Apache-2.0
#include "libraries/libibumad/debug.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

#include <infiniband/umad.h>
#include <unistd.h>

#include "base/c_abi.h"

namespace verbena::umad {
namespace {

constinit std::atomic<int> level{0};

}  // namespace

int debug_level() {
  return level.load(std::memory_order_relaxed);
}

void say(const char* function, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "ibwarn: [%d] %s: %s\n", ::getpid(), function, text);
}

}  // namespace verbena::umad

VERBENA_ABI int umad_debug(int wanted) {
  if (wanted >= 0) verbena::umad::level.store(wanted, std::memory_order_relaxed);
  return verbena::umad::debug_level();
}

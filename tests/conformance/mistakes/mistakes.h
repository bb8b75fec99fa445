// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include <infiniband/verbs.h>

// Mistakes that programs make with verbs and librdmacm, each as short as it can be. run_mistakes.py starts
// them one by one and looks at the log.
namespace mistakes {

// Where the mistake is made: a device and the index of its IPv4 GID.
struct Place {
  ibv_context* context;
  uint8_t gid_index;
  ibv_gid gid;
  const char* address;  // the same, for librdmacm
};

struct Mistake {
  const char* name;
  void (*make)(const Place&);
};

std::span<const Mistake> with_verbs();
std::span<const Mistake> with_connections();

// An enumeration's value that it does not have, as C programs pass it.
template <class Enum>
Enum no_such(int number) {
  Enum value{};
  static_assert(sizeof value == sizeof number);
  std::memcpy(&value, &number, sizeof value);
  return value;
}

// Ends the program unless `good`: a step before the mistake has failed.
void need(bool good, const char* step);

}  // namespace mistakes

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include <infiniband/verbs.h>

// Common mistakes in the use of verbs and librdmacm, each as short as possible. run_mistakes.py runs them one
// by one and checks the log.
namespace mistakes {

// The device of a mistake, and the index of its IPv4 GID.
struct Place {
  ibv_context* context;
  uint8_t gid_index;
  ibv_gid gid;
  const char* address;  // the GID's address, for librdmacm
};

struct Mistake {
  const char* name;
  void (*make)(const Place&);
};

std::span<const Mistake> with_verbs();
std::span<const Mistake> with_connections();

// Returns an enumeration value that does not exist, as C programs can pass it.
template <class Enum>
Enum no_such(int number) {
  Enum value{};
  static_assert(sizeof value == sizeof number);
  std::memcpy(&value, &number, sizeof value);
  return value;
}

// Ends the program unless `good`: a step before the mistake failed.
void need(bool good, const char* step);

}  // namespace mistakes

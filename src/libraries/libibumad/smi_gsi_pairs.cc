// SPDX-License-Identifier: Apache-2.0
// umad_open_smi_port(3), umad_get_smi_gsi_pairs(3) and umad_get_smi_gsi_pair_by_ca_name(3): IBUMAD_1.3 and
// 1.4. Some adapters have separate devices for SMI and GSI; our ports serve both.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/c_abi.h"
#include "libraries/libibumad/adapters.h"
#include "libraries/libibumad/newer.h"

namespace verbena::umad::newer {
namespace {

CaPair pair_of(const std::string& device, uint32_t port) {
  CaPair pair{};
  const size_t size = std::min(device.size(), sizeof pair.smi_name - 1);
  std::memcpy(pair.smi_name, device.data(), size);
  std::memcpy(pair.gsi_name, device.data(), size);
  pair.smi_port = pair.gsi_port = port;
  return pair;
}

}  // namespace

VERBENA_NEWER_ABI(int, umad_open_smi_port, const char* name, int number) {
  return umad_open_port(name, number);
}

// Returns the number of devices, at most `max`; -1 on failure. Port numbers stay 0: only the function below
// selects a port.
VERBENA_NEWER_ABI(int, umad_get_smi_gsi_pairs, CaPair* pairs, size_t max) {
  int count = -1;
  without_exceptions([&] {
    if (pairs == nullptr && max > 0) return EINVAL;
    std::fill_n(pairs, max, CaPair{});
    auto links = adapters();
    if (!links) return count = 0;
    std::ranges::sort(*links, {}, &control::Link::name);
    const size_t found = std::min(links->size(), max);
    for (size_t i = 0; i < found; ++i) pairs[i] = pair_of((*links)[i].name, 0);
    count = static_cast<int>(found);
    return 0;
  });
  return count;
}

// Returns 0 or a negative errno value. A device given by name may be down; a null name selects the first
// active device. -ENODEV if there is no such device or port.
VERBENA_NEWER_ABI(int, umad_get_smi_gsi_pair_by_ca_name, const char* name, uint8_t number, CaPair* pair,
                  unsigned /*enforce_smi*/) {
  if (pair == nullptr) return -1;
  const int failed = without_exceptions([&] {
    *pair = CaPair{};
    const auto chosen = choose(name, number);
    if (!chosen || (number != 0 && number != kPortNumber)) return ENODEV;
    *pair = pair_of(chosen->link.name, kPortNumber);
    return 0;
  });
  if (failed != 0) errno = failed;
  return -failed;
}

}  // namespace verbena::umad::newer

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <infiniband/umad.h>

#include "base/result.h"
#include "control/model/link.h"

namespace verbena::umad {

// The port number of all our adapters: each has one port.
inline constexpr int kPortNumber = 1;

// Returns all adapters, except those whose names are too long for libibumad's structs. Thread-safe.
Result<std::vector<control::Link>> adapters();

// The result of choose(): an adapter and a port number. The port number is 0 if the program named an adapter
// but no port.
struct Choice {
  control::Link link;
  int port = 0;
};
// Selects an adapter and a port as libibumad does. Returns a named adapter as is, even if its port is down,
// unless `port` is 0. Otherwise selects an active adapter that matches, preferably one with an address that
// is not link-local. Errors: ENODEV if there is none.
Result<Choice> choose(const char* name, std::optional<int> port);

// struct umad_ca_pair of umad.h since rdma-core 56. Names the devices that serve a port's SMI (subnet
// management) and GSI (all other classes), with the port number on each device. A name is empty if there is
// no such device.
struct CaPair {
  char smi_name[UMAD_CA_NAME_LEN];
  uint32_t smi_port;
  char gsi_name[UMAD_CA_NAME_LEN];
  uint32_t gsi_port;
};
static_assert(sizeof(CaPair) == 48 && offsetof(CaPair, smi_port) == 20 && offsetof(CaPair, gsi_name) == 24 &&
              offsetof(CaPair, gsi_port) == 44);

}  // namespace verbena::umad

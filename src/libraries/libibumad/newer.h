// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <infiniband/umad.h>

namespace verbena::umad {

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

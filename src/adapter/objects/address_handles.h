// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/objects/limits.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "wire/roce/path.h"

namespace verbena::adapter {

struct Pd;

// An address handle (ibv_create_ah(3)). Like the other objects, an Ah keeps the values that the adapter uses
// in its own members, because programs can write the fields of ibv_ah.
struct Ah : ibv_ah {
  using Abi = ibv_ah;
  static Ah& of(ibv_ah* ah) { return *static_cast<Ah*>(ah); }

  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  Pd* domain = nullptr;
  roce::Path path;
};

// Creates and owns the address handles of a context. Thread-safe.
class AddressHandles {
 public:
  explicit AddressHandles(OpenDevice& device) : device_(device) {}

  Result<ibv_ah*> create(ibv_pd* pd, const ibv_ah_attr& attr);
  int destroy(ibv_ah* ah);

  // Answers ibv_resolve_eth_l2_from_gid(3): writes the MAC address of the device's own netdev to `mac`, and
  // 0xffff (no VLAN) to `vlan`, which may be null. The adapter uses neither value: packets leave by UDP
  // sockets, for which the kernel resolves addresses. Returns 0, an error of OpenDevice::resolve(), or ENODEV
  // if the link was deleted.
  int resolve_ethernet(const ibv_ah_attr& attr, uint8_t mac[6], uint16_t* vlan) const;

 private:
  OpenDevice& device_;
  ObjectTable<Ah> table_{object_limits().ahs};
};

}  // namespace verbena::adapter

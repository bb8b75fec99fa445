// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include "adapter/objects/limits.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "wire/roce/path.h"

namespace verbena::adapter {

struct Pd;

// Like the other objects it keeps what it uses in members of its own: programs can write the fields of
// ibv_ah.
struct Ah : ibv_ah {
  using Abi = ibv_ah;
  static Ah& of(ibv_ah* ah) { return *static_cast<Ah*>(ah); }

  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  Pd* domain = nullptr;
  roce::Path path;
};

// The address handles of a context.
class AddressHandles {
 public:
  explicit AddressHandles(OpenDevice& device) : device_(device) {}

  Result<ibv_ah*> create(ibv_pd* pd, const ibv_ah_attr& attr);
  int destroy(ibv_ah* ah);

  // Where a packet to this destination goes on the Ethernet.
  int resolve_ethernet(const ibv_ah_attr& attr, uint8_t mac[6], uint16_t* vlan) const;

 private:
  OpenDevice& device_;
  ObjectTable<Ah> table_{object_limits().ahs};
};

}  // namespace verbena::adapter

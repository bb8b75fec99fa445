// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <infiniband/verbs.h>

#include "base/result.h"

namespace verbena::rdmacm {

// An open device, and what its identifiers share: rdma_cm_id::verbs, the default protection domain, the XRC
// domain. The domains exist while identifiers use the device. The context is never closed, because
// applications keep using rdma_cm_id::verbs after the identifier is gone (rdma_get_devices(3)).
struct Device {
  ibv_context* context = nullptr;
  int index = 0;
  uint8_t max_initiator_depth = 0;
  uint8_t max_responder_resources = 0;

  std::mutex mutex;
  uint64_t users = 0;
  ibv_pd* domain = nullptr;
  ibv_xrcd* xrc_domain = nullptr;

  // Counts a user, and returns the default domain, which exists from the first use() to the last leave().
  Result<ibv_pd*> use();
  void leave();
  Result<ibv_xrcd*> shared_xrc_domain();
};

// The devices of a process, opened at first use. Thread-safe.
class Devices {
 public:
  // ENODEV if there is no device. librdmacm checks this before anything else.
  Result<void> require_any();
  // Returns the device of a name (protocol::CmRoute::link). If several have that name because one is gone,
  // prefers the one with this index.
  Result<std::shared_ptr<Device>> find(const std::string& name, uint32_t index);
  // Returns all current devices, in the order of their indices.
  Result<std::vector<std::shared_ptr<Device>>> all();

 private:
  // Like find(), without the cache. REQUIRES: mutex_ is held
  Result<std::shared_ptr<Device>> look_for(const std::string& name, uint32_t index);
  // Opens a device, or returns it if it is open. REQUIRES: mutex_ is held
  Result<std::shared_ptr<Device>> open(ibv_device* device);

  std::mutex mutex_;
  bool any_ = false;
  std::map<ibv_device*, std::shared_ptr<Device>> opened_;
  // Cache of find() results by (name, index). A restarted agent gives devices new indices, but libibverbs
  // keeps the old ones; find() then matches only the name.
  std::map<std::pair<std::string, uint32_t>, std::shared_ptr<Device>> found_;
};

}  // namespace verbena::rdmacm

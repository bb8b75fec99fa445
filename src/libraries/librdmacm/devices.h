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

// An open device, and the objects that its identifiers share: rdma_cm_id::verbs, the default protection
// domain, the XRC domain. The domains exist while identifiers use the device, or while objects of the
// application are in the domains. The context is never closed, because applications keep using
// rdma_cm_id::verbs after the identifier is gone (rdma_get_devices(3)).
struct Device {
  ibv_context* context = nullptr;
  int index = 0;
  uint8_t max_initiator_depth = 0;
  uint8_t max_responder_resources = 0;

  std::mutex mutex;
  uint64_t users = 0;
  ibv_pd* domain = nullptr;
  ibv_xrcd* xrc_domain = nullptr;

  // use() counts an identifier that uses the device, and returns the default protection domain. leave() ends
  // one use; the last leave() frees both domains. shared_xrc_domain() creates the XRC domain at the first
  // call.
  Result<ibv_pd*> use();
  void leave();
  Result<ibv_xrcd*> shared_xrc_domain();
};

// The devices of a process, opened at first use. Thread-safe.
class Devices {
 public:
  // Returns ENODEV if there is no RDMA device. Called before a channel or an identifier is created. Once
  // successful, always succeeds.
  Result<void> require_any();
  // Returns the device of this name (protocol::CmRoute::link), opened if necessary. If a device is gone and
  // another has got its name, libibverbs may list both: then returns the one with this index if there is one.
  // Errors: ENODEV if there is none or it cannot be opened; those of ibv_query_device(3).
  Result<std::shared_ptr<Device>> find(const std::string& name, uint32_t index);
  // Returns all current devices that can be opened, in the order of their indices; ENODEV if there is no
  // device.
  Result<std::vector<std::shared_ptr<Device>>> all();

 private:
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

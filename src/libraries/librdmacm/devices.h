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

// A device that is open for identifiers, and what they share: rdma_cm_id::verbs, the default protection
// domain, the XRC domain. It stays open as long as anyone uses it; the context itself for good, since
// applications go on using rdma_cm_id::verbs after the identifier (rdma_get_devices(3)).
struct Device {
  ibv_context* context = nullptr;
  int index = 0;
  uint8_t max_initiator_depth = 0;
  uint8_t max_responder_resources = 0;

  std::mutex mutex;
  uint64_t users = 0;
  ibv_pd* domain = nullptr;
  ibv_xrcd* xrc_domain = nullptr;

  // Use of the default domain, which is there from the first use to the last.
  Result<ibv_pd*> use();
  void leave();
  Result<ibv_xrcd*> shared_xrc_domain();
};

// The devices of a process, opened at first use. Thread-safe.
class Devices {
 public:
  // ENODEV: there is none at all. What librdmacm finds out before anything else.
  Result<void> require_any();
  // By name, as protocol::CmRoute::link has it; of several of that name (one is gone), that of `index`.
  Result<std::shared_ptr<Device>> find(const std::string& name, uint32_t index);
  // All there are now.
  Result<std::vector<std::shared_ptr<Device>>> all();

 private:
  // REQUIRES: mutex_ is held
  Result<std::shared_ptr<Device>> look_for(const std::string& name, uint32_t index);
  Result<std::shared_ptr<Device>> open(ibv_device* device);

  std::mutex mutex_;
  bool any_ = false;
  std::map<ibv_device*, std::shared_ptr<Device>> opened_;
  // What find() has answered. A restarted agent gives devices new numbers, and libibverbs keeps the old ones.
  std::map<std::pair<std::string, uint32_t>, std::shared_ptr<Device>> found_;
};

}  // namespace verbena::rdmacm

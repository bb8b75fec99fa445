// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include <infiniband/verbs.h>

#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/xrc_domain.h"

namespace verbena::adapter {

// A handle of an XRC domain as the application knows it (ibv_open_xrcd(3)).
struct Xrcd : ibv_xrcd {
  using Abi = ibv_xrcd;
  static Xrcd& of(ibv_xrcd* xrcd) { return *static_cast<Xrcd*>(xrcd); }

  ListHook owned;
  provider::LiveObject live;
  std::shared_ptr<XrcDomain> domain;
  std::atomic<uint32_t> users{0};  // SRQs and QPs that were created or opened with this handle
};

// Creates and owns the XRC domain handles of a context. Thread-safe.
class XrcDomainHandles {
 public:
  explicit XrcDomainHandles(OpenDevice& device) : device_(device) {}

  Result<ibv_xrcd*> open(const ibv_xrcd_init_attr& attr);
  int close(ibv_xrcd* xrcd);

 private:
  Result<std::shared_ptr<XrcDomain>> find_domain(const ibv_xrcd_init_attr& attr) const;

  OpenDevice& device_;
  ObjectTable<Xrcd> table_;
};

}  // namespace verbena::adapter

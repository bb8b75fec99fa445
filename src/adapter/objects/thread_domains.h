// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include <infiniband/verbs.h>

#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"

namespace verbena::adapter {

// A thread domain (ibv_alloc_td(3)): the application promises that only one thread at a time uses the objects
// in the domain. So posting to and polling these objects takes no lock of a queue.
struct Td : ibv_td {
  using Abi = ibv_td;
  static Td& of(ibv_td* td) { return *static_cast<Td*>(td); }

  ListHook owned;
  provider::LiveObject live;
  std::atomic<uint32_t> users{0};  // parent domains
};

// Creates and owns the thread domains of a context. Thread-safe.
class ThreadDomains {
 public:
  explicit ThreadDomains(OpenDevice& device) : device_(device) {}

  Result<ibv_td*> alloc(const ibv_td_init_attr& attr);
  int dealloc(ibv_td* td);

 private:
  OpenDevice& device_;
  ObjectTable<Td> table_;
};

}  // namespace verbena::adapter

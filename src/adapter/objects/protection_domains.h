// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include <infiniband/verbs.h>

#include "adapter/memory/region.h"
#include "adapter/objects/custom_memory.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/objects/user_count.h"

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

// The state of a protection domain. The ibv_pd that allocated the domain shares the state with every ibv_pd
// that imports the domain (ibv_import_pd(3)).
struct PdState {
  memory::PdId id = 0;
  engine::ShownObjects::Entry shown;
  UserCount users;  // MRs, MWs, QPs, AHs, SRQs, WQs, CQs and parent domains
};

// A protection domain, or a parent domain, which extends a protection domain (ibv_alloc_parent_domain(3)). A
// parent domain has the id of the protection domain that it extends, and so the same rights. To compare
// domains, compare ids, never pointers.
struct Pd : ibv_pd {
  using Abi = ibv_pd;
  explicit Pd(std::shared_ptr<PdState> shared)
      : ibv_pd{}, state(std::move(shared)), id(state->id), users(state->users) {}
  static Pd& of(ibv_pd* pd) { return *static_cast<Pd*>(pd); }

  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  const std::shared_ptr<PdState> state;
  const memory::PdId id;
  UserCount& users;
  // The following members are set in parent domains only.
  Pd* parent_of = nullptr;
  Td* thread = nullptr;
  std::unique_ptr<CustomMemory> memory;  // allocates rings of the objects in the domain, or null
};

// Creates and owns the protection domains and parent domains of a context. Thread-safe.
class ProtectionDomains {
 public:
  explicit ProtectionDomains(OpenDevice& device) : device_(device) {}

  Result<ibv_pd*> alloc();
  Result<ibv_pd*> alloc_parent(const ibv_parent_domain_init_attr& attr);
  int dealloc(ibv_pd* pd);

  // Returns the state of the domain with this handle, so that another context can import it. Returns null if
  // this context has no such domain.
  std::shared_ptr<PdState> find(uint32_t handle);
  ibv_pd* import(std::shared_ptr<PdState> state, uint32_t handle);
  void unimport(ibv_pd* pd) { table_.destroy(Pd::of(pd)); }

 private:
  ibv_pd* add(std::unique_ptr<Pd> pd, uint32_t handle);

  OpenDevice& device_;
  ObjectTable<Pd> table_{object_limits().pds};
};

}  // namespace verbena::adapter

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <infiniband/verbs.h>
#include <pthread.h>

#include "adapter/async_events.h"
#include "adapter/custom_memory.h"
#include "adapter/registration.h"
#include "adapter/send_batch.h"
#include "adapter/xrc_domain.h"
#include "base/intrusive_list.h"
#include "engine/ethernet_link.h"
#include "engine/shard.h"
#include "memory/region.h"
#include "queues/completion_queue.h"
#include "queues/event_channel.h"
#include "queues/shared_receive_queue.h"
#include "roce/path.h"
#include "transport/queue_pair.h"

namespace verbena::adapter {

class SoftwareContext;

// The adapter's objects. Each begins with the C struct that the application holds a pointer to; of() goes
// back. 'owned' keeps it in its context's list, so that the context can destroy what the application left
// behind.

// Of a protection domain, what the ibv_pd that made it and those that import it (ibv_import_pd(3)) share.
struct PdState {
  memory::PdId id = 0;
  std::atomic<uint32_t> users{0};  // MRs, MWs, QPs, AHs, parent domains
};

// A thread domain: what is made under it is used by one thread at a time.
struct Td : ibv_td {
  static Td& of(ibv_td* td) { return *static_cast<Td*>(td); }

  ListHook owned;
  std::atomic<uint32_t> users{0};  // parent domains
};

// A protection domain; or a parent domain, which is one with more to it (ibv_alloc_parent_domain(3)). A
// parent domain has the id of the domain it was made of, and so the same rights: compare ids, never pointers.
struct Pd : ibv_pd {
  explicit Pd(std::shared_ptr<PdState> shared)
      : ibv_pd{}, state(std::move(shared)), id(state->id), users(state->users) {}
  static Pd& of(ibv_pd* pd) { return *static_cast<Pd*>(pd); }

  ListHook owned;
  const std::shared_ptr<PdState> state;
  const memory::PdId id;
  std::atomic<uint32_t>& users;
  // Of a parent domain
  Pd* parent_of = nullptr;
  Td* thread = nullptr;
  std::unique_ptr<CustomMemory> memory;  // where the rings of its objects come from; null: the system
};

// Whether two objects are under one protection.
inline bool same_domain(ibv_pd* a, ibv_pd* b) {
  return Pd::of(a).id == Pd::of(b).id;
}

struct Mr : ibv_mr {
  static Mr& of(ibv_mr* mr) { return *static_cast<Mr*>(mr); }

  ListHook owned;
  std::shared_ptr<Registration> registration;
  bool imported = false;
};

struct Mw : ibv_mw {
  static Mw& of(ibv_mw* mw) { return *static_cast<Mw*>(mw); }

  ListHook owned;
  memory::Region window;
};

struct Dm : ibv_dm {
  static Dm& of(ibv_dm* dm) { return *static_cast<Dm*>(dm); }

  ListHook owned;
  std::shared_ptr<DeviceMemory> memory;
};

struct CompChannel : ibv_comp_channel {
  static CompChannel& of(ibv_comp_channel* channel) { return *static_cast<CompChannel*>(channel); }

  ListHook owned;
  std::unique_ptr<queues::EventChannel> events;
};

// The mutex and condition variable that some of the C structs carry, for the accounting of events.
class EventAccount {
 public:
  EventAccount(pthread_mutex_t& mutex, pthread_cond_t& cond) : mutex_(mutex), cond_(cond) {
    ::pthread_mutex_init(&mutex_, nullptr);
    ::pthread_cond_init(&cond_, nullptr);
  }
  ~EventAccount() {
    ::pthread_cond_destroy(&cond_);
    ::pthread_mutex_destroy(&mutex_);
  }
  EventAccount(const EventAccount&) = delete;
  EventAccount& operator=(const EventAccount&) = delete;

  void acknowledge(uint32_t& completed, uint32_t count) {
    ::pthread_mutex_lock(&mutex_);
    completed += count;
    ::pthread_cond_broadcast(&cond_);
    ::pthread_mutex_unlock(&mutex_);
  }

  // Until as many have been acknowledged as were taken.
  void await(const uint32_t& completed, const std::atomic<uint32_t>& taken) {
    ::pthread_mutex_lock(&mutex_);
    while (completed != taken.load()) ::pthread_cond_wait(&cond_, &mutex_);
    ::pthread_mutex_unlock(&mutex_);
  }

 private:
  pthread_mutex_t& mutex_;
  pthread_cond_t& cond_;
};

// The C struct is an ibv_cq_ex, whose first part is an ibv_cq.
struct Cq : ibv_cq_ex, queues::EventSource, queues::CompletionListener, engine::Alarm {
  explicit Cq(SoftwareContext& maker);
  static Cq& of(ibv_cq* cq) { return *static_cast<Cq*>(reinterpret_cast<ibv_cq_ex*>(cq)); }
  static Cq& of(queues::EventSource& source) { return static_cast<Cq&>(source); }
  ibv_cq* abi() { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(this)); }

  void on_completion_event() override;
  void on_overflow() override;
  void on_event_held() override;
  void on_alarm() override;

  SoftwareContext& owner;
  ListHook owned;
  EventAccount account;
  // Events handed to the application; the ones it acknowledged are counted in the C struct.
  std::atomic<uint32_t> comp_events_taken{0};
  std::atomic<uint32_t> async_events_taken{0};
  AsyncEvents<kCqEvents.size()> async_events;
  CompChannel* comp_channel = nullptr;
  Pd* parent_domain = nullptr;
  std::unique_ptr<queues::CompletionQueue> queue;
  const queues::Completion* current = nullptr;  // of the batch that is being polled
  Duration moderation{0};                       // how long an event is held back; under the shard's lock
  std::atomic<uint32_t> users{0};               // QPs, each counted for each of its two roles
};

// A multicast group as a QP was attached to it.
struct MulticastBinding {
  roce::Address group;
  uint16_t lid = 0;
  friend bool operator==(const MulticastBinding&, const MulticastBinding&) = default;
};

struct Srq : ibv_srq, queues::LimitListener {
  explicit Srq(SoftwareContext& maker);
  static Srq& of(ibv_srq* srq) { return *static_cast<Srq*>(srq); }

  void on_limit_reached() override;

  SoftwareContext& owner;
  ListHook owned;
  EventAccount account;
  std::atomic<uint32_t> async_events_taken{0};
  AsyncEvents<kSrqEvents.size()> async_events;
  ibv_srq_type type = IBV_SRQT_BASIC;
  std::unique_ptr<queues::SharedReceiveQueue> queue;
  ibv_cq* cq = nullptr;            // XRC, tag matching
  ibv_xrcd* xrcd = nullptr;        // XRC
  std::atomic<uint32_t> users{0};  // QPs
};

struct Xrcd : ibv_xrcd {
  static Xrcd& of(ibv_xrcd* xrcd) { return *static_cast<Xrcd*>(xrcd); }

  ListHook owned;
  std::shared_ptr<XrcDomain> domain;
  std::atomic<uint32_t> users{0};  // SRQs and QPs made or opened through this handle
};

struct Qp;

// What all handles of one queue pair share. Only an XRC target has more than one (ibv_open_qp(3)): whoever
// closes the last one ends it.
struct QpCore : transport::QpEventListener {
  void on_qp_event(ibv_event_type event) override;

  // False: it has ended, with its last handle.
  bool add(Qp& handle);
  // Whether it was the last.
  bool remove(Qp& handle);

  std::unique_ptr<transport::QueuePair> transport;
  ibv_qp_attr attributes{};  // as last set; what the transport owns is filled in when queried
  std::mutex modifying;

 private:
  SpinLock lock_;
  std::vector<Qp*> handles_;
  bool ended_ = false;
};

struct Qp;
struct RwqIndTable;

// What a raw QP has besides.
struct RawSide {
  explicit RawSide(std::shared_ptr<engine::EthernetLink> ethernet)
      : link(std::move(ethernet)), sender(*link) {}

  const std::shared_ptr<engine::EthernetLink> link;
  engine::EthernetLink::Sender sender;
  RwqIndTable* table = nullptr;    // it spreads what it receives over this one's queues
  std::atomic<uint32_t> flows{0};  // rules that name it

  // Receive requests were posted to the QP, which is this one's.
  void after_receives(Qp& qp);
  // REQUIRES: inside Shard::exclusively()
  void limit_rate(Qp& qp, uint32_t rate, uint32_t burst);
};

// The C struct is an ibv_qp_ex, whose first member is an ibv_qp.
struct Qp : ExtendedQp {
  Qp(SoftwareContext& maker, std::shared_ptr<QpCore> shared);
  static Qp& of(ibv_qp* qp) { return *static_cast<Qp*>(reinterpret_cast<ibv_qp_ex*>(qp)); }
  ibv_qp* abi() { return &qp_base; }

  SoftwareContext& owner;
  engine::Shard& shard;
  ListHook owned;
  EventAccount account;
  std::atomic<uint32_t> async_events_taken{0};
  AsyncEvents<kQpEvents.size()> async_events;
  std::unique_ptr<RawSide> raw;  // null unless it is for raw packets
  const std::shared_ptr<QpCore> core;
  transport::QueuePair* const transport;  // the core's
  ibv_qp_attr& attributes;                // likewise
  std::mutex& modifying;                  // likewise
  ibv_qp_init_attr init{};
  std::vector<MulticastBinding> multicast;  // the groups this handle is attached to
  ibv_xrcd* xrcd = nullptr;                 // an XRC target's
  uint32_t send_opcodes = 0;                // what may be posted, a bit each (send_rules.h)
  uint32_t create_flags = 0;                // enum ibv_qp_create_flags
  bool one_thread = false;                  // of a thread domain: posting takes no lock
  bool extended = false;                    // created for ibv_wr_*
  SendBatch batch;
};

struct Ah : ibv_ah {
  static Ah& of(ibv_ah* ah) { return *static_cast<Ah*>(ah); }

  ListHook owned;
  roce::Path path;
};

}  // namespace verbena::adapter

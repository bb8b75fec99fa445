// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include <infiniband/verbs.h>

#include "adapter/objects/async_events.h"
#include "adapter/objects/event_account.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/object_table.h"
#include "adapter/objects/open_device.h"
#include "adapter/queues/shared_receive_queue.h"

namespace verbena::adapter {

struct Pd;

// A shared receive queue as the application knows it: basic, for XRC, or with tag matching.
struct Srq : ibv_srq, queues::LimitListener {
  using Abi = ibv_srq;
  explicit Srq(OpenDevice& device);
  static Srq& of(ibv_srq* srq) { return *static_cast<Srq*>(srq); }

  void on_limit_reached() override;

  OpenDevice& owner;
  ListHook owned;
  provider::LiveObject live;
  ObjectLimit::Place place;
  engine::ShownObjects::Entry shown;
  EventAccount account;
  std::atomic<uint32_t> async_events_taken{0};
  AsyncEvents<kSrqEvents.size()> async_events;
  ibv_srq_type type = IBV_SRQT_BASIC;
  std::unique_ptr<queues::SharedReceiveQueue> queue;
  Pd* domain = nullptr;
  ibv_cq* cq = nullptr;            // set for XRC and tag matching
  ibv_xrcd* xrcd = nullptr;        // set for XRC
  std::atomic<uint32_t> users{0};  // QPs that receive from the SRQ
};

// Creates and owns the shared receive queues of a context. Thread-safe.
class SharedReceiveQueues {
 public:
  explicit SharedReceiveQueues(OpenDevice& device) : device_(device) {}
  ~SharedReceiveQueues() {
    table_.destroy_all([&](Srq& srq) { retire(srq); });
  }

  // Creates an SRQ, and writes the granted capacities back to attr.attr.
  Result<ibv_srq*> create(ibv_srq_init_attr_ex& attr);
  int modify(ibv_srq* srq, const ibv_srq_attr& attr, int mask);
  int query(ibv_srq* srq, ibv_srq_attr& attr) const;
  int number(ibv_srq* srq, uint32_t& number) const;
  int destroy(ibv_srq* srq);

  // Adds and removes tagged buffers of an SRQ (ibv_post_srq_ops(3)). Defined in tag_operations.cc.
  int post_operations(ibv_srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr);

 private:
  Result<ibv_srq_type> check(const ibv_srq_init_attr_ex& attr) const;
  // Creates the receive queue of `srq`. REQUIRES: srq.type is the result of check(attr)
  Result<std::unique_ptr<queues::SharedReceiveQueue>> make_queue(const ibv_srq_init_attr_ex& attr, Srq& srq);
  // Removes the SRQ's pending events. For XRC, also removes the SRQ from the table of XRC queues, so that no
  // QP and no other process can find it. Called before the SRQ is destroyed.
  void retire(Srq& srq);

  OpenDevice& device_;
  ObjectTable<Srq> table_{object_limits().srqs};
};

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);

}  // namespace verbena::adapter

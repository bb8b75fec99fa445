// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "adapter/memory/region.h"
#include "adapter/queues/completion_queue.h"
#include "adapter/queues/shared_receive_queue.h"
#include "adapter/queues/shared_receive_queue_table.h"
#include "adapter/queues/tag_list.h"
#include "adapter/queues/work_queue.h"

namespace verbena::transport {

// The receive requests for a QP's incoming messages, from its own receive queue or a shared one.
//
// A request of the QP's own queue stays in its ring until its message is complete. A request of a shared
// queue is taken out and held here until then, since messages of other QPs take the following requests (IBTA
// volume 1, 10.2.9).
//
// For the shard's lock holder, except posting to own().
class Receives {
 public:
  // `shared` may be null. `cq` and `pd` are the QP's; a shared queue has its own PD, and one for XRC or tag
  // matching may have its own CQ.
  Receives(queues::RecvQueue own, queues::SharedReceiveQueue* shared, queues::CompletionQueue* cq,
           memory::PdId pd)
      : own_(std::move(own)), shared_(shared), cq_(cq), pd_(pd) {
    if (shared_ != nullptr) held_ = std::make_unique<queues::HeldReceive>();
  }

  queues::RecvQueue& own() { return own_; }
  const queues::RecvQueue& own() const { return own_; }
  queues::SharedReceiveQueue* shared() { return shared_; }

  // XRC: takes receive requests from `shared` from now on, the queue that the peer's packet names. REQUIRES:
  // no message is being received
  void select(queues::SharedReceiveQueue& shared) {
    shared_ = &shared;
    if (held_ == nullptr) held_ = std::make_unique<queues::HeldReceive>();
  }
  // Call before a shared queue is destroyed. Drops a request that was taken from it.
  void forget(const queues::SharedReceiveQueue& shared) {
    if (shared_ != &shared) return;
    shared_ = nullptr;
    holding_ = false;
  }

  // The tagged buffers, if the queue is for tag matching; else nullptr.
  queues::TagList* tags() const { return shared_ != nullptr ? shared_->tags() : nullptr; }
  // Makes the oldest tagged buffer that matches the tag the receive request of the current message. Returns
  // false if none matches. REQUIRES: tags() is not null, and no request is held
  bool take_tagged(uint64_t tag) { return holding_ = tags()->take(tag, *held_); }

  // Returns the receive request of the current message, or of the next one if none has begun. Takes it from a
  // shared queue if needed. Returns nullptr if none is posted.
  const queues::RecvWqe* current() {
    if (shared_ == nullptr) [[likely]]
      return own_.empty() ? nullptr : &own_.at(own_.consumed());
    if (!holding_) holding_ = shared_->take(*held_);
    return holding_ ? &held_->wqe : nullptr;
  }

  // Whether current() would return a request. Takes nothing from a shared queue.
  bool any() { return shared_ == nullptr ? !own_.empty() : holding_ || shared_->any(); }

  // Frees the current request, whose message is complete or has failed. REQUIRES: current() was not null
  void finish() {
    if (shared_ == nullptr) [[likely]] {
      own_.consume();
    } else {
      holding_ = false;
    }
  }

  // Whether a request must be flushed: one in the QP's own queue, or the one taken from a shared queue.
  // Requests that are still in a shared queue stay there.
  bool any_to_flush() const { return holding_ || !own_.empty(); }
  // The next request to flush. REQUIRES: any_to_flush()
  const queues::RecvWqe& to_flush() const { return holding_ ? held_->wqe : own_.at(own_.consumed()); }

  void clear() {
    own_.clear();
    holding_ = false;
  }

  // The protection domain of the keys in receive requests, and the completion queue of these requests.
  memory::PdId pd() const { return shared_ != nullptr ? shared_->pd() : pd_; }
  queues::CompletionQueue* cq() const {
    return shared_ != nullptr && shared_->cq() != nullptr ? shared_->cq() : cq_;
  }

 private:
  queues::RecvQueue own_;
  queues::SharedReceiveQueue* shared_;
  queues::CompletionQueue* const cq_;
  const memory::PdId pd_;
  std::unique_ptr<queues::HeldReceive> held_;  // room for a request of the shared queue
  bool holding_ = false;
};

}  // namespace verbena::transport

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <verbena/cm/adapter.hpp>
#include <verbena/cm/lease.hpp>
#include <verbena/cm/receive_shares.hpp>
#include <verbena/result.hpp>
#include <verbena/verbs.hpp>

// Receives, of one connection or shared by several.
namespace verbena::detail {

class connection_state;
class receive_pool;

// A receive buffer: posted, or with a message that its connection or the program has.
class receive_slot final : public completion_target, public block_owner {
 public:
  receive_slot(connection_state& owner, const slice& memory) : owner_(&owner), memory_(memory) {}
  receive_slot(receive_pool& pool, const slice& memory) : pool_(&pool), memory_(memory) {}
  void on_completion(const ibv_wc& done) override;
  // Posts the receive again, because the program has released the message.
  void give_back(const slice& memory) override;
  const slice& memory() const { return memory_; }

 private:
  receive_pool* pool_ = nullptr;
  connection_state* owner_ = nullptr;  // of a shared receive: the connection of the message in it
  slice memory_;
};

// Knows which ending queue pairs take no further receive from a shared queue (IBV_EVENT_QP_LAST_WQE_REACHED).
// Before this event, such a queue pair may hold a receive. Its owner waits for the event and takes the
// completions that precede it, before it destroys the queue pair (IBTA volume 1, 10.2.9.5). Otherwise the
// shared queue would lose receives.
//
// librdmacm shares the contexts of devices among the threads of a process, and so their events. So all loops
// share one object, and each loop takes the events for all. Functions may be called by any thread.
class last_receives {
 public:
  void add(ibv_qp* pair) {
    const std::lock_guard lock(mutex_);
    has_ended_[pair] = false;
  }
  void remove(ibv_qp* pair) {
    const std::lock_guard lock(mutex_);
    has_ended_.erase(pair);
  }
  bool has_ended(ibv_qp* pair) {
    const std::lock_guard lock(mutex_);
    take_events(pair->context);
    return has_ended_.at(pair);
  }
  static last_receives& instance() {
    static last_receives only;
    return only;
  }

 private:
  void take_events(ibv_context* device) {
    ::fcntl(device->async_fd, F_SETFL, ::fcntl(device->async_fd, F_GETFL) | O_NONBLOCK);
    for (ibv_async_event event; ibv_get_async_event(device, &event) == 0; ibv_ack_async_event(&event)) {
      if (event.event_type != IBV_EVENT_QP_LAST_WQE_REACHED) continue;
      const auto found = has_ended_.find(event.element.qp);
      if (found != has_ended_.end()) found->second = true;
    }
  }

  std::mutex mutex_;
  std::unordered_map<ibv_qp*, bool> has_ended_;
};

// A shared receive queue, its buffers, and the connections that use it. It has as many buffers as the
// connections have receives, and keeps them until the loop's end. Belongs to the loop's thread.
class receive_pool {
 public:
  // REQUIRES: the adapter outlives the pool
  receive_pool(adapter& own, std::uint32_t message_size, std::uint32_t max_connections, std::uint32_t spare)
      : buffers_(own.buffers()),
        message_size_(message_size),
        shares_(max_connections, spare),
        queue_(own.domain().make_srq({.max_wr = shares_.capacity()}).value()) {}
  receive_pool(const receive_pool&) = delete;
  receive_pool& operator=(const receive_pool&) = delete;

  ibv_srq* queue() const { return queue_.get(); }
  const receive_shares& shares() const { return shares_; }

  // Begins the share of a connection, of at most `max` receives, and posts buffers for it. Returns false if
  // the pool has no share for a further connection. Throws exception.
  bool join(receive_shares::share& one, std::uint32_t max) {
    if (!shares_.join(one, max)) return false;
    try {
      fill();
    } catch (...) {
      shares_.leave(one);
      throw;
    }
    return true;
  }
  void leave(receive_shares::share& one) { shares_.leave(one); }
  // Completions of this queue pair belong to the connection, until remove().
  void add(const ibv_qp& pair, connection_state& owner) { owners_[pair.qp_num] = &owner; }
  void remove(const ibv_qp& pair) { owners_.erase(pair.qp_num); }
  // Returns the connection of the queue pair with this number, or nullptr after remove().
  connection_state* owner_of(std::uint32_t pair) const {
    const auto found = owners_.find(pair);
    return found != owners_.end() ? found->second : nullptr;
  }

  // Posts a receive again. Throws exception.
  void post(receive_slot& slot) {
    ibv_sge piece = slot.memory().get();
    ibv_recv_wr request{slot.id(), nullptr, &piece, 1};
    ibv_recv_wr* bad = nullptr;
    if (const int code = ibv_post_srq_recv(queue_.get(), &request, &bad); code != 0)
      throw exception(error("post a shared receive", code));
  }
  // Counts a receive of the share that has been posted again. Returns the number of credits that the peer
  // gets for it. Throws exception.
  std::uint32_t on_freed(receive_shares::share& one) {
    const std::uint32_t credits = shares_.on_freed(one);
    fill();
    return credits;
  }

 private:
  // Posts as many buffers as the connections have receives.
  void fill() {
    while (slots_.size() < shares_.taken()) {
      slots_.emplace_back(*this, buffers_.take(message_size_));
      post(slots_.back());
    }
  }

  buffer_pool& buffers_;
  const std::uint32_t message_size_;
  receive_shares shares_;
  std::deque<receive_slot> slots_;
  srq queue_;
  std::unordered_map<std::uint32_t, connection_state*> owners_;  // by number of the queue pair
};

inline receive_pool& adapter::shared_receives(std::uint32_t message_size, std::uint32_t max_connections,
                                              std::uint32_t spare) {
  auto& found = pools_[{message_size, max_connections, spare}];
  if (!found) found = std::make_shared<receive_pool>(*this, message_size, max_connections, spare);
  return *found;
}

}  // namespace verbena::detail

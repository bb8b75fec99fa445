// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <verbena/async/loop.hpp>
#include <verbena/async/task.hpp>
#include <verbena/cm.hpp>
#include <verbena/cm/adapter.hpp>
#include <verbena/cm/identifier.hpp>
#include <verbena/cm/lease.hpp>
#include <verbena/result.hpp>
#include <verbena/verbs/work.hpp>

namespace verbena {

// For a multicast_group or a datagram_socket.
struct datagram_options {
  std::uint32_t receives = 64;  // datagrams that this end has room for before the program takes them
  std::uint32_t sends = 64;     // datagrams that are under way at once; further ones wait
  duration deadline = std::chrono::seconds(5);  // for joining a group or resolving an address
};

namespace detail {

class datagram_state;

// A datagram that is being sent, or the buffers of a posted receive.
class datagram_slot final : public completion_target {
 public:
  explicit datagram_slot(datagram_state& owner) : owner_(owner) {}
  void on_completion(const ibv_wc& done) override;
  buffer header;  // receives only: the global route header
  buffer payload;

 private:
  datagram_state& owner_;
};

// A datagram that the program has not taken yet, and how it came.
struct arrived_datagram {
  static constexpr std::size_t kRouteHeader = 40;

  buffer payload;
  std::array<std::byte, kRouteHeader> route{};  // the global route header (IBTA volume 1, 8.3)
  ibv_wc completion{};
};

// The buffers and requests of a queue pair for datagrams. release() ends it, and destroys it when the adapter
// uses no buffer any more. The derived class owns the queue pair, so that the queue pair is destroyed before
// the buffers.
class datagram_state : public cm_handler {
 public:
  datagram_state(loop& io, const datagram_options& options) : io_(io), options_(options) {
    service().live.push_back(*this);
  }
  ~datagram_state() override {
    if (queue_ != nullptr) queue_->give_room(options_.receives + options_.sends);
  }

  bool has_ended() const { return has_ended_; }
  const std::optional<error>& failure() const { return failure_; }
  std::size_t max_message_size() const { return mtu_; }
  buffer take_buffer(std::size_t size) { return adapter_->buffers().take_buffer(size); }
  list<waiter> waiting;  // coroutines that wait for any change

  bool has_room() const { return !free_.empty(); }
  // Whether all sends have completed.
  virtual bool is_idle() const { return free_.size() == options_.sends; }
  // REQUIRES: has_room() && !has_ended()
  void send(buffer payload, const datagram_peer& to) {
    datagram_slot& slot = *free_.back();
    free_.pop_back();
    slot.payload = std::move(payload);
    auto request = verbena::send(slot.payload.memory()).to(to).signaled(slot.id());
    const auto posted = post<ibv_send_wr, post_send>(pair_, request);
    if (posted) return void(++posted_);
    free_.push_back(&slot);
    fail(posted.error());
  }
  // Returns the next datagram, or one with an empty buffer if there is none now.
  arrived_datagram take_datagram() {
    if (received_.empty()) return {};
    arrived_datagram first = std::move(received_.front());
    received_.pop_front();
    return first;
  }
  bool has_datagram() const { return !received_.empty(); }

  // Ends receiving and sending, and wakes all that wait.
  void end() {
    if (std::exchange(has_ended_, true)) return;
    on_end();
    if (pair_ != nullptr) end_requests(pair_);
    io_.wake_all(waiting);
  }
  // Ends this object, because the program has no handle any more. Destroys it now, or at the last completion.
  void release() {
    end();
    is_released_ = true;
    if (posted_ == 0) delete this;
  }

  void on_completion(datagram_slot& slot, const ibv_wc& done) {
    --posted_;
    const bool is_send = !slot.header;
    if (is_send) {
      slot.payload = buffer();
      free_.push_back(&slot);
    } else if (done.status == IBV_WC_SUCCESS) {
      take_in(slot, done);
    }
    if (done.status != IBV_WC_SUCCESS && done.status != IBV_WC_WR_FLUSH_ERR)
      fail(error(is_send ? "SEND" : "receive", done.status, done.qp_num, done.vendor_err));
    io_.wake_all(waiting);
    if (is_released_ && posted_ == 0) delete this;
  }

 protected:
  cm_service& service() { return io_.service<cm_service>(); }
  // Prepares the objects for a port of a device. Throws exception.
  void open(ibv_context* device, std::uint8_t port) {
    adapter_ = &service().adapter_of(device);
    queue_ = &adapter_->queue_for(options_.receives + options_.sends);
    ibv_port_attr found{};
    if (const int code = ibv_query_port(device, port, &found); code != 0)
      throw exception(error("query a port", code));
    mtu_ = std::size_t{128} << found.active_mtu;
  }
  const cq& queue() const { return queue_->queue(); }
  // Begins to use a queue pair, and posts the receives. The queue pair must use queue() for all completions,
  // and have room for options.sends and options.receives requests. Each receive consists of two pieces of
  // memory. REQUIRES: open() was called
  void begin(ibv_qp* pair) {
    pair_ = pair;
    for (std::uint32_t i = 0; i < options_.sends; ++i) free_.push_back(&slots_.emplace_back(*this));
    for (std::uint32_t i = 0; i < options_.receives; ++i) {
      datagram_slot& slot = slots_.emplace_back(*this);
      slot.header = take_buffer(arrived_datagram::kRouteHeader);
      slot.payload = take_buffer(mtu_);
      post_receive(slot);
    }
  }
  void fail(const error& reason) {
    if (!has_ended_) failure_ = reason;
    end();
  }

  loop& io_;
  const datagram_options options_;
  adapter* adapter_ = nullptr;

 private:
  // Ends what the derived class has begun.
  virtual void on_end() {}

  void post_receive(datagram_slot& slot) {
    if (has_ended_) return;
    auto request = recv(slot.header.memory(), slot.payload.memory()).numbered(slot.id());
    const auto posted = post<ibv_recv_wr, post_recv>(pair_, request);
    if (posted) return void(++posted_);
    fail(posted.error());
  }
  // Keeps an arrived datagram for the program, and posts the receive again with another buffer. Drops the
  // datagram if options.receives datagrams already wait for the program.
  void take_in(datagram_slot& slot, const ibv_wc& done) try {
    constexpr std::size_t kHeader = arrived_datagram::kRouteHeader;
    if (received_.size() < options_.receives && done.byte_len >= kHeader) {
      arrived_datagram added{std::exchange(slot.payload, take_buffer(mtu_)), {}, done};
      added.payload.shrink(done.byte_len - kHeader);
      std::memcpy(added.route.data(), slot.header.data(), kHeader);
      received_.push_back(std::move(added));
    }
    post_receive(slot);
  } catch (const exception& thrown) {
    fail(thrown.error());
  }

  cq_source* queue_ = nullptr;
  ibv_qp* pair_ = nullptr;
  std::optional<error> failure_;
  std::size_t mtu_ = 0;
  std::size_t posted_ = 0;
  bool has_ended_ = false, is_released_ = false;
  std::deque<datagram_slot> slots_;
  std::vector<datagram_slot*> free_;  // for sending
  std::deque<arrived_datagram> received_;
};

inline void datagram_slot::on_completion(const ibv_wc& done) {
  owner_.on_completion(*this, done);
}

// Waits until there is room in the send queue, and sends a datagram by `post`. Throws exception: with
// EMSGSIZE if the datagram is too long, with ENOTCONN if this end was closed, or with the failure of this
// end.
template <class State, class Post>
task<> send_datagram(std::shared_ptr<State> state, buffer payload, Post post) {
  if (payload.size() > state->max_message_size())
    throw exception(error("send a datagram", EMSGSIZE, {}, "it is longer than a packet"));
  while (!state->has_room() && !state->has_ended())
    co_await wait_in(state->waiting, [&] { return state->has_room() || state->has_ended(); });
  if (!state->has_ended()) post(*state, std::move(payload));
  if (!state->has_ended()) co_return;
  throw exception(state->failure().value_or(error("send a datagram", ENOTCONN, {}, "this end was closed")));
}

// Returns the next datagram, or one with an empty buffer after the end. Throws exception if this end has
// failed.
inline task<arrived_datagram> receive_datagram(std::shared_ptr<datagram_state> state) {
  const auto is_ready = [&] { return state->has_datagram() || state->has_ended(); };
  while (!is_ready()) co_await wait_in(state->waiting, is_ready);
  arrived_datagram first = state->take_datagram();
  if (!first.payload && state->failure()) throw exception(*state->failure());
  co_return first;
}

// Waits until what was sent has left, then ends.
inline task<> close_datagrams(std::shared_ptr<datagram_state> state) {
  const auto is_ready = [&] { return state->is_idle() || state->has_ended(); };
  while (!is_ready()) co_await wait_in(state->waiting, is_ready);
  state->end();
}

}  // namespace detail
}  // namespace verbena

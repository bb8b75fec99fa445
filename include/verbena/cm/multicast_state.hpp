// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <verbena/async/loop.hpp>
#include <verbena/cm/adapter.hpp>
#include <verbena/cm/identifier.hpp>
#include <verbena/cm/lease.hpp>
#include <verbena/result.hpp>
#include <verbena/verbs/work.hpp>

namespace verbena {

struct multicast_options {
  std::uint32_t receives = 64;  // datagrams that this end has room for before the program takes them
  std::uint32_t sends = 64;     // datagrams that are under way at once; further ones wait
  duration deadline = std::chrono::seconds(5);  // for joining
};

namespace detail {

class multicast_state;

// A datagram that is sent, or the room for one that comes.
class datagram_slot final : public completion_target {
 public:
  explicit datagram_slot(multicast_state& owner) : owner_(owner) {}
  void on_completion(const ibv_wc& done) override;
  buffer header;  // receives only: the global route header
  buffer payload;

 private:
  multicast_state& owner_;
};

// A membership: its queue pair and its buffers. Without the program's handle it leaves the group, and ends
// when the adapter has let go of all buffers.
class multicast_state final : public cm_handler {
 public:
  multicast_state(loop& io, const multicast_options& options) : io_(io), options_(options) {
    service().live.push_back(*this);
  }
  ~multicast_state() override {
    leave();
    id_ = cm_identifier();  // destroys the queue pair: the adapter is done with the buffers
    if (queue_ != nullptr) queue_->give_room(options_.receives + options_.sends);
  }

  // Begins to join. With `from`, the address of an interface, this interface is used.
  void join(const std::string& group, const std::string& from) {
    const addresses found = look_up("[" + group + "]:0", false);
    std::memcpy(&group_, found->ai_addr, found->ai_addrlen);
    id_ = cm_identifier(service(), *this, RDMA_PS_UDP);
    deadline_.start(io_.timers(), io_.now() + options_.deadline,
                    [this] { fail(error("join a multicast group", ETIMEDOUT)); });
    // The route to an address of this host leads to its interface. The group itself may have no route.
    const addresses own = from.empty() ? nullptr : look_up("[" + from + "]:0", false);
    sockaddr* const target = own ? own->ai_addr : group_address();
    if (rdma_resolve_addr(id_.get(), own ? target : nullptr, target, milliseconds(options_.deadline)) != 0)
      fail(error("find a route to", errno, group));
  }
  void on_event(const cm_event& event) override {
    if (has_ended_) return;
    if (event.type == RDMA_CM_EVENT_ADDR_RESOLVED) {
      prepare();
    } else if (event.type == RDMA_CM_EVENT_MULTICAST_JOIN) {
      joined(event.datagram);
    } else {
      fail(error("join a multicast group", event.status < 0 ? -event.status : ECONNABORTED, {},
                 rdma_event_str(event.type)));
    }
  }

  bool is_joining() const { return !address_ && !has_ended_; }
  bool has_ended() const { return has_ended_; }
  const std::optional<error>& failure() const { return failure_; }
  std::size_t max_message_size() const { return mtu_; }
  buffer take_buffer(std::size_t size) { return adapter_->buffers().take_buffer(size); }
  list<waiter> waiting;  // coroutines that wait for any change

  bool has_room() const { return !free_.empty(); }
  bool is_idle() const { return free_.size() == options_.sends; }
  // REQUIRES: has_room() && !has_ended()
  void send(buffer payload) {
    datagram_slot& slot = *free_.back();
    free_.pop_back();
    slot.payload = std::move(payload);
    auto request = verbena::send(slot.payload.memory()).to({*address_, qp_num_, qkey_}).signaled(slot.id());
    const auto posted = post<ibv_send_wr, post_send>(id_->qp, request);
    if (posted) return void(++posted_);
    free_.push_back(&slot);
    fail(posted.error());
  }
  // Returns the next datagram, or an empty buffer if there is none now.
  buffer take_datagram() {
    if (received_.empty()) return {};
    buffer first = std::move(received_.front());
    received_.pop_front();
    return first;
  }
  bool has_datagram() const { return !received_.empty(); }

  void leave() {
    if (std::exchange(has_ended_, true)) return;
    deadline_.stop();
    if (id_.get() != nullptr && id_->qp != nullptr) {
      rdma_leave_multicast(id_.get(), group_address());  // also while it is still joining
      id_.end_requests();
    }
    io_.wake_all(waiting);
  }
  // The program has no handle any more.
  void release() {
    leave();
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
      take_in(slot, done.byte_len);
    }
    if (done.status != IBV_WC_SUCCESS && done.status != IBV_WC_WR_FLUSH_ERR)
      fail(error(is_send ? "SEND" : "receive", done.status, done.qp_num, done.vendor_err));
    io_.wake_all(waiting);
    if (is_released_ && posted_ == 0) delete this;
  }

 private:
  static constexpr std::size_t kRouteHeader = 40;

  sockaddr* group_address() { return reinterpret_cast<sockaddr*>(&group_); }
  cm_service& service() { return io_.service<cm_service>(); }

  // Makes the queue pair, and asks for the membership.
  void prepare() try {
    adapter_ = &service().adapter_of(id_->verbs);
    queue_ = &adapter_->queue_for(options_.receives + options_.sends);
    ibv_port_attr port{};
    if (const int code = ibv_query_port(id_->verbs, id_->port_num, &port); code != 0)
      return fail(error("query a port", code));
    mtu_ = std::size_t{128} << port.active_mtu;
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = queue_->queue().get();
    wanted.cap = {options_.sends, options_.receives, 1, 2, 0};
    wanted.qp_type = IBV_QPT_UD;
    if (rdma_create_qp(id_.get(), adapter_->domain().get(), &wanted) != 0)
      return fail(error("make a queue pair", errno));
    for (std::uint32_t i = 0; i < options_.sends; ++i) free_.push_back(&slots_.emplace_back(*this));
    for (std::uint32_t i = 0; i < options_.receives; ++i) {
      datagram_slot& slot = slots_.emplace_back(*this);
      slot.header = take_buffer(kRouteHeader);
      slot.payload = take_buffer(mtu_);
      post_receive(slot);
    }
    if (rdma_join_multicast(id_.get(), group_address(), nullptr) != 0) fail(failed_join(errno));
  } catch (const exception& thrown) {
    fail(thrown.error());
  }
  void joined(const rdma_ud_param& group) {
    auto made = adapter_->domain().make_address(group.ah_attr);
    if (!made) return fail(made.error());
    address_ = std::move(*made);
    qp_num_ = group.qp_num;
    qkey_ = group.qkey;
    deadline_.stop();
    io_.wake_all(waiting);
  }

  void post_receive(datagram_slot& slot) {
    if (has_ended_) return;
    auto request = recv(slot.header.memory(), slot.payload.memory()).numbered(slot.id());
    const auto posted = post<ibv_recv_wr, post_recv>(id_->qp, request);
    if (posted) return void(++posted_);
    fail(posted.error());
  }
  // Hands the buffer to the program, and takes another. Drops the datagram if there are too many.
  void take_in(datagram_slot& slot, std::size_t bytes) try {
    if (received_.size() < options_.receives && bytes >= kRouteHeader) {
      received_.push_back(std::exchange(slot.payload, take_buffer(mtu_)));
      received_.back().shrink(bytes - kRouteHeader);
    }
    post_receive(slot);
  } catch (const exception& thrown) {
    fail(thrown.error());
  }
  static error failed_join(int code) {
    constexpr int kEnotsupp = 524;  // the kernel's own number: Linux 6.1 joins no IPv6 group on RoCE
    if (code != kEnotsupp) return error("join a multicast group", code);
    return error("join a multicast group", EOPNOTSUPP, {},
                 "the kernel joins no group of this kind of address");
  }
  void fail(const error& reason) {
    if (!has_ended_) failure_ = reason;
    leave();
  }

  loop& io_;
  const multicast_options options_;
  sockaddr_storage group_{};
  cm_identifier id_;
  adapter* adapter_ = nullptr;
  cq_source* queue_ = nullptr;
  timer deadline_;
  std::optional<error> failure_;
  std::optional<address_handle> address_;  // of the group, once it has been joined
  std::uint32_t qp_num_ = 0, qkey_ = 0;
  std::size_t mtu_ = 0;
  std::size_t posted_ = 0;
  bool has_ended_ = false, is_released_ = false;
  std::deque<datagram_slot> slots_;
  std::vector<datagram_slot*> free_;  // for sending
  std::deque<buffer> received_;
};

inline void datagram_slot::on_completion(const ibv_wc& done) {
  owner_.on_completion(*this, done);
}

}  // namespace detail
}  // namespace verbena

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <rdma/rdma_cma.h>
#include <verbena/async/loop.hpp>
#include <verbena/async/timer.hpp>
#include <verbena/cm/datagram_state.hpp>
#include <verbena/cm/identifier.hpp>
#include <verbena/result.hpp>
#include <verbena/verbs/work.hpp>

namespace verbena::detail {

// A membership in a multicast group.
class multicast_state final : public datagram_state {
 public:
  using datagram_state::datagram_state;
  ~multicast_state() override { end(); }

  // Begins to join the group. `from`: an address of the interface to use; if it is empty, the kernel's route
  // to the group decides.
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
    if (has_ended()) return;
    if (event.type == RDMA_CM_EVENT_ADDR_RESOLVED) {
      ask();
    } else if (event.type == RDMA_CM_EVENT_MULTICAST_JOIN) {
      joined(event.datagram);
    } else {
      fail(error("join a multicast group", event.status < 0 ? -event.status : ECONNABORTED, {},
                 rdma_event_str(event.type)));
    }
  }

  bool is_joining() const { return !address_ && !has_ended(); }
  // REQUIRES: has_room() && !has_ended(), and the group was joined
  void send(buffer payload) { datagram_state::send(std::move(payload), {*address_, qp_num_, qkey_}); }

 private:
  sockaddr* group_address() { return reinterpret_cast<sockaddr*>(&group_); }

  // Makes the queue pair, and asks for the membership.
  void ask() try {
    open(id_->verbs, id_->port_num);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = queue().get();
    wanted.cap = {options_.sends, options_.receives, 1, 2, 0};
    wanted.qp_type = IBV_QPT_UD;
    // librdmacm's own queue pair: joining attaches it to the group.
    if (rdma_create_qp(id_.get(), adapter_->domain().get(), &wanted) != 0)
      return fail(error("make a queue pair", errno));
    begin(id_->qp);
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
  void on_end() override {
    deadline_.stop();
    if (id_.get() == nullptr || id_->qp == nullptr) return;
    rdma_leave_multicast(id_.get(), group_address());  // also while it is still joining
  }
  static error failed_join(int code) {
    constexpr int kEnotsupp = 524;  // the kernel's own number: Linux 6.1 joins no IPv6 group on RoCE
    if (code != kEnotsupp) return error("join a multicast group", code);
    return error("join a multicast group", EOPNOTSUPP, {},
                 "the kernel joins no group of this kind of address");
  }

  cm_identifier id_;
  sockaddr_storage group_{};
  timer deadline_;
  std::optional<address_handle> address_;  // of the group, once it has been joined
  std::uint32_t qp_num_ = 0, qkey_ = 0;
};

}  // namespace verbena::detail

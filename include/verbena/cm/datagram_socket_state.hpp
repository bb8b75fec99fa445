// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <verbena/async/loop.hpp>
#include <verbena/async/ready_list.hpp>
#include <verbena/async/timer.hpp>
#include <verbena/cm/datagram_state.hpp>
#include <verbena/cm/identifier.hpp>
#include <verbena/cm/lease.hpp>
#include <verbena/cm/route_search.hpp>
#include <verbena/result.hpp>
#include <verbena/verbs/work.hpp>

namespace verbena::detail {

// A host that datagrams come from or go to. Its address handle is made when the first datagram is sent to it.
// Received datagrams alone make no handle, because their source addresses may be forged.
class datagram_host {
 public:
  datagram_host(const pd& domain, const ibv_ah_attr& attributes) : domain_(domain), attributes_(attributes) {}
  bool has_handle() const { return handle_.has_value(); }
  // Returns the address handle, which the first call makes. Throws exception if the host cannot be reached,
  // or with EHOSTUNREACH while its hardware address is unknown.
  const address_handle& handle() {
    if (handle_) return *handle_;
    if (!search_route(domain_.get()->context, attributes_))
      throw exception(error("send a datagram", EHOSTUNREACH, {}, "the host's hardware address is unknown"));
    return handle_.emplace(std::move(domain_.make_address(attributes_)).value());
  }
  const ibv_ah_attr& attributes() const { return attributes_; }

 private:
  const pd& domain_;
  const ibv_ah_attr attributes_;
  std::optional<address_handle> handle_;
};

// A question to another host: which queue pair receives the datagrams for an address? Connection management
// asks by a SIDR request (IBTA volume 1, 12.11). Lives in the coroutine that asks.
class datagram_lookup final : public cm_handler {
 public:
  // `own`: the socket's address, whose interface is used, or nullptr. `where`: the peer's host:port.
  // `patience`: the time until the lookup fails with ETIMEDOUT.
  datagram_lookup(loop& io, sockaddr* own, const std::string& where, duration patience)
      : io_(io), patience_(patience), id_(io.service<cm_service>(), *this, RDMA_PS_UDP) {
    deadline_.start(io_.timers(), io_.now() + patience, [this] { fail(ETIMEDOUT, nullptr); });
    const addresses found = look_up(where, false);
    if (rdma_resolve_addr(id_.get(), own, found->ai_addr, milliseconds(patience)) != 0) fail(errno, nullptr);
  }
  void on_event(const cm_event& event) override {
    if (is_over()) return;
    if (event.type == RDMA_CM_EVENT_ADDR_RESOLVED) {
      if (rdma_resolve_route(id_.get(), milliseconds(patience_)) != 0) fail(errno, nullptr);
    } else if (event.type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
      rdma_conn_param nothing{};
      if (rdma_connect(id_.get(), &nothing) != 0) fail(errno, nullptr);
    } else if (event.type == RDMA_CM_EVENT_ESTABLISHED) {
      found_ = event.datagram;
      end();
    } else {
      const bool is_refused = event.type == RDMA_CM_EVENT_UNREACHABLE && event.status > 0;
      fail(is_refused         ? ECONNREFUSED
           : event.status < 0 ? -event.status
                              : ECONNABORTED,
           is_refused ? "nobody receives datagrams there" : rdma_event_str(event.type));
    }
  }

  bool is_over() const { return found_ || failure_; }
  const std::optional<error>& failure() const { return failure_; }
  // REQUIRES: is_over() && !failure()
  const rdma_ud_param& found() const { return *found_; }
  // The device that leads to the peer. REQUIRES: as above
  ibv_context* device() const { return id_->verbs; }
  list<waiter> waiting;

 private:
  void fail(int code, const char* why) {
    failure_.emplace("resolve", code, std::string_view(), why);
    end();
  }
  void end() {
    deadline_.stop();
    io_.wake_all(waiting);
  }

  loop& io_;
  const duration patience_;
  cm_identifier id_;
  timer deadline_;
  std::optional<rdma_ud_param> found_;
  std::optional<error> failure_;
};

// A queue pair for datagrams at an address of this host. Tells its number to hosts that ask for it
// (datagram_lookup).
class datagram_socket_state final : public datagram_state {
 public:
  datagram_socket_state(loop& io, std::string_view where, const datagram_options& options)
      : datagram_state(io, options) {
    id_ = cm_identifier(service(), *this, RDMA_PS_UDP);
    listen_at(id_, where, "receive datagrams at");
    ibv_context* const device = device_of(id_);
    if (device == nullptr)
      throw exception(error("receive datagrams at", EADDRNOTAVAIL, where, "it is no adapter's address"));
    if (id_->verbs != nullptr) port_ = id_->port_num;
    open(device, port_);
    // All queue pairs of the port space RDMA_PS_UDP have the same Q_Key.
    pair_.emplace(adapter_->domain()
                      .make_qp(ud, {.send_cq = queue(),
                                    .max_send_wr = options_.sends,
                                    .max_recv_wr = options_.receives,
                                    .max_recv_sge = 2,
                                    .port = port_})
                      .value());
    pair_->activate(RDMA_UDP_QKEY).value();
    begin(pair_->get());
  }
  ~datagram_socket_state() override { end(); }

  void on_event(const cm_event& event) override {
    if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
    // The identifier of a request ends with the answer: nothing is connected.
    const cm_identifier request(event.id, *this);
    if (has_ended()) return;
    rdma_conn_param answer{};
    answer.qp_num = pair_->number();
    rdma_accept(request.get(), &answer);
  }

  std::uint16_t port() const { return be16toh(rdma_get_src_port(id_.get())); }
  // Begins to look for a peer, from this socket's address.
  std::unique_ptr<datagram_lookup> look_for(const std::string& where) {
    if (id_->verbs == nullptr)
      return std::make_unique<datagram_lookup>(io_, nullptr, where, options_.deadline);
    sockaddr_storage own{};
    const sockaddr* const bound = rdma_get_local_addr(id_.get());
    // The port is at the same place in both kinds of addresses. Another identifier cannot have ours.
    std::memcpy(&own, bound, bound->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    reinterpret_cast<sockaddr_in*>(&own)->sin_port = 0;
    return std::make_unique<datagram_lookup>(io_, reinterpret_cast<sockaddr*>(&own), where,
                                             options_.deadline);
  }
  ibv_context* device() const { return pair_->get()->context; }
  // Sends a datagram as soon as the hardware address of the host is known. Drops the datagram if the address
  // is still unknown after about a second, or if options.sends datagrams of this socket wait for addresses
  // already. REQUIRES: has_room() && !has_ended()
  void send_to(const std::shared_ptr<datagram_host>& to, buffer payload, std::uint32_t qp_num,
               std::uint32_t qkey) {
    if (to->has_handle()) return send(std::move(payload), {to->handle(), qp_num, qkey});
    if (late_.size() >= options_.sends) return;
    const auto added = late_.emplace(late_.end());
    added->payload = std::move(payload);
    added->route.start(io_, device(), to->attributes(), [this, added, to, qp_num, qkey](bool is_known) {
      if (is_known) send_late(*to, std::move(added->payload), qp_num, qkey);
      late_.erase(added);
      io_.wake_all(waiting);
    });
  }
  bool is_idle() const override { return late_.empty() && datagram_state::is_idle(); }
  std::shared_ptr<datagram_host> host(const ibv_ah_attr& attributes) const {
    return std::make_shared<datagram_host>(adapter_->domain(), attributes);
  }
  // Returns the host of a datagram's sender, or nullptr if the datagram's destination is none of this
  // device's GIDs. Keeps up to kMaxSenders hosts, because finding a host's attributes takes a search in the
  // table of GIDs. A full store is emptied, because senders may forge addresses. Hosts that the program still
  // uses live on.
  std::shared_ptr<datagram_host> sender_of(arrived_datagram& arrived) {
    const addresses_key key = addresses_in(arrived.route);
    if (const auto found = senders_.find(key); found != senders_.end()) return found->second;
    ibv_grh header{};
    std::memcpy(&header, arrived.route.data(), sizeof header);
    ibv_ah_attr attributes{};
    if (ibv_init_ah_from_wc(device(), port_, &arrived.completion, &header, &attributes) != 0) return nullptr;
    if (senders_.size() == kMaxSenders) senders_.clear();
    return senders_[key] = host(attributes);
  }

 private:
  static constexpr std::size_t kMaxSenders = 1024;
  using addresses_key = std::array<std::byte, 2 * sizeof(ibv_gid)>;

  // Returns the source and destination addresses of a global route header. It holds an IPv6 header, or an
  // IPv4 header in its last 20 bytes (RoCEv2 annex, A17).
  static addresses_key addresses_in(const std::array<std::byte, arrived_datagram::kRouteHeader>& route) {
    constexpr std::size_t kIpv6Addresses = 8, kIpv4Addresses = 20 + 12;
    const bool is_ipv6 = (route[0] >> 4) == std::byte{6};
    addresses_key key{};
    const std::size_t from = is_ipv6 ? kIpv6Addresses : kIpv4Addresses;
    std::memcpy(key.data(), route.data() + from, route.size() - from);
    return key;
  }
  void send_late(datagram_host& to, buffer payload, std::uint32_t qp_num, std::uint32_t qkey) try {
    if (has_room() && !has_ended()) send(std::move(payload), {to.handle(), qp_num, qkey});
  } catch (const exception&) {  // the host cannot be reached
  }

  // A datagram that waits until its host can be reached.
  struct late_datagram {
    buffer payload;
    route_search route;
  };

  cm_identifier id_;
  std::optional<qp> pair_;
  std::list<late_datagram> late_;
  std::uint8_t port_ = 1;
  std::map<addresses_key, std::shared_ptr<datagram_host>> senders_;
};

}  // namespace verbena::detail

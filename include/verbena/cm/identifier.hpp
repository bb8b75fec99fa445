// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <verbena/async/loop.hpp>
#include <verbena/cm/adapter.hpp>
#include <verbena/result.hpp>

// Identifiers of connection management, and the service that hands a loop their events.
namespace verbena::detail {

// Returns a time in milliseconds, the unit of librdmacm's calls.
inline int milliseconds(duration time) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

// A copy of an event. The service acknowledges the original before it calls the handler.
struct cm_event {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;  // of a connection request: the new connection's
  std::array<std::byte, 256> data{};
  std::size_t data_size = 0;
  rdma_ud_param datagram{};  // how to send to a multicast group that was joined, or to a resolved address
  std::span<const std::byte> private_data() const { return std::span(data).first(data_size); }
};

// Receives the events of an identifier. The identifier's `context` points to the handler.
class cm_handler : public list_node {
 public:
  virtual ~cm_handler() = default;
  virtual void on_event(const cm_event& event) = 0;
  // Ends the requests of the handler, and frees the buffers that they hold. When the service ends, it calls
  // this function of all handlers before it destroys the first handler.
  virtual void let_go() {}
};

// The loop's event channel of connection management, and its devices.
class cm_service final : public event_source {
 public:
  explicit cm_service(loop& io) : io_(io), channel_(rdma_create_event_channel()) {
    if (channel_ == nullptr)
      throw exception(error("make an event channel", errno, {},
                            "there is no RDMA device: `verbena run PROGRAM` gives it one"));
    ::fcntl(fd(), F_SETFL, ::fcntl(fd(), F_GETFL) | O_NONBLOCK);
    io_.add(*this);
  }
  ~cm_service() override {
    io_.remove(*this);
    list<cm_handler> ending;
    while (!live.empty()) {
      cm_handler& each = live.front();
      ending.push_back(each);
      each.let_go();
    }
    while (!ending.empty()) delete &ending.front();
    adapters_.clear();
    rdma_destroy_event_channel(channel_);
  }
  cm_service(const cm_service&) = delete;
  cm_service& operator=(const cm_service&) = delete;

  rdma_event_channel* channel() const { return channel_; }
  // The connections and datagram queue pairs of the loop, also those that the program has released but whose
  // buffers the adapter still uses. The service destroys them at its end.
  list<cm_handler> live;
  adapter& adapter_of(ibv_context* device) {
    auto& found = adapters_[device];
    if (!found) found = std::make_unique<adapter>(io_, device);
    return *found;
  }

  // Looks for events in every kTurns-th turn only, because each look is a system call. Also looks in the turn
  // after arm(), and if the last look may have left events.
  bool poll() override {
    return (std::exchange(is_awake_, false) || ++turns_ % kTurns == 0) && take_events();
  }
  bool arm() override {
    is_awake_ = true;
    return !take_events();
  }
  int fd() const override { return channel_->fd; }

 private:
  static constexpr unsigned kTurns = 64;
  static constexpr int kMaxEvents = 16;

  // Takes up to kMaxEvents events, so that hosts which send requests without end do not hold up the loop.
  // Returns whether there were any. If there may be more, the next turn takes them.
  bool take_events() {
    int taken = 0;
    for (rdma_cm_event* event = nullptr; taken < kMaxEvents && rdma_get_cm_event(channel_, &event) == 0;
         ++taken) {
      cm_event copy;
      copy.type = event->event;
      copy.status = event->status;
      copy.id = event->id;
      if (event->id->ps == RDMA_PS_UDP) copy.datagram = event->param.ud;
      const auto& parameters = event->param.conn;
      if (parameters.private_data != nullptr) {
        copy.data_size = std::min<std::size_t>(parameters.private_data_len, copy.data.size());
        std::memcpy(copy.data.data(), parameters.private_data, copy.data_size);
      }
      rdma_cm_id* const owner = copy.type == RDMA_CM_EVENT_CONNECT_REQUEST ? event->listen_id : event->id;
      auto* const handler = static_cast<cm_handler*>(owner->context);
      rdma_ack_cm_event(event);
      if (handler != nullptr) handler->on_event(copy);
    }
    if (taken == kMaxEvents) is_awake_ = true;
    return taken != 0;
  }

  loop& io_;
  rdma_event_channel* channel_;
  std::map<ibv_context*, std::unique_ptr<adapter>> adapters_;
  bool is_awake_ = false;  // the next turn looks for events
  unsigned turns_ = 0;
};

// Takes a queue pair to the error state: all its requests complete.
inline void end_requests(ibv_qp* pair) {
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(pair, &wanted, IBV_QP_STATE);
}

// Owns an identifier (rdma_cm_id). Its destruction waits until other threads of the process have acknowledged
// the identifier's events. The loop has acknowledged its own events already.
class cm_identifier {
 public:
  cm_identifier() = default;
  // Takes over the identifier of a connection request.
  cm_identifier(rdma_cm_id* id, cm_handler& handler) : id_(id) { id_->context = &handler; }
  cm_identifier(cm_service& service, cm_handler& handler, rdma_port_space space = RDMA_PS_TCP) {
    if (rdma_create_id(service.channel(), &id_, &handler, space) != 0)
      throw exception(error("make a connection identifier", errno));
  }
  cm_identifier(const cm_identifier&) = delete;
  cm_identifier& operator=(const cm_identifier&) = delete;
  cm_identifier(cm_identifier&& other) noexcept : id_(std::exchange(other.id_, nullptr)) {}
  cm_identifier& operator=(cm_identifier&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~cm_identifier() {
    if (id_ == nullptr) return;
    if (id_->qp != nullptr) rdma_destroy_qp(id_);
    rdma_destroy_id(id_);
  }

  // Takes the queue pair, if there is one, to the error state: all its requests complete.
  void end_requests() const {
    if (id_ != nullptr && id_->qp != nullptr) detail::end_requests(id_->qp);
  }

  rdma_cm_id* get() const { return id_; }
  rdma_cm_id* operator->() const { return id_; }

 private:
  rdma_cm_id* id_ = nullptr;
};

// Returns the device of connection management if there is only one, or nullptr.
inline ibv_context* only_device() {
  int number = 0;
  ibv_context** const all = rdma_get_devices(&number);
  if (all == nullptr) return nullptr;
  ibv_context* const first = all[0];
  rdma_free_devices(all);
  return number == 1 ? first : nullptr;
}

// Returns the device of an identifier. An identifier with a loopback address, or with the address of all
// interfaces, has none. Then returns the only device of this host, or nullptr if there are several.
inline ibv_context* device_of(const cm_identifier& id) {
  return id->verbs != nullptr ? id->verbs : only_device();
}

// ---- names

struct free_addresses {
  void operator()(addrinfo* found) const { ::freeaddrinfo(found); }
};
using addresses = std::unique_ptr<addrinfo, free_addresses>;

// Looks up "host:port", "10.0.0.1:7471" or "[fe80::1%eth0]:7471". `passive`: to listen at the address. Blocks
// the thread while a name server is asked. Throws exception.
inline addresses look_up(std::string_view where, bool passive) {
  const std::size_t colon = where.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == where.size())
    throw exception(error("look up", EINVAL, where, "the form is host:port"));
  std::string_view host = where.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  const std::string name(host), port(where.substr(colon + 1));
  const int failed = ::getaddrinfo(name.empty() ? nullptr : name.c_str(), port.c_str(), &wanted, &found);
  if (failed != 0)
    throw exception(
        error("look up", failed == EAI_SYSTEM ? errno : EADDRNOTAVAIL, where, ::gai_strerror(failed)));
  return addresses(found);
}

// Listens at an address, which has the form that look_up() reads. `tried`: the beginning of the exception's
// sentence. Throws exception.
inline void listen_at(const cm_identifier& id, std::string_view where, const char* tried) {
  constexpr int kBacklog = 1024;
  const addresses found = look_up(where, true);
  if (rdma_bind_addr(id.get(), found->ai_addr) == 0 && rdma_listen(id.get(), kBacklog) == 0) return;
  throw exception(error(tried, errno, where,
                        errno == EADDRINUSE || errno == EADDRNOTAVAIL
                            ? "the port is in use, or no adapter has this address"
                            : nullptr));
}

}  // namespace verbena::detail

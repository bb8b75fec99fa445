// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/own_fd.h"
#include "base/result.h"
#include "libraries/rsockets/datagram_qp.h"
#include "libraries/rsockets/destination_table.h"
#include "libraries/rsockets/path_query.h"
#include "libraries/rsockets/service.h"
#include "libraries/rsockets/socket.h"

namespace verbena::rsockets {

// A datagram rsocket: the semantics of a UDP socket over UD queue pairs, one for each local address in use.
// The rsocket also owns a real UDP socket: the application knows the rsocket by that socket's descriptor and
// port. The first datagrams to a destination go through the UDP socket, and tell each side the other's queue
// pair (datagram_headers.h). Datagrams too large for one packet of the path always use the UDP socket.
//
// Lock order: mutex_ (destinations and sending), then poll_mutex_ (completions and arrived datagrams).
class Datagram final : public Socket, public ServiceClient, public std::enable_shared_from_this<Datagram> {
 public:
  static Result<std::shared_ptr<Socket>> create(int family);
  ~Datagram() override;

  int number() const override { return udp_.get(); }
  Result<void> bind(const Address& address) override;
  Result<void> connect(const Address& address) override;
  Result<void> shutdown(int how) override;
  void close() override;
  Result<size_t> receive(Buffers into, int flags, Address* source) override;
  Result<size_t> send(Buffers from, int flags, const Address* destination) override;
  Result<Address> local_address() override;
  Result<Address> peer_address() override;
  Result<void> set_option(int level, int name, const void* value, socklen_t length) override;
  Result<void> get_option(int level, int name, OptionValue value) override;

  Interest ready(Interest interest) override;
  Interest arm(Interest interest) override;
  int event_descriptor() override { return epoll_.get(); }
  void take_event() override;

 private:
  // A peer address that we send to, and how packets reach it.
  struct Destination {
    Address address;
    DatagramQp* qp;
    AddressHandle handle;              // null while only the UDP socket reaches the peer
    uint32_t number = 0;               // the peer's queue pair number
    uint32_t mtu = 0;                  // of the path, in bytes; valid if `handle` is not null
    std::shared_ptr<PathQuery> query;  // null unless a query is running
  };
  // A datagram that waits for receive(): its payload lies in a receive slot of `qp`, or in `copy` if `qp` is
  // null.
  struct Arrival {
    Address source;
    DatagramQp* qp;
    uint32_t slot;
    ConstBytes payload;
    std::vector<std::byte> copy;
  };

  static constexpr size_t kMaxDestinations = 65536;

  explicit Datagram(Service& service) : service_(service) {}
  Result<void> start();
  Result<Address> local_address_towards(const Address& address);

  // REQUIRES: mutex_ is held
  Result<Destination*> destination(const Address& address);
  Result<void> hear_only_peer();
  Result<DatagramQp*> queue_pair(const Address& local);
  Result<size_t> send_udp(const Destination& to, UdpHeader::Kind kind, Buffers payload, int flags);
  void learn(Destination& destination, uint32_t number);

  void on_readable() override;
  bool read_udp();
  void on_udp(const Address& source, ConstBytes datagram);
  void on_path(const Address& address, const Result<UdPath>& path);
  void deliver(const Address& source, ConstBytes payload);
  bool poll_queue_pairs();

  Service& service_;
  OwnFd udp_;
  OwnFd epoll_;  // polls the completion channels of all queue pairs
  std::atomic<bool> closed_{false};
  std::atomic<bool> reading_shut_{false};
  std::atomic<int> udp_looks_{0};  // empty reads after which application threads stop reading udp_

  std::mutex mutex_;
  bool started_ = false;
  Sizes sizes_;
  DestinationTable<Destination> destinations_{kMaxDestinations};
  Destination* connected_ = nullptr;

  std::mutex poll_mutex_;
  std::vector<std::unique_ptr<DatagramQp>> queue_pairs_;  // grows under both locks
  std::deque<Arrival> arrivals_;
  Address heard_;  // if connected, the only source that receive() accepts; set under both locks

  std::mutex receive_mutex_;
};

}  // namespace verbena::rsockets

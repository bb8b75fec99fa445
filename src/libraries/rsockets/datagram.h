// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <utility>

#include "libraries/rsockets/datagram_qp.h"
#include "libraries/rsockets/recent_failures.h"

namespace verbena::rsockets {

// The destinations of a datagram rsocket, by address. A datagram from an unknown address adds an entry, so
// the table has a maximum size and evicts the oldest entry. Otherwise one host with 65,536 ports could fill
// the table for good. A destination that was evicted is learned again at the next datagram. Not thread-safe.
template <class Destination>
class DestinationTable {
 public:
  // `most`: the maximum number of destinations. REQUIRES: most > 0
  explicit DestinationTable(size_t most) : max_(most) {}

  // Returns the destination with this address; null if it is unknown.
  Destination* find(const Address& address) const {
    const auto found = by_address_.find(address);
    return found != by_address_.end() ? found->second.get() : nullptr;
  }

  // Adds a destination. If the table is full, first evicts the oldest destination for which
  // may_go(destination) is true. Returns null if none of the kMaxLooks oldest may be evicted. REQUIRES:
  // find(address) is null
  template <class MayGo>
  Destination* add(const Address& address, std::unique_ptr<Destination> fresh, MayGo may_go) {
    if (by_address_.size() >= max_ && !make_room(may_go)) return nullptr;
    Destination* const added = by_address_.emplace(address, std::move(fresh)).first->second.get();
    order_.push_back(address);
    return added;
  }

  void clear() {
    by_address_.clear();
    order_.clear();
  }

 private:
  // The maximum number of entries examined for one eviction, so that each datagram has a bounded cost. An
  // entry that may not be evicted becomes the newest.
  static constexpr int kMaxLooks = 64;

  template <class MayGo>
  bool make_room(MayGo may_go) {
    for (int looks = 0; looks < kMaxLooks; ++looks) {
      const Address first = order_.front();
      order_.pop_front();
      const auto found = by_address_.find(first);
      if (may_go(std::as_const(*found->second))) {
        by_address_.erase(found);
        return true;
      }
      order_.push_back(first);
    }
    return false;
  }

  const size_t max_;
  std::map<Address, std::unique_ptr<Destination>> by_address_;
  std::deque<Address> order_;  // in the order of eviction
};

// A datagram rsocket: the semantics of a UDP socket over UD queue pairs, one for each local address in use.
// The rsocket also owns a real UDP socket: the application knows the rsocket by that socket's descriptor and
// port. The first datagrams to a destination go through the UDP socket, and tell each side the other's queue
// pair (address.h). Datagrams too large for one packet of the path always use the UDP socket.
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

  enum class Wanted : uint8_t { kByProgram, kByPeer };  // for kByPeer, recent failures are not repeated

  // REQUIRES for the functions up to learn(): mutex_ is held
  Result<Destination*> destination(const Address& address, Wanted wanted = Wanted::kByProgram);
  Result<DatagramQp*> queue_pair(const Address& local, Wanted wanted);
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
  RecentFailures failures_;

  std::mutex poll_mutex_;
  std::vector<std::unique_ptr<DatagramQp>> queue_pairs_;  // grows under both locks
  std::deque<Arrival> arrivals_;
  Address heard_;  // if connected, the only source that receive() accepts; set under both locks

  std::mutex receive_mutex_;
};

}  // namespace verbena::rsockets

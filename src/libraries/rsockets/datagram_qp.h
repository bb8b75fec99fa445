// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "libraries/rsockets/service.h"
#include "libraries/rsockets/socket.h"
#include "libraries/rsockets/verbs_handles.h"

namespace verbena::rsockets {

// The path that UD packets take to an address.
struct UdPath {
  ibv_ah_attr attributes{};
  uint32_t mtu = 0;  // path MTU in bytes
};

// Resolves the path of UD packets from a local address to a remote one through the connection manager. Calls
// `answer` at most once, in the service's thread, with the path or an error. Destroying the query cancels it.
// The service's thread must destroy a query only through Service::retire().
class PathQuery final : public CmHandler {
 public:
  using Answer = std::function<void(Result<UdPath>)>;

  // Starts a query. If start() returns an error, `answer` is not called.
  static Result<std::shared_ptr<PathQuery>> start(Service& service, const Address& from, const Address& to,
                                                  Answer answer);
  ~PathQuery() override {
    if (id_ != nullptr) ::rdma_destroy_id(id_);
  }
  PathQuery(const PathQuery&) = delete;
  PathQuery& operator=(const PathQuery&) = delete;

 private:
  explicit PathQuery(Answer answer) : answer_(std::move(answer)) {}
  void on_cm_event(const rdma_cm_event& event) override;
  Result<UdPath> path() const;

  Answer answer_;
  rdma_cm_id* id_ = nullptr;
};

// The UD queue pair of a datagram rsocket for one local address: sends from that address, and receives
// datagrams sent to it. Thread rules: at most one thread polls at a time, and at most one sends.
class DatagramQp final : public CmHandler {
 public:
  // Creates the queue pair of the address `local`, which includes the port of the UDP socket. Errors: those
  // of the connection manager and the verbs; ENODEV if the address belongs to no device.
  static Result<std::unique_ptr<DatagramQp>> create(Service& service, const Address& local,
                                                    const Sizes& sizes);
  ~DatagramQp() override;
  DatagramQp(const DatagramQp&) = delete;
  DatagramQp& operator=(const DatagramQp&) = delete;

  const Address& local() const { return header_.source; }
  uint32_t number() const { return id_->qp->qp_num; }
  int event_descriptor() const { return channel_->fd; }
  size_t header_size() const { return header_.size(); }
  ibv_pd* domain() const { return id_->qp->pd; }
  uint32_t mtu() const { return mtu_; }

  bool may_send() const { return free_slots_.load(std::memory_order_acquire) > 0; }
  bool all_sent() const { return free_slots_.load(std::memory_order_acquire) == sends_; }
  // Sends a datagram to queue pair `number` by the path in `to`. The datagram consists of this queue pair's
  // DatagramHeader and the bytes of `from`. REQUIRES: may_send(), header_size() + from.size() <= min(mtu(),
  // kDatagramBytes)
  Result<void> send(Buffers from, ibv_ah* to, uint32_t number);

  using Arrived = std::function<void(uint32_t slot, const DatagramHeader& header, ConstBytes payload)>;
  // Handles completions, at most as many as the completion queue holds. Calls arrived(slot, header, payload)
  // for each datagram. The payload stays valid until the callee returns the slot with give_back().
  void poll(const Arrived& arrived);
  void give_back(uint32_t slot);
  void arm() { ibv_req_notify_cq(queue_.get(), 0); }
  void take_event(bool again);

 private:
  explicit DatagramQp(const Address& local) : header_{local} {}
  Result<void> open(Service& service, const Sizes& sizes);
  Result<void> find_loopback_device(Service& service, Address address);
  Result<void> open_queues(const Sizes& sizes);
  void on_cm_event(const rdma_cm_event&) override {}
  void receive(const ibv_wc& completion, const Arrived& arrived);
  uint32_t take_slot();
  void free_slot(uint32_t slot);

  const DatagramHeader header_;
  rdma_cm_id* id_ = nullptr;
  CompletionChannel channel_;
  CompletionQueue queue_;
  RegisteredPages send_memory_, receive_memory_;
  uint32_t sends_ = 0, receives_ = 0;
  uint32_t inline_bytes_ = 0;
  uint32_t mtu_ = 0;

  SpinLock slots_lock_;
  std::vector<uint32_t> slots_;  // the free slots of send_memory_
  std::atomic<uint32_t> free_slots_{0};
};

}  // namespace verbena::rsockets

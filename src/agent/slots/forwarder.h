// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "adapter/net/udp/datagram_batch.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Takes what comes to sockets of UDP port 4791 and hands it to processes that must not have the sockets: who
// has one socket of a SO_REUSEPORT group can steer what comes to all of them, connect(2) it, bind it to a
// device.
//
// A thread of its own does it, begun with the first delivery: the event loop has other things to do. It never
// waits for a receiver. Where the receiver's socket is full, the UDP socket is left alone until there is
// room, so that what is too much is lost and counted by the kernel, as where a process has that socket itself
// and does not read. Likewise where the receiver has read nothing for a moment: it may be stopped, and who
// answers for it (agent/takeover/stopped_processes.h) looks into the UDP socket. Whatever comes, and to
// however many, each socket is read by a few datagrams in turn.
//
// All calls are for one thread, the agent's.
class Forwarder {
 public:
  Forwarder();
  ~Forwarder();
  Forwarder(const Forwarder&) = delete;
  Forwarder& operator=(const Forwarder&) = delete;

  // Hands what comes to `socket` over by a new pair, and answers the receiver's end of it. REQUIRES: nothing
  // is delivered for the slot; the socket is not closed before end()
  Result<UniqueFd> begin(uint32_t slot, int socket);
  // The same by the end of a pair that a former agent has made.
  Result<void> go_on(uint32_t slot, int socket, UniqueFd end);
  // Our end of the pair; -1: nothing is delivered for the slot.
  int end_of(uint32_t slot) const;
  // Nothing more is taken of the socket. Waits for a turn that is under way: for some datagrams.
  void end(uint32_t slot);

 private:
  struct Delivery;

  Result<void> start_thread();
  Result<void> watch(Delivery& delivery);
  void run();
  std::shared_ptr<Delivery> find(uint64_t key);
  void answer(uint64_t key, uint32_t events);
  void take_turn(Delivery& delivery);
  void hand_over(Delivery& delivery, uint32_t count);
  void wait_for_room(Delivery& delivery, bool full);
  void hold_back(Delivery& delivery);
  void set_events(const Delivery& delivery, uint32_t of_socket, uint32_t of_pair);
  void forget(const Delivery& delivery);

  UniqueFd epoll_;
  UniqueFd stop_;
  net::DatagramBatch batch_;
  mutable std::mutex mutex_;
  std::map<uint32_t, std::shared_ptr<Delivery>> deliveries_;  // by slot; under the mutex
  uint32_t generation_ = 0;
  std::thread thread_;
};

}  // namespace verbena::agent

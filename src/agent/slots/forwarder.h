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

// Forwards datagrams from sockets of UDP port 4791 to processes that must not have these sockets. A process
// with one socket of a SO_REUSEPORT group can steer the packets of all of them, connect(2) it or bind it to a
// device.
//
// A thread of its own does this, started with the first delivery, because the event loop has other work. The
// thread never waits for a receiver. If the receiver's socket is full, the thread leaves the UDP socket alone
// until there is room. Excess datagrams are then lost and counted by the kernel, as for a process that has
// the socket itself and does not read. The thread also leaves the UDP socket alone if the receiver has read
// nothing for 60 ms. The receiver may be stopped, and StoppedProcesses (agent/takeover/stopped_processes.h)
// looks for its packets in the UDP socket. Each turn reads only a few datagrams of one socket, so that all
// sockets are served under any load.
//
// All calls come from one thread, the agent's.
class Forwarder {
 public:
  Forwarder();
  ~Forwarder();
  Forwarder(const Forwarder&) = delete;
  Forwarder& operator=(const Forwarder&) = delete;

  // Starts to forward datagrams from `socket` over a new socket pair, and returns the receiver's end.
  // REQUIRES: nothing is forwarded for the slot; the socket is not closed before end()
  Result<UniqueFd> begin(uint32_t slot, int socket);
  // Like begin(), but with the sending end of a pair that a former agent has made.
  Result<void> go_on(uint32_t slot, int socket, UniqueFd end);
  // Returns the forwarder's end of the pair, or -1 if nothing is forwarded for the slot.
  int end_of(uint32_t slot) const;
  // Stops forwarding for the slot. Waits for a turn in progress, which lasts for a few datagrams.
  void end(uint32_t slot);

 private:
  struct Delivery;

  Result<void> start_thread();
  Result<void> watch(Delivery& delivery);
  void run();
  std::shared_ptr<Delivery> find(uint64_t key);
  void answer(uint64_t key, uint32_t events);
  void take_turn(Delivery& delivery);
  void forward(Delivery& delivery, uint32_t count);
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

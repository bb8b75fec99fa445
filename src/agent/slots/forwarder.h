// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "adapter/net/udp/receiver.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Forwards datagrams from sockets of UDP port 4791 to processes that must not have these sockets. A process
// with one socket of a SO_REUSEPORT group can steer the whole group's packets, connect(2) the socket or bind
// it to a device.
//
// A thread of its own forwards, because the event loop has other work; the first begin() or go_on() starts
// it. The thread never waits for a receiver. If the receiver's socket is full, the thread stops reading the
// UDP socket until there is room. The kernel then drops and counts excess datagrams, as for a process that
// has the UDP socket itself and does not read. The thread also stops reading the UDP socket if the receiver
// has read nothing for 60 ms. The receiver may be stopped, and StoppedProcesses
// (agent/takeover/stopped_processes.h) looks for its packets in the UDP socket. Each turn reads only a few
// datagrams of one socket, so that all sockets are served under any load.
//
// All methods are called on one thread, the agent's.
class Forwarder {
 public:
  Forwarder();
  ~Forwarder();

  // Starts to forward datagrams from `socket` over a new Unix socket pair, and returns the receiver's end of
  // the pair. REQUIRES: the slot is not forwarded yet; the socket stays open until end()
  Result<UniqueFd> begin(uint32_t slot, int socket);
  // Like begin(), but sends over `end`, the sending end of a pair that a former agent has created.
  Result<void> go_on(uint32_t slot, int socket, UniqueFd end);
  // Returns the forwarder's end of the pair, or -1 if nothing is forwarded for the slot.
  int end_of(uint32_t slot) const;
  // Stops forwarding for the slot and closes its sending end. If the thread is forwarding datagrams of this
  // slot, waits until it has forwarded these few.
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

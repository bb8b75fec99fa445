// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "adapter/net/udp/receiver.h"
#include "agent/event_loop.h"
#include "agent/sessions/client_files.h"
#include "base/processor_clock.h"
#include "base/result.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Forwards datagrams from sockets of UDP port 4791 to processes that must not have these sockets. A process
// with one socket of a SO_REUSEPORT group can steer the whole group's packets, connect(2) the socket or bind
// it to a device.
//
// Forwards on a thread of its own, because the event loop has other work. The first begin() or go_on() starts
// the thread. The thread never waits for a receiver. If the receiver's socket is full, the thread stops
// reading the UDP socket until there is room. The kernel then drops and counts excess datagrams, as for a
// process that has the UDP socket itself and does not read. The thread also stops reading the UDP socket if
// the receiver has read nothing for 60 ms. The receiver may be a stopped process, and StoppedProcesses
// (agent/takeover/stopped_processes.h) must find its packets in the UDP socket. The thread's time is divided
// among the receivers' users (UserTurns), in pieces of work. A piece reads only a few datagrams of one UDP
// socket. After a slow send to a receiver, all receivers of the same user get nothing for a while
// (SlowUsers).
//
// All methods are called on one thread, the agent's.
class Forwarder {
 public:
  // A piece of work (UserTurns) that takes longer than this is slow (SlowUsers). On slow machines, it takes a
  // fifteenth of this time to send a few datagrams. The rest allows for interrupts.
  static constexpr Duration kSlow = std::chrono::milliseconds(3);

  // Clocks that the forwarder's thread reads.
  struct Clocks {
    UserTurns::Clock now;
    UserTurns::Clock processor;
  };
  // `closer` shuts down and closes the sending ends of socket pairs, because that may take long. The
  // descriptors of each pair count in the closer's quota from the beginning. If `closer` is null, the calling
  // thread shuts the ends down. Throws std::system_error if the kernel has no descriptors.
  explicit Forwarder(ForeignCloser* closer = nullptr,
                     Clocks clocks = {MonotonicClock::now, ProcessorClock::now});
  ~Forwarder();

  // Starts to forward datagrams from `socket` over a new Unix socket pair, and returns the receiver's end of
  // the pair. `user` is the receiver's user. EMFILE if the user has no descriptors left in the closer's
  // quota, where those of its other pairs count, too. Otherwise the kernel's error. REQUIRES: the slot is not
  // forwarded yet; the socket stays open until end()
  Result<UniqueFd> begin(uint32_t slot, uid_t user, int socket);
  // Like begin(), but sends over `end`, the sending end of a pair that another agent process has created.
  // Does not check the quota.
  Result<void> go_on(uint32_t slot, uid_t user, int socket, UniqueFd end);
  // Returns the forwarder's end of the pair, or -1 if nothing is forwarded for the slot.
  int end_of(uint32_t slot) const;
  // Stops forwarding for the slot: the thread does not use the slot's UDP socket any more. Shuts the pair
  // down for all processes that have a copy of the sending end. Does not wait for a send in progress. In that
  // case a later begin(), go_on() or end() closes the sending end.
  void end(uint32_t slot);

 private:
  struct Delivery;

  Result<void> start_thread();
  Result<void> watch(Delivery& delivery);
  // Shuts down and closes `end`, which is the delivery's sending end or a copy of it.
  void hang_up(const Delivery& delivery, UniqueFd end);
  void close_ended();
  void run();
  int timeout_ms() const;
  std::shared_ptr<Delivery> find(uint64_t key);
  void answer(uint64_t key, uint32_t events, bool is_alone);
  void answer_pair(Delivery& delivery, uint32_t events);
  void take_turn(Delivery& delivery);
  uint32_t read(Delivery& delivery);
  void forward(Delivery& delivery, uint32_t count);
  void wait_for_room(Delivery& delivery, bool full);
  void hold_back(Delivery& delivery);
  void set_events(const Delivery& delivery, uint32_t of_socket, uint32_t of_pair);
  void forget(const Delivery& delivery);
  void forget_if_current(const Delivery& delivery);

  ForeignCloser* const closer_;
  const Clocks clocks_;
  UniqueFd epoll_;
  UniqueFd stop_;
  net::DatagramBatch batch_;
  mutable std::mutex mutex_;
  std::map<uint32_t, std::shared_ptr<Delivery>> deliveries_;  // by slot; under the mutex
  std::vector<std::shared_ptr<Delivery>> ended_;              // ended, with sending ends that are still open
  uint32_t generation_ = 0;
  // Used by the thread alone
  UserTurns turns_;
  std::thread thread_;
};

}  // namespace verbena::agent

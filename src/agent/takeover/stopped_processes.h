// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include <sys/types.h>

#include "adapter/net/port.h"
#include "agent/event_loop.h"
#include "agent/slots/slot_table.h"
#include "base/time.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::agent {

// Answers the peers of reliable QPs for processes that are stopped (SIGSTOP, a debugger, a paused container).
// A hardware adapter answers even while the process is stopped; in software, peers would lose their
// connections within a second. Each request packet for a stopped process is answered in three ways, because
// peers differ:
//
// - Verbena: an answer of its own (roce::kStoppedOpcode). The requester waits and uses up no retry.
// - Linux rxe: a repeated acknowledgement of the packets before the request, every 25 ms for five seconds.
//   At each response rxe restarts its retransmission timer (rxe_completer()), so it uses up no retry.
//   Other peers drop repeated acknowledgements, as the specification requires.
// - All adapters: an RNR NAK, if the request is repeated and the program has set rnr_retry to 7 (infinite).
//   An RNR NAK would end a connection whose peer has a finite rnr_retry, but only the program's own value
//   is known here. With a finite one there is no RNR NAK, and adapters lose their connections.
//
// The PSN in an answer is the earlier one of the packet's PSN and the PSN that the responder has reached by
// its status page. So no request is acknowledged that the process has not executed. XRC requests are not
// answered: other processes execute them.
//
// Only the QP's peer is answered, whose address the status page says. Older libraries do not publish it:
// there each address that sends a request is answered, and reminded only once its request has come again.
//
// The packets stay in the socket for the process to read when it resumes: they are only peeked at
// (SO_PEEK_OFF). If they fill half of the socket's buffer, the oldest are taken out, since new ones would be
// dropped unseen. Peers repeat the packets of reliable connections; datagrams are lost, as in any full
// buffer.
//
// An idle machine has no cost. A socket is watched for its next packet. Only if that packet still lies there
// after 60 ms, the state of its process is read, once for all its slots. For the agent's thread.
class StoppedProcesses {
 public:
  struct Surroundings {
    // Stages a packet that leaves by the wire at flush().
    std::function<void(const roce::Headers& headers, const roce::Path& path)> send;
    std::function<void()> flush;
    std::function<bool(pid_t)> is_stopped;
  };
  // `port`: the UDP port of the sockets.
  StoppedProcesses(EventLoop& loop, uint16_t port, Surroundings surroundings);
  ~StoppedProcesses();
  StoppedProcesses(const StoppedProcesses&) = delete;
  StoppedProcesses& operator=(const StoppedProcesses&) = delete;

  // Watches the slot for the process that holds it now. Without a holder, the slot's socket may be closed.
  void slot_changed(uint32_t slot, const std::optional<LeasedSlot>& leased);

 private:
  class Slot;
  // A process whose sockets have packets that it has not read.
  struct Process {
    std::set<Slot*> curious;  // they ask whether it is stopped
    std::optional<EventLoop::TimerId> look;
    std::set<Slot*> answering;  // it is
    std::optional<EventLoop::TimerId> check;
  };

  void ask_soon(Slot& slot);
  void look(pid_t pid);
  void answers(Slot& slot);
  void check_later(pid_t pid);
  void check(pid_t pid);
  void leave(Slot& slot);
  void forget_if_done(pid_t pid);

  EventLoop& loop_;
  const uint16_t port_;
  const Surroundings surroundings_;
  const std::unique_ptr<std::byte[]> buffer_;  // for one datagram
  std::map<pid_t, Process> processes_;         // none without a slot
  std::map<uint32_t, std::unique_ptr<Slot>> slots_;
};

}  // namespace verbena::agent

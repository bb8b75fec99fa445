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
// A hardware adapter answers even while the process is stopped. In software the process itself answers, so
// peers would lose their connections within a second. At each reading of a socket, the oldest request of each
// peer is answered. Peers differ, so the answers do:
//
// - For Verbena: a packet with our own opcode (roce::kStoppedOpcode). The requester then waits and uses up no
//   retry.
// - For Linux rxe: a repeated acknowledgement of the packets before the request, every 25 ms, until five
//   seconds after the peer's latest request. At each response rxe restarts its retransmission timer
//   (rxe_completer()), so it uses up no retry. Other peers drop repeated acknowledgements, as the
//   specification requires.
// - For all adapters: an RNR NAK instead of the acknowledgement. Sent if the request is repeated after 100
//   ms, and only if the program has set rnr_retry to 7 (infinite). An RNR NAK would end a connection whose
//   peer has a finite rnr_retry, but only the program's own value is known here. With a finite one there is
//   no RNR NAK, and adapters lose their connections.
//
// An answer has the packet's PSN, or the PSN that the responder has reached according to its status page,
// whichever is earlier. So no request is acknowledged that the process has not executed. XRC requests are not
// answered: other processes execute them.
//
// Only the QP's peer is answered; its address is in the status page. Older libraries do not publish the
// address. For their QPs, each sender of a request is answered; acknowledgements are repeated only to senders
// that have repeated their request.
//
// The packets are only peeked at (SO_PEEK_OFF) and stay in the socket, so that the process can read them when
// it resumes. If they fill half of the socket's buffer, the oldest are removed, because the kernel would drop
// new packets at a full buffer. Peers repeat the packets of reliable connections; datagrams are lost, as in
// any full buffer.
//
// Idle sockets cost no time. A socket is watched for its next packet. Only if that packet is still unread
// after 60 ms, the process's state is read, once for all its slots. For the agent's thread.
class StoppedProcesses {
 public:
  struct Surroundings {
    // Queues a packet, which flush() sends to the network.
    std::function<void(const roce::Headers& headers, const roce::Path& path)> send;
    std::function<void()> flush;
    std::function<bool(pid_t)> is_stopped;
  };
  // `port` is the UDP port of the sockets.
  StoppedProcesses(EventLoop& loop, uint16_t port, Surroundings surroundings);
  ~StoppedProcesses();
  StoppedProcesses(const StoppedProcesses&) = delete;
  StoppedProcesses& operator=(const StoppedProcesses&) = delete;

  // Called when a slot is leased, reclaimed or taken back. Watches the slot's socket for the new holder;
  // stops watching if `leased` is nullopt.
  void slot_changed(uint32_t slot, const std::optional<LeasedSlot>& leased);

 private:
  class Slot;
  // A process with unread packets in its sockets.
  struct Process {
    std::set<Slot*> curious;  // slots that wait to learn whether the process is stopped
    std::optional<EventLoop::TimerId> look;
    std::set<Slot*> answering;  // slots that answer peers, because the process is stopped
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
  std::map<pid_t, Process> processes_;         // only processes with a slot in `curious` or `answering`
  std::map<uint32_t, std::unique_ptr<Slot>> slots_;
};

}  // namespace verbena::agent

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <sys/types.h>

#include "adapter/net/port.h"
#include "agent/cm/gsi_port.h"
#include "agent/event_loop.h"
#include "agent/sessions/client_files.h"
#include "agent/slots/forwarder.h"
#include "agent/slots/process.h"
#include "agent/slots/slot_table.h"
#include "agent/takeover/takeover_state.h"
#include "base/unique_fd.h"

namespace verbena::agent {

// Answers the peers of reliable QPs for processes that are stopped (SIGSTOP, a debugger, a paused container).
// A hardware adapter answers even while the process is stopped. In software the process itself answers, so
// peers would lose their connections within a second. Each time a socket is read, the oldest request of each
// peer is answered. The kinds of peers need different answers:
//
// - For Verbena: a packet with our own opcode (roce::kStoppedOpcode). The requester then waits and uses up no
//   retry.
// - For Linux rxe: a repeated acknowledgement of the packets before the request, every 25 ms, until five
//   seconds after the peer's latest request. At each response rxe restarts its retransmission timer
//   (rxe_completer()), so it uses up no retry. Other peers drop repeated acknowledgements, as the
//   specification requires.
// - For all adapters: an RNR NAK instead of the acknowledgement. Sent if the request is repeated after 100
//   ms, and only if the program has set rnr_retry to 7 (infinite). An RNR NAK would end a connection whose
//   peer has a finite rnr_retry, but only the program's own value is known here. If that value is finite, no
//   RNR NAK is sent, and adapters lose their connections.
//
// An answer has the packet's PSN, or the PSN that the responder has reached according to its status page,
// whichever is earlier. So no request is acknowledged that the process has not executed. XRC requests are not
// answered: other processes execute them.
//
// Only the QP's peer is answered; its address is in the status page. Older libraries do not publish the
// address. For their QPs, each sender of a request is answered. Acknowledgements are then repeated only to
// senders that have repeated their request.
//
// The packets are only peeked at (SO_PEEK_OFF) and stay in the socket, so that the process can read them when
// it resumes. If they fill half of the socket's buffer, the oldest are removed, because the kernel would drop
// new packets at a full buffer. Peers repeat the packets of reliable connections; datagrams are lost, as in
// any full buffer.
//
// Status pages and the state of the process are read on the thread of the process's user (ForeignCloser),
// because the process can make a read take any time (start_time_of()). A QP's entry in the page is read at
// the first request for the QP, and again once the values are 100 ms old. Until the new values arrive, the
// old ones are used: a stopped process does not change them.
//
// Idle sockets cost no time. A socket is watched for its next packet. Only if that packet is still unread
// after 60 ms, the process's state is read, once for all its slots. All other work is done in turns of the
// process's user (EventLoop). That user may have hundreds of stopped processes, and flood them with packets.
// For the agent's thread.
class StoppedProcesses {
 public:
  using IsStopped = std::function<bool(pid_t)>;
  // `port` is the UDP port of the sockets. `is_stopped` is called on threads of `closer`. REQUIRES: the
  // references outlive this object; this object outlives the tasks of `closer`
  StoppedProcesses(EventLoop& loop, ForeignCloser& closer, uint16_t port, HeaderSender& sender,
                   IsStopped is_stopped = agent::is_stopped);
  ~StoppedProcesses();

  // Called when a slot is leased, reclaimed or taken back. `leased` is the first leased slot with the index
  // `slot` or a higher one. If it is `slot`, watches the socket of the slot's new holder. Stops watching if
  // it is another slot or nullopt, or if the slot's socket or its holder's pid is unknown.
  void slot_changed(uint32_t slot, const std::optional<LeasedSlot>& leased);

 private:
  class Slot;
  // Names a process by its user and pid. A pid may stand for processes of two users if one process has ended
  // and its slot is not returned yet.
  struct ProcessName {
    uid_t user;
    pid_t pid;
    auto operator<=>(const ProcessName&) const = default;
  };
  // A process with unread packets in its sockets.
  struct Process {
    Process(StoppedProcesses& all, ProcessName name)
        : look(all.loop_, name.user, [&all, name] { all.look(name); }),
          check(all.loop_, name.user, [&all, name] { all.check(name); }) {}

    std::set<Slot*> curious;  // slots that wait to learn whether the process is stopped
    DeadlineTimer look;
    std::set<Slot*> answering;  // slots that answer peers, because the process is stopped
    DeadlineTimer check;
    std::shared_ptr<const bool> state;  // of the reading under way, whether it finds the process stopped
  };

  void ask_soon(Slot& slot);
  Process& process_of(const Slot& slot);
  void look(ProcessName name);
  void answers(Slot& slot);
  void check(ProcessName name);
  // Begins to read the process's state, unless a reading is under way. `slot` is one of the process's.
  // Returns false if no reading can begin now.
  bool read_state(ProcessName name, const Slot& slot);
  void take_state(ProcessName name, bool is_stopped);
  void leave(Slot& slot);
  void forget_if_done(ProcessName name);

  EventLoop& loop_;
  ForeignCloser& closer_;
  const uint16_t port_;
  HeaderSender& sender_;
  const IsStopped is_stopped_;
  const std::unique_ptr<std::byte[]> buffer_;  // for one datagram
  std::map<ProcessName, Process> processes_;   // only processes with a slot in `curious` or `answering`
  std::map<uint32_t, std::unique_ptr<Slot>> slots_;
};

// Forwards packets in the agent's place while the agent is stopped (SIGSTOP, a debugger). Otherwise,
// processes that have no socket of UDP port 4791 would receive nothing, and their peers would give up after
// half a second. Runs in the standby process, which has the sockets because it holds the agent's takeover
// state.
//
// A thread checks every 100 ms whether the agent's process is stopped. Just after the agent resumes, both
// processes forward for a moment, so packets may be reordered. The standby cannot send to the former holder
// of a slot that was returned meanwhile, because Wire::hang_up() has shut down the slot's socket pair.
class StoppedAgent {
 public:
  StoppedAgent();
  ~StoppedAgent();

  // Sets the process to watch and the receiving end of its takeover state. `agent` is the agent's pid, or 0
  // while there is no agent.
  void watch(pid_t agent, UniqueFd takeover_state);

 private:
  void run();
  void consider();
  void begin();
  void end();

  std::mutex mutex_;
  std::condition_variable wake_;
  // Under the mutex
  bool ended_ = false;
  pid_t agent_ = 0;
  UniqueFd takeover_state_;
  // The thread's own
  TakeoverState::Contents contents_;
  std::optional<Forwarder> forwarder_;  // while the agent is stopped; takes descriptors of `contents_`
  std::thread thread_;
};

}  // namespace verbena::agent

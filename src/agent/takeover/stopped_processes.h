// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include <sys/types.h>

#include "adapter/net/port.h"
#include "agent/event_loop.h"
#include "agent/slots/slot_table.h"
#include "base/time.h"
#include "wire/roce/packet.h"
#include "wire/roce/path.h"

namespace verbena::agent {

// Answers the peers of reliable QPs for processes that are stopped (SIGSTOP, a debugger, a paused container).
// An adapter goes on answering without the process; here the peers would lose their connections within a
// second. Each request packet that comes for such a process is answered, in three ways, as peers differ:
//
// - To Verbena by a word that says so (roce::kStoppedOpcode), which uses up no retry.
// - By the acknowledgement before the request's once more, again and again for some seconds. Linux rxe sets
// its
//   retransmission timer back at every response (rxe_completer()), so it waits without using up a retry.
//   Others drop an acknowledgement of what is acknowledged already, as the specification asks.
// - If the request comes again all the same, and the program has asked for RNR retries without end, by an RNR
//   NAK, which all adapters know. It would end connections whose rnr_retry is finite, and only that of the
//   program's own end is known here. Adapters with a finite one are not kept.
//
// The PSN answered is one that the responder has reached by its status page, or the packet's own if that
// comes before: nothing is acknowledged that the process has not executed. XRC is left out, whose requests
// other processes execute.
//
// The packets stay in the socket, for the process to read when it goes on: they are peeked at (SO_PEEK_OFF).
// Only when they fill half of the socket's buffer the oldest are taken out, or new ones would be lost unseen.
// What is taken of reliable connections comes again; datagrams are lost, as they are when a buffer is full.
//
// An idle machine pays nothing: a socket is watched for its next packet and then, only if that one still
// lies there a moment later, its process is looked at. Used by the agent's thread.
class StoppedProcesses {
 public:
  struct Surroundings {
    // Stages a packet that leaves by the wire at flush().
    std::function<void(const roce::Headers& headers, const roce::Path& path)> send;
    std::function<void()> flush;
    std::function<bool(pid_t)> is_stopped;
  };
  // `port`: the sockets' own.
  StoppedProcesses(EventLoop& loop, uint16_t port, Surroundings surroundings);
  ~StoppedProcesses();
  StoppedProcesses(const StoppedProcesses&) = delete;
  StoppedProcesses& operator=(const StoppedProcesses&) = delete;

  // This process has the slot from now on; nothing: nobody has it, and its socket may be closed.
  void slot_changed(uint32_t slot, const std::optional<LeasedSlot>& lent);

 private:
  class Slot;

  EventLoop& loop_;
  const uint16_t port_;
  const Surroundings surroundings_;
  const std::unique_ptr<std::byte[]> buffer_;  // for one datagram
  std::map<uint32_t, std::unique_ptr<Slot>> slots_;
};

}  // namespace verbena::agent

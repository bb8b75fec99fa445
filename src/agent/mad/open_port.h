// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <sys/types.h>

#include "agent/event_loop.h"
#include "agent/sessions/client_sockets.h"
#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/protocol/mad_messages.h"

namespace verbena::agent {

class MadDispatcher;

// A link's port that a program has open for management datagrams: the agent's end of the port's socket.
// Trusts no input. For the agent's thread.
class OpenPort {
 public:
  // `number`: the owner's number for the port. `takes_files`: the program supports messages of several
  // datagrams, which come in files. `share`: what the port counts in until its socket is closed. When the
  // program has closed its end or sent invalid input, the port calls owner.close() once, from the event loop.
  OpenPort(MadDispatcher& owner, uint64_t number, EventLoop& loop, ClientSockets& sockets, uid_t user,
           uint32_t device_index, UniqueFd socket, bool takes_files, QuotaShare share);
  ~OpenPort();

  uid_t user() const { return user_; }
  uint32_t device_index() const { return device_index_; }
  // Reads again after MadDispatcher::has_room() has returned false.
  void resume();
  // Sends a datagram or a message of several to the program. The message is lost if the program's socket is
  // full, as in the kernel. A message that needs a file is also lost if the user's programs hold too many
  // files, or the program does not support files.
  void deliver(protocol::UserMad header, ConstBytes mad);

 private:
  // Receives one datagram. Returns false if there is none now, the owner has no room, or the port has ended.
  bool on_readable();
  // Passes a received message to the owner. Returns false if the message's file is invalid.
  bool take(ConstBytes message, ClientFile file);
  Result<void> send_with_file(ConstBytes header_and_first, ConstBytes rest);
  void end();

  MadDispatcher& owner_;
  const uint64_t number_;
  EventLoop& loop_;
  ClientSockets& sockets_;
  const uid_t user_;
  const uint32_t device_index_;
  ClientSocket socket_;
  const bool takes_files_;
  bool paused_ = false;
  uint64_t ticket_ = 0;  // of the wait until a message's file may be received; 0: none
  bool ended_ = false;
};

}  // namespace verbena::agent

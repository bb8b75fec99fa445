// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include <sys/types.h>

#include "agent/event_loop.h"
#include "agent/sessions/client_sockets.h"
#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "control/protocol/mad_messages.h"

namespace verbena::agent {

// A port of a link that a program has open for management datagrams: the agent's end of its socket. Trusts no
// input. For the agent's thread.
class OpenPort {
 public:
  struct Owner {
    // Called with a datagram and its header, or a message of several datagrams. REQUIRES: the callback does
    // not destroy the port
    std::function<void(const protocol::UserMad& header, ConstBytes mad)> on_datagram;
    // Whether the port may receive more now. If not, the owner calls resume() later.
    std::function<bool()> has_room;
    // Called when the other end is closed or has sent invalid input. The owner then destroys the port, in the
    // next round.
    std::function<void()> on_end;
  };
  // `takes_files`: the program supports long messages, which come in files.
  OpenPort(EventLoop& loop, ClientSockets& sockets, uid_t user, uint32_t device_index, UniqueFd socket,
           bool takes_files, Owner owner);
  ~OpenPort();
  OpenPort(const OpenPort&) = delete;
  OpenPort& operator=(const OpenPort&) = delete;

  uid_t user() const { return user_; }
  uint32_t device_index() const { return device_index_; }
  void resume();
  // Sends a message to the program. It is lost if the program does not receive it, as in the kernel. A long
  // message is also lost if the user's programs hold too many already.
  void deliver(protocol::UserMad header, ConstBytes mad);

 private:
  // Receives one datagram. False: there is none now, or the owner has no room.
  bool on_readable();
  // False: the file is invalid.
  bool take(ConstBytes message, ClientFile file);
  Result<void> send_with_file(ConstBytes header_and_first, ConstBytes rest);
  void end();

  EventLoop& loop_;
  const uid_t user_;
  HeldFiles& files_;
  const uint32_t device_index_;
  ClientSocket socket_;
  const bool takes_files_;
  const Owner owner_;
  bool paused_ = false;
  bool ended_ = false;
};

}  // namespace verbena::agent

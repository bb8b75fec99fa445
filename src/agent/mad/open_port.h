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

// A port of a link that a program has open for management datagrams: our end of its socket. Trusts nothing
// that comes. Of the agent's thread.
class OpenPort {
 public:
  struct Owner {
    // A datagram with its header, or a message of several. REQUIRES: it does not destroy the port
    std::function<void(const protocol::UserMad& header, ConstBytes mad)> on_datagram;
    // Whether more may come now; resume() when it may again.
    std::function<bool()> has_room;
    // Nobody has the other end, or what comes from there cannot be: to be destroyed in the next round.
    std::function<void()> on_end;
  };
  // `takes_files`: its program knows long messages.
  OpenPort(EventLoop& loop, ClientSockets& sockets, uid_t user, uint32_t device_index, UniqueFd socket,
           bool takes_files, Owner owner);
  ~OpenPort();
  OpenPort(const OpenPort&) = delete;
  OpenPort& operator=(const OpenPort&) = delete;

  uid_t user() const { return user_; }
  uint32_t device_index() const { return device_index_; }
  void resume();
  // One that the program does not take is lost, as in the kernel. So is a long one of which its user's
  // programs hold too much already.
  void deliver(protocol::UserMad header, ConstBytes mad);

 private:
  // Takes one datagram. False: there is none now, or no more are wanted.
  bool on_readable();
  // False: what it brings cannot be.
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

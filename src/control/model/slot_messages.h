// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>

#include <sys/types.h>

#include "base/unique_fd.h"

namespace verbena::control {

// A message from the agent about a channel between a slot of this process and another slot. (A channel is
// memory in which two processes exchange packets.) Brings this process's end of a socket that sets up the
// channel, or an error, or says that the other slot's lease has ended.
struct SlotChannel {
  uint32_t own_slot = 0;
  uint32_t peer_slot = 0;  // may also be a slot of this process
  bool asked = false;      // true if this process requested the channel, false if the other process did
  int error = 0;           // 0, or an errno value if there is no channel; see protocol::ChannelMessage
  UniqueFd socket;         // SOCK_SEQPACKET, non-blocking; not open after an error
  uid_t peer_user = 0;     // the user of the other slot's process, as the agent sees it; 0 from old agents

  // Returns whether this message says that the other slot's lease has ended.
  bool is_end_of_lease() const { return error == ESTALE && !asked; }
};

// A message from the agent about another process that has an XRC domain of this process open. Brings a socket
// to the other process, or an error, or says that the lease of the other process's slot has ended.
struct DomainPeer {
  uint64_t domain = 0;    // this process's number for the domain; 0 at the end of a lease
  uint32_t slot = 0;      // of the other process
  bool asked = false;     // true if this process requested the connection, false if the other process did
  int error = 0;          // 0, or an errno value: ENOENT if no process at `slot` has the domain open
  UniqueFd socket;        // SOCK_SEQPACKET
  uint32_t own_slot = 0;  // at the end of a lease: the slot of this process that may have a connection

  // Returns whether this message says that the lease of `slot` has ended. The connections to the slot's
  // former process then end, in all domains.
  bool is_end_of_lease() const { return error == ESTALE && !asked; }
};

// A message from the agent that starts or stops the capture of a slot. With a ring, the process copies the
// packets that the slot sends by shared memory to the ring; without a ring, the process stops.
struct SlotCapture {
  static constexpr uint32_t kAllSlots = UINT32_MAX;
  uint32_t slot = kAllSlots;  // kAllSlots: the captures of all slots stop
  UniqueFd ring;              // observe/capture/ring_file.h; not open if the capture stops
};

}  // namespace verbena::control

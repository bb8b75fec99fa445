// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/bell.h"
#include "base/intrusive_list.h"
#include "base/time.h"

namespace verbena::engine {

// A source of packets for a shard besides its ports: the socket of a multicast group, of a raw packet QP, the
// channels to other processes. The thread that drives the shard (makes its progress) polls it after the
// ports. The engine thread listens to its descriptor whenever it listens to those of the ports. Inputs are
// added and removed inside Shard::exclusively(). All calls come with the shard's lock held.
//
// An input passes RoCE packets to QPs by Shard::deliver(). After any other change to a QP it calls
// Shard::touched().
class Input {
 public:
  virtual ~Input() = default;

  // Returns a descriptor that is readable when receive() would find something. It does not change while the
  // shard has the input.
  virtual int fd() const = 0;
  // Returns whether fd() is an epoll set.
  virtual bool has_set() const { return false; }

  // Reads what has arrived, about `budget` packets at most. Never blocks. Returns the number of packets read,
  // malformed ones included; 0: there was nothing.
  virtual uint32_t receive(uint32_t budget, TimePoint now) = 0;

  // Returns whether receive() costs no system call, as for shared memory. Such packets are counted apart from
  // those of ports.
  virtual bool is_memory() const { return false; }
  // Called when the engine thread has come, perhaps woken by the descriptor.
  virtual void on_woken() {}
  // Tells whether the engine thread listens to the descriptor from now on. While it does not, nobody need
  // make the descriptor readable. Returns true if packets are there already.
  virtual bool listen(bool on) {
    (void)on;
    return false;
  }

  // Returns a bell (wake-up) that rings when packets come while the input is listened to; then fd() need not
  // be readable. A thread of the application may sleep at the bell. nullptr: fd() reports everything. It does
  // not change while the shard has the input. At most one input of a shard has a bell.
  virtual const Bell* bell() const { return nullptr; }

  // Returns whether its descriptors are still its own (base/own_fd.h).
  virtual bool is_whole() const { return true; }

  // For a child after fork(): closes its descriptors, so that the parent's sockets end with the parent.
  virtual void abandon() = 0;

  ListHook input_hook;
};

}  // namespace verbena::engine

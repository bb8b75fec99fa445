// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/own_fd.h"
#include "base/result.h"
#include "wire/roce/path.h"
#include "wire/roce/qpn.h"

namespace verbena::net {

// A socket that packets leave from, made for paths of one source address and device.
struct SendSocket {
  bool is_for(const roce::Path& path) const {
    return source == path.source && interface_index == path.interface_index;
  }
  // Whether packets of the path leave right without saying where from.
  bool implies(const roce::Path& path) const { return is_for(path) && bound_to_interface; }

  OwnFd fd;
  uint16_t port = 0;  // its source port, which the ICRC covers
  roce::Address source;
  uint32_t interface_index = 0;
  bool bound_to_interface = false;   // or there is none to bind to
  std::unique_ptr<SendSocket> next;  // another of the same destination slot
};

// A socket bound to the path's source and device and to a random port. Nobody may cut what leaves by it.
Result<std::unique_ptr<SendSocket>> open_send_socket(const roce::Path& path, uint32_t send_buffer_bytes);

// Sends by a copy of a receive socket, and so from the port that it is bound to. The socket takes paths of
// any source and device.
Result<std::unique_ptr<SendSocket>> share_receive_socket(int receive_socket, uint16_t port,
                                                         uint32_t send_buffer_bytes);

// The sockets that packets leave from: one per source and destination slot, made at first use.
//
// A receiving kernel's GRO merges packets of one 4-tuple and steers the merged whole by its first packet, so
// packets for different slots need different source ports. They are unconnected, which with "don't fragment"
// makes the kernel write identification 0 (and k into the k-th segment of a super-packet). Being bound to the
// source spares each call a control message that says it, some 0.2 us. One thread at a time.
class SendSockets {
 public:
  explicit SendSockets(uint32_t send_buffer_bytes);

  // A socket for the path's source and the slot; when there are as many as we allow ourselves, or no more can
  // be opened, some other of the family: what GRO then merges wrongly is lost at the receiver and sent again.
  // Null: there is none, or the source is no address of this machine.
  const SendSocket* get(const roce::Path& path, uint32_t slot) {
    for (const SendSocket* socket = by_slot_[slot].get(); socket != nullptr; socket = socket->next.get()) {
      if (socket->is_for(path)) return socket;
    }
    return make(path, slot);
  }

 private:
  const SendSocket* make(const roce::Path& path, uint32_t slot);

  uint32_t send_buffer_bytes_;
  size_t max_;  // of one family; descriptors are the application's, so it is a part of its limit
  std::array<std::unique_ptr<SendSocket>, roce::Qpn::kSlots> by_slot_;
  std::array<std::vector<const SendSocket*>, 2> made_;  // by family: IPv4, IPv6
};

}  // namespace verbena::net

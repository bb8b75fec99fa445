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

// A socket that sends packets of paths with one source address and one network device.
struct SendSocket {
  bool is_for(const roce::Path& path) const {
    return source == path.source && interface_index == path.interface_index;
  }
  // Whether packets of the path leave with the right source and device without a control message.
  bool implies(const roce::Path& path) const { return is_for(path) && bound_to_interface; }

  OwnFd fd;
  uint16_t port = 0;  // the socket's UDP source port, which the ICRC covers
  roce::Address source;
  uint32_t interface_index = 0;
  bool bound_to_interface = false;   // also true if the paths name no device
  std::unique_ptr<SendSocket> next;  // another socket for the same destination slot
};

// Opens a socket that is bound to the path's source and device and to a random RoCEv2 source port (0xC000 to
// 0xFFFF). The socket sends packets with "don't fragment".
Result<std::unique_ptr<SendSocket>> open_send_socket(const roce::Path& path, uint32_t send_buffer_bytes);

// Makes a send socket from a copy of a receive socket, so that packets leave from `port`, to which the
// receive socket is bound. The send socket takes paths of any source and device.
Result<std::unique_ptr<SendSocket>> share_receive_socket(int receive_socket, uint16_t port,
                                                         uint32_t send_buffer_bytes);

// The sockets by which a Sender sends: one for each source and destination slot, opened at first use.
//
// The receiving kernel's GRO merges packets of one 4-tuple, and steers the merged packet by the slot of the
// first packet in it. So packets for different slots need different source ports. The sockets are unconnected
// and set "don't fragment", so the kernel writes identification 0 (and k into the k-th segment of a
// super-packet). Binding the sockets to the source saves a control message per call, about 0.2 us. One thread
// at a time.
class SendSockets {
 public:
  explicit SendSockets(uint32_t send_buffer_bytes);

  // Returns a socket for the path's source and the slot. If the maximum number is open, or no more can be
  // opened, returns another socket of the path's address family. Packets that GRO then merges wrongly are
  // lost at the receiver and sent again. Returns null if the family has no socket.
  const SendSocket* get(const roce::Path& path, uint32_t slot) {
    for (const SendSocket* socket = by_slot_[slot].get(); socket != nullptr; socket = socket->next.get()) {
      if (socket->is_for(path)) return socket;
    }
    return make(path, slot);
  }

 private:
  const SendSocket* make(const roce::Path& path, uint32_t slot);

  uint32_t send_buffer_bytes_;
  size_t max_;  // sockets per family: an eighth of RLIMIT_NOFILE, which leaves descriptors to the application
  std::array<std::unique_ptr<SendSocket>, roce::Qpn::kSlots> by_slot_;
  std::array<std::vector<const SendSocket*>, 2> made_;  // by family: IPv4, IPv6
};

}  // namespace verbena::net

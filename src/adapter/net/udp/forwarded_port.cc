// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/forwarded_port.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <sys/socket.h>

#include "adapter/memory/guarded.h"
#include "adapter/net/udp/split_port.h"
#include "base/log.h"
#include "base/plain_calls.h"
#include "control/protocol/messages.h"

namespace verbena::net {

namespace {

using protocol::ForwardedDatagram;

DatagramOrigin origin_of(const ForwardedDatagram& head) {
  DatagramOrigin origin;
  std::ranges::copy(head.source, origin.path.source.bytes.begin());
  std::ranges::copy(head.destination, origin.path.destination.bytes.begin());
  origin.path.interface_index = head.interface_index;
  origin.path.flow_label = head.flow_label & 0xfffff;
  origin.path.traffic_class = head.traffic_class;
  origin.path.hop_limit = head.hop_limit;
  origin.source_port = head.source_port;
  origin.segment_bytes = head.segment_bytes;
  origin.reassembled = head.reassembled == 1;
  origin.has_destination = true;
  return origin;
}

}  // namespace

ForwardedReceiver::ForwardedReceiver(UniqueFd socket, uint16_t port, uint32_t slot, PortCounters& counters)
    : socket_(std::move(socket)),
      splitter_(port, slot, counters),
      batch_(sizeof(ForwardedDatagram) + protocol::kMaxForwardedBytes) {}

uint32_t ForwardedReceiver::receive(PacketHandler& handler, uint32_t budget) {
  return receive_batches(socket_.get(), budget, ahead_, batch_,
                         [&](uint32_t i) { return take(handler, batch_.data(i)); });
}

// Returns the number of packets in the message; -1: the agent has ended, or the message is malformed.
int64_t ForwardedReceiver::take(PacketHandler& handler, ConstBytes message) {
  ForwardedDatagram head{};
  if (message.size() >= sizeof head) std::memcpy(&head, message.data(), sizeof head);
  if (head.magic != ForwardedDatagram::kMagic) {
    become_deaf();
    return -1;
  }
  return splitter_.split(handler, origin_of(head), message.subspan(sizeof head));
}

// Stops receiving, because the other end is closed. A closed socket is always readable, and a thread that
// sleeps for it would not sleep. So another socket, which never becomes readable, takes its descriptor
// number.
void ForwardedReceiver::become_deaf() {
  log_warning("the agent hands over no more packets: nothing arrives by the wire");
  const UniqueFd silent(plain_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (silent) socket_.become(silent);
}

namespace {

using ForwardedPort = SplitPort<Port, ForwardedReceiver>;

bool keeps_messages_apart(int socket) {
  int domain = 0;
  int type = 0;
  socklen_t length = sizeof domain;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX) return false;
  length = sizeof type;
  return ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

}  // namespace

Result<std::unique_ptr<Port>> make_forwarded_port(UniqueFd socket, const UdpPortOptions& options) {
  if (options.slot >= roce::Qpn::kSlots || !keeps_messages_apart(socket.get())) return fail(EINVAL);
  memory::install_fault_guard();  // send() reads the application's memory
  try {
    return std::make_unique<ForwardedPort>(std::move(socket), options.port, options);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

}  // namespace verbena::net

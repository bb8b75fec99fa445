// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "adapter/net/port.h"
#include "adapter/net/udp/udp_port.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::net {

// Makes a port of a process that may not have a socket of UDP port 4791: it sends as a UdpPort does, by
// sockets of its own, and receives what the agent hands over on `socket` (SOCK_SEQPACKET). A datagram for
// which that has no room stays in the agent's socket as long as there is room, and is lost then.
// `options.receive_buffer_bytes` is the agent's affair.
Result<std::unique_ptr<Port>> make_handed_port(UniqueFd socket, const UdpPortOptions& options);

}  // namespace verbena::net

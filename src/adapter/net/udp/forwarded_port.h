// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "adapter/net/port.h"
#include "adapter/net/udp/udp_port.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace verbena::net {

// Makes a port for a process that has no socket of UDP port 4791. The port sends like a UdpPort, by sockets
// of its own, and receives the datagrams that the agent forwards on `socket` (SOCK_SEQPACKET). While `socket`
// is full, datagrams wait in the agent's UDP socket; when that socket is full, too, datagrams are lost.
// `options.receive_buffer_bytes` is not used, because the agent chooses the buffer size.
Result<std::unique_ptr<Port>> make_forwarded_port(UniqueFd socket, const UdpPortOptions& options);

}  // namespace verbena::net

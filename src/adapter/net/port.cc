// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/port.h"

#include <new>
#include <utility>

#include "adapter/net/udp/udp_port.h"

namespace verbena::net {

Result<PortList> open_ports(Ways ways, PortCounters& counters) {
  PortList ports;
  if (!ways.udp_socket && !ways.is_forwarded) return ports;
  UdpPortOptions options;
  options.slot = ways.slot;
  options.counters = &counters;
  auto opened = ways.is_forwarded
                    ? make_forwarded_port(std::move(ways.is_forwarded), options)
                    : Result<std::unique_ptr<Port>>(UdpPort::create(std::move(ways.udp_socket), options));
  if (!opened) return tl::unexpected(opened.error());
  try {
    ports.push_back(std::move(*opened));
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
  return ports;
}

}  // namespace verbena::net

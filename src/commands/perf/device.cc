// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/device.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "base/format.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::perf {
namespace {

// perftest's rule: RoCEv2 before v1, IPv4 before IPv6, and the first of these.
ibv_gid_entry choose_gid(const verbena::context& device, const Parameters& parameters) {
  const auto all = device.gids(parameters.device_port).value();
  if (parameters.gid_index) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const ibv_gid_entry& each) {
      return each.gid_index == *parameters.gid_index;
    });
    if (found == all.end()) {
      throw std::runtime_error(verbena::format("-x: {} has no GID {} ('verbena status -v' shows them)",
                                               device.name(), *parameters.gid_index));
    }
    return *found;
  }
  const auto rank = [&](const ibv_gid_entry& each) {
    const bool is_ipv4 = verbena::is_ipv4(each.gid);
    return (parameters.wants_ipv6 && is_ipv4 ? 4 : 0) + (is_ipv4 ? 0 : 2) +
           (each.gid_type == IBV_GID_TYPE_ROCE_V2 ? 0 : 1);
  };
  const auto best = std::min_element(all.begin(), all.end(),
                                     [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  if (best == all.end())
    throw std::runtime_error(device.name() + " has no address: its network interface needs one");
  return *best;
}

}  // namespace

Device::Device(const Parameters& parameters) : context(verbena::open(parameters.device).value()) {
  look_at(parameters);
}

Device::Device(verbena::context chosen, const Parameters& parameters) : context(std::move(chosen)) {
  look_at(parameters);
}

void Device::look_at(const Parameters& parameters) {
  port = context.port(parameters.device_port).value();
  if (port.state != IBV_PORT_ACTIVE) {
    throw std::runtime_error(verbena::format("port {} of {} is {}, not active", parameters.device_port,
                                             context.name(), ibv_port_state_str(port.state)));
  }
  gid = choose_gid(context, parameters);
  inline_size = parameters.inline_size.value_or(0);
  if (!parameters.is(Verb::kRead) && !parameters.is(Verb::kAtomic)) return;
  inline_size = 0;
  const ibv_device_attr attributes = context.attributes().value();
  const int most = std::clamp(std::min(attributes.max_qp_rd_atom, attributes.max_qp_init_rd_atom), 1, 255);
  if (parameters.reads > most) {
    rdma_core::complain(" Number of outstanding reads is above max = " + std::to_string(most));
    rdma_core::complain(" Changing to that max value");
  }
  reads = static_cast<std::uint32_t>(parameters.reads > 0 ? std::min(parameters.reads, most) : most);
}

ibv_mtu Device::mtu(const Parameters& parameters) const {
  if (parameters.mtu == 0) return port.active_mtu;
  for (const ibv_mtu each : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    if (static_cast<int>(bytes_of(each)) != parameters.mtu) continue;
    if (each <= port.active_mtu) return each;
    rdma_core::complain("Requested mtu is higher than active mtu ");
    rdma_core::complain("Changing to active mtu - " + std::to_string(port.active_mtu));
    return port.active_mtu;
  }
  throw std::runtime_error(
      verbena::format("-m: {} is not one of 256, 512, 1024, 2048, 4096", parameters.mtu));
}

const char* name_of_link(const ibv_port_attr& port) {
  return port.link_layer == IBV_LINK_LAYER_ETHERNET     ? "Ethernet"
         : port.link_layer == IBV_LINK_LAYER_INFINIBAND ? "IB"
                                                        : "Unknown";
}

const char* name_of_transport(const verbena::context& device) {
  constexpr std::array kNames{"IB", "IW", "USNIC", "USNIC UDP", "Unspecified"};
  const int type = device.get()->device->transport_type;
  return type >= 0 && type < static_cast<int>(kNames.size()) ? kNames[static_cast<std::size_t>(type)]
                                                             : "Unknown";
}

}  // namespace verbena::perf

// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/open_device.h"

#include <algorithm>
#include <cstring>

#include "base/failed_call.h"

namespace verbena::adapter {

Result<std::unique_ptr<OpenDevice>> OpenDevice::open(uint32_t index, uint64_t guid,
                                                     std::shared_ptr<CommandFile> command_file) {
  auto engine = engine::Engine::acquire();
  if (!engine) return tl::unexpected(engine.error());
  auto events = queues::EventChannel::create();
  if (!events) return tl::unexpected(events.error());
  std::unique_ptr<OpenDevice> device(
      new OpenDevice(index, guid, std::move(*engine), std::move(*events), std::move(command_file)));
  if (device->link() == nullptr) return fail(ENODEV);
  return device;
}

Result<roce::Path> OpenDevice::resolve(const ibv_ah_attr& attr) const {
  // RoCE has global addresses only.
  if (attr.is_global == 0)
    return fail(
        because(EINVAL,
                "is_global is 0, and RoCE addresses by GIDs only: set grh.dgid and grh.sgid_index (perftest "
                "and the pingpongs: -x or -g INDEX)"));
  if (attr.port_num != 1)
    return fail(because(EINVAL, "port_num is {}, the device has port 1", attr.port_num));
  const auto now = link();
  if (now == nullptr) return fail(ENODEV);
  const auto entry = std::ranges::find(now->gids, attr.grh.sgid_index, &control::GidEntry::index);
  if (entry == now->gids.end())
    return fail(
        because(EINVAL, "there is no GID of index {} ('verbena status -v' lists them)", attr.grh.sgid_index));
  roce::Path path;
  path.source = entry->gid;
  std::memcpy(path.destination.bytes.data(), attr.grh.dgid.raw, 16);
  const bool multicast = path.destination.is_multicast();
  if (multicast && path.destination.is_ipv4() != path.source.is_ipv4()) {
    // Programs may give a GID of another family than the group's (perftest's default group is an IPv6
    // address). The datagram then leaves from an address of the link in the group's family. The default GID
    // is the last choice, because the network device may not have that address.
    for (const bool link_local : {true, false}) {
      const auto other = std::ranges::find_if(now->gids, [&](const control::GidEntry& e) {
        return e.gid.is_ipv4() == path.destination.is_ipv4() && e.gid.is_link_local() == link_local;
      });
      if (other != now->gids.end()) path.source = other->gid;
    }
  }
  if (path.destination.is_zero()) return fail(because(EINVAL, "grh.dgid is zero"));
  if (path.destination.is_ipv4() != path.source.is_ipv4())
    return fail(because(
        EINVAL,
        "grh.dgid {} and the GID of sgid_index {}, {}, are not both IPv4 or both IPv6: take another index "
        "('verbena status -v' lists them)",
        roce::text_of(path.destination), attr.grh.sgid_index, roce::text_of(path.source)));
  if (path.destination.is_link_local() || multicast) path.interface_index = now->interface_index;
  path.flow_label = attr.grh.flow_label & 0xfffff;
  path.traffic_class = attr.grh.traffic_class;
  // The hop limit of unicast is the route's and not the attribute's, as in the kernel (ibv_rc_pingpong asks
  // for 1). A group has no such route.
  path.hop_limit = multicast ? std::max<uint8_t>(attr.grh.hop_limit, 1) : 64;
  return path;
}

}  // namespace verbena::adapter

// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/neighbour_message.h"

#include <cstring>

#include <libmnl/libmnl.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

namespace verbena::agent {
namespace {

int find_destination(const nlattr* attribute, void* found) {
  if (mnl_attr_get_type(attribute) == NDA_DST) *static_cast<const nlattr**>(found) = attribute;
  return MNL_CB_OK;
}

}  // namespace

bool NeighbourMessage::is_valid() const {
  constexpr uint16_t kValid = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
  return (state & kValid) != 0;
}

std::optional<NeighbourMessage> read_neighbour(const nlmsghdr* message) {
  if (message->nlmsg_type != RTM_NEWNEIGH || mnl_nlmsg_get_payload_len(message) < sizeof(ndmsg)) return {};
  const auto* header = static_cast<const ndmsg*>(mnl_nlmsg_get_payload(message));
  if (header->ndm_family != AF_INET && header->ndm_family != AF_INET6) return {};
  const nlattr* destination = nullptr;
  if (mnl_attr_parse(message, sizeof *header, find_destination, &destination) < 0) return {};
  const size_t bytes = header->ndm_family == AF_INET ? 4 : 16;
  if (destination == nullptr || mnl_attr_get_payload_len(destination) != bytes) return {};
  NeighbourMessage neighbour;
  neighbour.interface_index = static_cast<uint32_t>(header->ndm_ifindex);
  neighbour.address.family = header->ndm_family;
  std::memcpy(neighbour.address.address, mnl_attr_get_payload(destination), bytes);
  neighbour.state = header->ndm_state;
  return neighbour;
}

}  // namespace verbena::agent

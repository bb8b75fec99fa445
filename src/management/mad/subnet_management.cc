// SPDX-License-Identifier: Apache-2.0
#include "management/mad/subnet_management.h"

#include <algorithm>

#include "management/mad/attributes.h"

namespace verbena::mad {
namespace {

// Offsets in a packet with a directed route (14.2.1.2).
constexpr size_t kHopPointerAt = 6;
constexpr size_t kHopCountAt = 7;
constexpr size_t kSourceLidAt = 32;
constexpr size_t kSubnetDataAt = 64;
constexpr size_t kInitialPathAt = 128;
constexpr size_t kReturnPathAt = 192;
constexpr uint8_t kMaxHops = 63;

std::optional<Node> node_with(const Subnet& subnet, uint16_t lid) {
  if (lid == Subnet::kSwitchLid) return Node{nullptr, Subnet::kOwnPort};
  const Member* member = subnet.by_lid(lid);
  if (member == nullptr || !member->shown) return std::nullopt;
  return Node{member, 1};
}

// The node that a packet reaches by leaving `from` through this port.
std::optional<Node> next(const Subnet& subnet, const Node& from, uint8_t port) {
  const Member* member = from.is_switch() ? subnet.at_port(port) : from.member;
  if (member == nullptr || !member->adapter.up) return std::nullopt;
  if (from.is_switch()) return Node{member, 1};
  if (port != 1) return std::nullopt;
  return Node{nullptr, member->switch_port};
}

// Follows the initial path and writes the return path. Only a switch forwards; an adapter can only send, as
// the first hop.
std::optional<Node> follow(const Subnet& subnet, Node node, const Mad& request, Mad& answer) {
  const uint8_t hops = request.u8(kHopCountAt);
  if (hops > kMaxHops) return std::nullopt;
  for (uint8_t hop = 1; hop <= hops; ++hop) {
    if (hop > 1 && !node.is_switch()) return std::nullopt;
    const auto there = next(subnet, node, request.u8(kInitialPathAt + hop));
    if (!there) return std::nullopt;
    node = *there;
    answer.set_u8(kReturnPathAt + hop, node.entry_port);
  }
  answer.set_u8(kHopPointerAt, 0);
  return node;
}

std::optional<Node> destination_of(const Subnet& subnet, const Mad& request, uint16_t lid, Mad& answer) {
  if (request.u8(kClassAt) != kClassSubnDirected) {
    // The permissive LID means the sending port.
    return lid == Subnet::kPermissiveLid || lid == 0 ? Node{&subnet.own(), 1} : node_with(subnet, lid);
  }
  const bool begins_by_lid = request.get<uint16_t>(kSourceLidAt) != Subnet::kPermissiveLid;
  const auto start = begins_by_lid && lid != Subnet::kPermissiveLid && lid != 0 ? node_with(subnet, lid)
                                                                                : Node{&subnet.own(), 1};
  return start ? follow(subnet, *start, request, answer) : std::nullopt;
}

}  // namespace

std::optional<Mad> answer_subnet_management(Subnet& subnet, const Mad& request, uint16_t lid) {
  const MadHeader header = header_of(request);
  if (header.is_response() || (header.method != kMethodGet && header.method != kMethodSet)) {
    return std::nullopt;
  }
  subnet.count_activity();
  Mad answer = begin_answer(request);
  const auto node = destination_of(subnet, request, lid, answer);
  if (!node) return std::nullopt;
  if (header.class_version != 1) {
    set_status(answer, MadStatus::kBadVersion);
  } else if (header.method == kMethodSet) {
    set_status(answer, MadStatus::kUnsupportedAttribute);
  } else {
    const Attribute found = attribute_of(subnet, *node, header.attribute, header.modifier);
    if (found.fault) {
      set_status(answer, *found.fault == AttributeFault::kInvalid ? MadStatus::kInvalidValue
                                                                  : MadStatus::kUnsupportedAttribute);
    } else {
      std::ranges::copy(found.data, answer.at(kSubnetDataAt));
    }
  }
  return answer;
}

}  // namespace verbena::mad

// SPDX-License-Identifier: Apache-2.0
#include "management/mad/subnet.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace verbena::mad {
namespace {

constexpr uint16_t kFirstLid = Subnet::kSwitchLid + 1;
constexpr Duration kAddressLife = std::chrono::seconds(35);
constexpr uint32_t kLids = Subnet::kLastLid - kFirstLid + 1;

// Part of the common algorithm: must be the same on every host, in every version.
uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

uint64_t guid_of_address(const roce::Address& address) {
  const auto low = load_be<uint64_t>(&address.bytes[8]);
  if (address.is_link_local()) return low;
  constexpr uint64_t kLocalBit = uint64_t{0x02} << 56;
  constexpr uint64_t kGroupBit = uint64_t{0x01} << 56;
  return ((mixed(load_be<uint64_t>(address.bytes.data())) ^ low) | kLocalBit) & ~kGroupBit;
}

roce::Address default_gid(uint64_t guid) {
  roce::Address gid;
  store_be(gid.bytes.data(), kDefaultPrefix);
  store_be(&gid.bytes[8], guid);
  return gid;
}

Network network_of(std::span<const roce::Prefix> networks) {
  Network lowest;
  for (const roce::Prefix& each : networks) {
    const Network network{each.network.is_ipv4() ? kIpv4Network : kIpv6Network,
                          guid_of_address(each.network)};
    if (lowest.rank == 0 || network < lowest) lowest = network;
  }
  return lowest;
}

Subnet::Subnet(Adapter own) {
  Member member;
  member.lid = free_lid(own.guid);
  member.adapter = std::move(own);
  member.switch_port = kOwnPort;
  member.announced = member.shown = true;
  member.heard = kNever;
  members_.emplace(kOwnPort, std::move(member));
}

void Subnet::change_own(Adapter own) {
  Member& member = members_.at(kOwnPort);
  if (member.adapter.guid != own.guid) member.lid = free_lid(own.guid);
  member.adapter = std::move(own);
}

uint64_t Subnet::switch_guid() const {
  Network lowest;
  for (const auto& [port, member] : members_) {
    const Network& network = member.adapter.network;
    const bool is_lower = network.rank != 0 && (lowest.rank == 0 || network < lowest);
    if (is_lower && by_guid(network.guid) == nullptr) lowest = network;
  }
  return lowest.rank != 0 ? lowest.guid : guid_of_address({});
}

const Member* Subnet::by_lid(uint16_t lid) const {
  for (const auto& [port, member] : members_) {
    if (member.lid == lid) return &member;
  }
  return nullptr;
}

const Member* Subnet::by_guid(uint64_t guid) const {
  for (const auto& [port, member] : members_) {
    if (member.adapter.guid == guid) return &member;
  }
  return nullptr;
}

Member* Subnet::find(const std::function<bool(const Member&)>& is_it) {
  for (auto& [port, member] : members_) {
    if (port != kOwnPort && is_it(member)) return &member;
  }
  return nullptr;
}

uint16_t Subnet::usual_lid(uint64_t guid) {
  return static_cast<uint16_t>(kFirstLid + mixed(guid) % kLids);
}

uint16_t Subnet::free_lid(uint64_t guid) const {
  for (uint32_t place = usual_lid(guid) - kFirstLid;; place = (place + 1) % kLids) {
    const auto lid = static_cast<uint16_t>(kFirstLid + place);
    if (by_lid(lid) == nullptr) return lid;
  }
}

const Member* Subnet::at_port(uint8_t port) const {
  const auto found = members_.find(port);
  return found != members_.end() && found->second.shown ? &found->second : nullptr;
}

// Returns the lowest free port, or replaces the member without announcement that was heard longest ago.
Member* Subnet::make_room() {
  if (members_.size() < kMaxMembers) {
    uint8_t port = kOwnPort + 1;
    while (members_.contains(port)) ++port;
    Member& member = members_[port];
    member.switch_port = port;
    return &member;
  }
  Member* oldest = nullptr;
  for (auto& [port, member] : members_) {
    if (member.announced || (oldest != nullptr && oldest->heard <= member.heard)) continue;
    oldest = &member;
  }
  if (oldest == nullptr) return nullptr;
  const uint8_t port = oldest->switch_port;
  *oldest = Member{};
  oldest->switch_port = port;
  return oldest;
}

// A neighbour may announce itself from several addresses. The first one is kept as long as announcements come
// from it.
bool Subnet::hear(const Adapter& adapter, const roce::Address& address, TimePoint now) {
  if (adapter.guid == 0 || adapter.guid == own().adapter.guid) return false;
  Member* member = find([&](const Member& each) { return each.adapter.guid == adapter.guid; });
  if (member == nullptr) {
    member = find([&](const Member& each) { return !each.announced && each.address == address; });
  }
  if (member == nullptr) member = make_room();
  if (member == nullptr) return false;
  const bool changed = !member->announced || member->adapter != adapter;
  if (member->adapter.guid != adapter.guid) member->lid = free_lid(adapter.guid);
  const bool has_lost_address = now - member->heard_by_address > kAddressLife;
  if (!member->announced || has_lost_address) member->address = address;
  if (member->address == address) member->heard_by_address = now;
  member->adapter = adapter;
  member->announced = member->shown = true;
  member->heard = now;
  return changed;
}

const Member* Subnet::meet(const roce::Address& address, TimePoint now) {
  Member* member = look_for(address, now);
  if (member != nullptr) member->shown = true;
  return member;
}

Member* Subnet::look_for(const roce::Address& address, TimePoint now) {
  const uint64_t guid = guid_of_address(address);
  if (guid == own().adapter.guid) return nullptr;
  Member* member = find([&](const Member& each) { return each.address == address; });
  if (member == nullptr) member = find([&](const Member& each) { return each.adapter.guid == guid; });
  if (member == nullptr) {
    member = make_room();
    if (member == nullptr) return nullptr;
    member->adapter.guid = guid;
    member->lid = free_lid(guid);
    member->address = address;
  }
  // For announced members only announcements count: other messages do not prove that the agent lives.
  if (!member->announced) member->heard = now;
  return member;
}

void Subnet::forget_before(TimePoint then) {
  std::erase_if(members_, [&](const auto& entry) { return entry.second.heard < then; });
}

}  // namespace verbena::mad

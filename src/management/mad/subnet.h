// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/time.h"
#include "wire/roce/path.h"
#include "wire/roce/prefix.h"

namespace verbena::mad {

// The IP network of an adapter. All hosts of the network derive the same value, from which the switch's GUID
// is derived (Subnet::switch_guid()).
struct Network {
  uint8_t rank = 0;  // lower values take precedence; 0: no IP network
  uint64_t guid = 0;

  friend auto operator<=>(const Network&, const Network&) = default;
};
inline constexpr uint8_t kIpv4Network = 1, kIpv6Network = 2;

// An adapter's description of itself: one port, which is connected to the virtual switch.
struct Adapter {
  uint64_t guid = 0;  // of node and port
  std::string description;
  uint32_t megabits = 0;  // of its netdev; 0: unknown
  uint8_t path_mtu = 3;   // enum ibv_mtu
  bool up = true;
  Network network{};

  friend bool operator==(const Adapter&, const Adapter&) = default;
};
inline constexpr size_t kMaxDescriptionBytes = 64;  // NodeDescription (14.2.5.2)

// An adapter in the fabric.
struct Member {
  Adapter adapter;
  roce::Address address;  // of its agent; zero for our own
  uint16_t lid = 0;
  uint8_t switch_port = 0;
  bool announced = false;  // it has sent an announcement
  bool shown = false;      // something was received from it; otherwise it was only looked up
  TimePoint heard{};
  TimePoint heard_by_address{};  // last announcement from `address`
};

// The fabric as one link sees it: its own adapter and its neighbours at one virtual switch, since RoCE has
// neither LIDs nor a subnet manager. Every host computes LIDs independently with the same algorithm. Results
// can differ only where two adapters hash to the same LID.
//
// Bounded: a switch has 254 ports. An announced adapter is never replaced by one that has not announced
// itself. Pure.
class Subnet {
 public:
  static constexpr uint16_t kSwitchLid = 1;  // also of the subnet manager
  // The LID of an adapter unless another adapter has it.
  static uint16_t usual_lid(uint64_t guid);
  static constexpr uint16_t kPermissiveLid = 0xffff;
  static constexpr uint16_t kLastLid = 0xbfff;  // higher ones are for multicast (4.1.3)
  static constexpr uint8_t kOwnPort = 1;
  static constexpr size_t kMaxMembers = 254;

  explicit Subnet(Adapter own);

  void change_own(Adapter own);
  const Member& own() const { return members_.at(kOwnPort); }
  // The GUID of the virtual switch. It derives from a network's address and not from a host's, so it does not
  // change as hosts come and go. Hosts may have addresses of several networks, or different prefix lengths.
  // So each announces one network, and all use the lowest that anybody announces. Only if hosts differ does
  // it matter which of them are present. Without any network other than link-local, it is a constant.
  uint64_t switch_guid() const;
  // Members by their port of the switch.
  const std::map<uint8_t, Member>& members() const { return members_; }
  // The number of switch ports: up to the last one in use.
  uint8_t switch_ports() const { return members_.rbegin()->first; }
  // The member at a port, if it is shown.
  const Member* at_port(uint8_t port) const;

  const Member* by_lid(uint16_t lid) const;
  const Member* by_guid(uint64_t guid) const;
  const Member* by_address(const roce::Address& address) const;

  // Handles a neighbour's announcement. True if it is new or has changed. Ignored if there is no room.
  bool hear(const Adapter& adapter, const roce::Address& address, TimePoint now);
  // Records a neighbour that sent something other than an announcement. nullptr if there is no room.
  const Member* meet(const roce::Address& address, TimePoint now);
  // Assigns a LID to an address that a query asks for. The member is shown once it has sent something.
  const Member* look_for(const roce::Address& address, TimePoint now);
  // Removes members last heard before `then`.
  void forget_before(TimePoint then);

  // Number of requests to the subnet manager, its ActCount (14.2.5.13).
  uint32_t activity() const { return activity_; }
  void count_activity() { ++activity_; }

 private:
  Member* find(const std::function<bool(const Member&)>& is_it);
  Member* make_room();
  Member* take_in(const roce::Address& address, TimePoint now);
  uint16_t free_lid(uint64_t guid) const;

  uint32_t activity_ = 0;
  std::map<uint8_t, Member> members_;
};

// The GUID derived from an address: the EUI-64 of a link-local one, else a hash of its bytes with the bit for
// locally assigned numbers.
uint64_t guid_of_address(const roce::Address& address);
// Chooses the network to announce among an adapter's networks.
Network network_of(std::span<const roce::Prefix> networks);
// The default GID of an adapter: fe80::/64 and its GUID (4.1.1).
roce::Address default_gid(uint64_t guid);
inline constexpr uint64_t kDefaultPrefix = 0xfe80000000000000;

}  // namespace verbena::mad

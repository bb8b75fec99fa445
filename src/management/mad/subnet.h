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

// The IP network of an adapter, as a number that all hosts of this network compute alike. The hosts' common
// virtual switch gets its GUID from this number (Subnet::switch_guid()).
struct Network {
  uint8_t rank = 0;  // lower values take precedence; 0 if there is no IP network
  uint64_t guid = 0;

  friend auto operator<=>(const Network&, const Network&) = default;
};
inline constexpr uint8_t kIpv4Network = 1, kIpv6Network = 2;

// An adapter's description of itself: one port, which is connected to the virtual switch.
struct Adapter {
  uint64_t guid = 0;  // the GUID of both node and port
  std::string description;
  uint32_t megabits = 0;  // speed of the netdev in Mbit/s; 0 if unknown
  uint8_t path_mtu = 3;   // enum ibv_mtu
  bool up = true;
  Network network{};

  friend bool operator==(const Adapter&, const Adapter&) = default;
};
inline constexpr size_t kMaxDescriptionBytes = 64;  // NodeDescription (IBTA volume 1, 14.2.5.2)

// An adapter in the simulated subnet (Subnet).
struct Member {
  Adapter adapter;
  roce::Address address;  // the address of the adapter's agent; zero for our own adapter
  uint16_t lid = 0;
  uint8_t switch_port = 0;
  bool announced = false;  // the adapter has sent an announcement
  // Whether answers to queries list the adapter. False as long as only a query has asked for the adapter's
  // address, and nothing was received from the adapter.
  bool shown = false;
  TimePoint heard{};  // last announcement; of an adapter without announcements, any datagram or query
  TimePoint heard_by_address{};  // last announcement from `address`
};

// Simulates an InfiniBand subnet for one link: the link's own adapter and its neighbours at one virtual
// switch. Subnet management tools need it, since RoCE has neither LIDs nor a subnet manager. Every host
// computes LIDs independently with the same algorithm. Two hosts can assign different LIDs only to adapters
// that hash to the same LID.
//
// Bounded: a switch has 254 ports. An announced adapter is never replaced by one that has not announced
// itself. Pure: no clock, no system calls.
class Subnet {
 public:
  // The LID of the virtual switch, at which the subnet manager seems to run.
  static constexpr uint16_t kSwitchLid = 1;
  // Returns the LID that an adapter with this GUID gets unless another adapter has that LID.
  static uint16_t usual_lid(uint64_t guid);
  static constexpr uint16_t kPermissiveLid = 0xffff;
  // The highest unicast LID; higher LIDs are for multicast (4.1.3).
  static constexpr uint16_t kLastLid = 0xbfff;
  static constexpr uint8_t kOwnPort = 1;
  static constexpr size_t kMaxMembers = 254;

  explicit Subnet(Adapter own);

  // Replaces the description of our own adapter.
  void change_own(Adapter own);
  const Member& own() const { return members_.at(kOwnPort); }
  // Returns the GUID of the virtual switch. The GUID derives from a network's address and not from a host's
  // address, so that the GUID does not change as hosts come and go. Hosts may have addresses of several
  // networks, or different prefix lengths. To agree nevertheless, each host announces one network, and all
  // hosts use the lowest network that any host announces. (If hosts announce different networks, the GUID
  // depends on which hosts are present.)
  //
  // Ignores an announced network whose GUID is that of an adapter: otherwise a stranger could give the switch
  // the GUID of an adapter. Without any network, the GUID is a constant.
  uint64_t switch_guid() const;
  // Returns the members, including those not shown, by their port of the switch.
  const std::map<uint8_t, Member>& members() const { return members_; }
  // Returns the number of switch ports: the highest port number in use.
  uint8_t switch_ports() const { return members_.rbegin()->first; }
  // Returns the member at a port of the switch; nullptr if there is none or it is not shown.
  const Member* at_port(uint8_t port) const;

  // These functions return the member with this LID or GUID, shown or not; nullptr if there is none.
  const Member* by_lid(uint16_t lid) const;
  const Member* by_guid(uint64_t guid) const;

  // Handles a neighbour's announcement. Returns whether the neighbour is new or has changed. Ignores (false)
  // announcements of GUID 0 or our own GUID, and new neighbours if all 254 ports have announced members.
  bool hear(const Adapter& adapter, const roce::Address& address, TimePoint now);
  // Records a neighbour that sent something other than an announcement, and sets Member::shown. Returns
  // nullptr if all 254 ports have announced members, or the address is our own.
  const Member* meet(const roce::Address& address, TimePoint now);
  // Adds a member, with a LID, for an address that a query asks for. Member::shown stays false until the
  // member sends something. Returns nullptr if all 254 ports have announced members, or the address is our
  // own.
  Member* look_for(const roce::Address& address, TimePoint now);
  // Removes the neighbours whose Member::heard is before `then`.
  void forget_before(TimePoint then);

  // Returns the number of requests to the subnet manager, for ActCount in SMInfo (14.2.5.13).
  uint32_t activity() const { return activity_; }
  void count_activity() { ++activity_; }

 private:
  Member* find(const std::function<bool(const Member&)>& is_it);
  Member* make_room();
  uint16_t free_lid(uint64_t guid) const;

  uint32_t activity_ = 0;
  std::map<uint8_t, Member> members_;
};

// Returns a GUID for an address: the EUI-64 of a link-local address, else a hash of the address with the bit
// for locally assigned numbers.
uint64_t guid_of_address(const roce::Address& address);
// Chooses the network to announce: the lowest of an adapter's networks, IPv4 before IPv6. Returns rank 0 if
// there is none.
Network network_of(std::span<const roce::Prefix> networks);
// Returns the default GID of an adapter: fe80::/64 and the adapter's GUID (4.1.1).
roce::Address default_gid(uint64_t guid);
inline constexpr uint64_t kDefaultPrefix = 0xfe80000000000000;

}  // namespace verbena::mad

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

// The network that an adapter has an address of, as all that have one come to the same: what the switch's
// GUID is made of (Subnet::switch_guid()).
struct Network {
  uint8_t rank = 0;  // the lower is heeded first; 0: it has no such address
  uint64_t guid = 0;

  friend auto operator<=>(const Network&, const Network&) = default;
};
inline constexpr uint8_t kIpv4Network = 1, kIpv6Network = 2;

// What an adapter says of itself: one port, and what it is plugged into is the virtual switch.
struct Adapter {
  uint64_t guid = 0;  // of node and port
  std::string description;
  uint32_t megabits = 0;  // of its netdev; 0: it does not say
  uint8_t path_mtu = 3;   // enum ibv_mtu
  bool up = true;
  Network network{};

  friend bool operator==(const Adapter&, const Adapter&) = default;
};
inline constexpr size_t kMaxDescriptionBytes = 64;  // NodeDescription (14.2.5.2)

// An adapter at its place in the fabric.
struct Member {
  Adapter adapter;
  roce::Address address;  // how its agent is reached; zero for our own
  uint16_t lid = 0;
  uint8_t switch_port = 0;
  bool announced = false;  // it has told of itself
  bool shown = false;      // something of it was received; else it was only looked for
  TimePoint heard{};
  TimePoint heard_by_address{};  // by this one of those that it announces itself by
};

// The fabric that one link sees: its own adapter and those of its neighbours, all at one virtual switch, as
// RoCE has neither LIDs nor a subnet manager. Every host reckons by itself, and in the same way, so that two
// come to the same LIDs; only where two adapters want the same LID may they differ.
//
// Bounded: a switch has 254 ports. Who has announced itself is not displaced by one that has not. Pure.
class Subnet {
 public:
  static constexpr uint16_t kSwitchLid = 1;  // the subnet manager is there, too
  // The LID of an adapter, unless another one has it.
  static uint16_t usual_lid(uint64_t guid);
  static constexpr uint16_t kPermissiveLid = 0xffff;
  static constexpr uint16_t kLastLid = 0xbfff;  // those beyond are for multicast (4.1.3)
  static constexpr uint8_t kOwnPort = 1;
  static constexpr size_t kMaxMembers = 254;

  explicit Subnet(Adapter own);

  void change_own(Adapter own);
  const Member& own() const { return members_.at(kOwnPort); }
  // Made of a network's address, and not of a host's: so it stays as it is when hosts come and go. Hosts may
  // have addresses of several networks, not all of them the same ones, or say another length for one; so each
  // tells of one, and all heed the lowest that anybody there tells of. Only where they differ does it matter
  // who is there. A network that has nothing but link-local addresses has the GUID that all such have.
  uint64_t switch_guid() const;
  // By the port of the switch that they are plugged into.
  const std::map<uint8_t, Member>& members() const { return members_; }
  // How many ports the switch has: up to the last that something is plugged into.
  uint8_t switch_ports() const { return members_.rbegin()->first; }
  // What is plugged into a port, as far as it is shown.
  const Member* at_port(uint8_t port) const;

  const Member* by_lid(uint16_t lid) const;
  const Member* by_guid(uint64_t guid) const;
  const Member* by_address(const roce::Address& address) const;

  // A neighbour has told of itself. True: it is new, or has changed. No more is known of one that finds no
  // room.
  bool hear(const Adapter& adapter, const roce::Address& address, TimePoint now);
  // Somebody has sent something that is no announcement; nullptr: there is no room.
  const Member* meet(const roce::Address& address, TimePoint now);
  // Somebody is wanted by an address: it gets a LID, and is shown once it has sent something.
  const Member* look_for(const roce::Address& address, TimePoint now);
  // Those that were last heard before `then` are gone.
  void forget_before(TimePoint then);

  // How often the subnet manager has been asked: its sign of life (14.2.5.13).
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

// The GUID that an address shows: EUI-64 where it is a link-local one, else made of its bytes, with the bit
// that says that it is nobody's.
uint64_t guid_of_address(const roce::Address& address);
// The one to tell of, of an adapter's networks.
Network network_of(std::span<const roce::Prefix> networks);
// The default GID's address of an adapter: fe80::/64 and its GUID (4.1.1).
roce::Address default_gid(uint64_t guid);
inline constexpr uint64_t kDefaultPrefix = 0xfe80000000000000;

}  // namespace verbena::mad

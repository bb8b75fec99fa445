// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "control/model/admin_error.h"
#include "control/model/link.h"
#include "control/model/link_table_file.h"
#include "wire/roce/path.h"
#include "wire/roce/prefix.h"

namespace verbena::agent {

// What the kernel says of a netdev.
struct Netdev {
  uint32_t index = 0;
  std::string name;
  bool up = false;       // administratively
  bool carrier = false;  // IFF_LOWER_UP
  bool loopback = false;
  bool enslaved = false;  // to a bridge or bond, which speaks IP in its place
  bool bond = false;
  uint32_t mtu = 0;
  uint32_t speed = 0;  // Mb/s; 0: it does not say
  std::array<uint8_t, 6> mac{};
};

// What the kernel says of an address of a netdev.
struct NetdevAddress {
  roce::Address address;
  uint8_t prefix = 0;
};

// The links of this network namespace, and their GID tables. Pure: what netlink and the user say comes in,
// the table comes out.
//
// A netdev that is up and has an address gets the link rxe_<netdev> by itself, and keeps it until the netdev
// is gone or the user deletes it (then it gets none until the user adds one). Loopback gets one by itself
// only while no other link is up: programs that look at all devices take it for a way to other hosts. It goes
// again when another is up, but not while programs may be using it (keep_loopback()).
//
// GIDs have the order that the kernel's have. Index 0 is the default GID, made from the MAC address, whether
// the netdev has that address or not; a netdev without a MAC address (loopback) has none. Then come the
// addresses: IPv4 before IPv6 when they come together, later ones in the first hole. An address that is still
// tentative has its GID at once, so that the indexes do not depend on who was quicker. A GID keeps its index
// for as long as its address exists.
class LinkTable {
 public:
  void netdev_changed(const Netdev& netdev);
  void netdev_removed(uint32_t interface_index);
  void address_changed(uint32_t interface_index, const NetdevAddress& address);
  void address_removed(uint32_t interface_index, const NetdevAddress& address);
  // Between the two the kernel says all there is: what it does not name is gone.
  void begin_dump();
  void end_dump();

  control::AdminResult<void> add_link(std::string_view name, std::string_view netdev);
  control::AdminResult<void> delete_link(std::string_view name);
  // The device stays the same to those who use it. From then on it is as one that the user added.
  control::AdminResult<void> rename_link(std::string_view name, std::string_view new_name);

  // The link hears these only, as long as it is there. Its netdev's going away ends that, as it ends the
  // link.
  control::AdminResult<void> set_peers(std::string_view name, std::vector<roce::Prefix> peers);

  // Goes on where the agent before this one stopped: device indexes, names, GID indexes. Netdevs that are
  // gone lose their links at the next settle(). REQUIRES: nobody has seen the table yet
  void restore(const control::LinkSnapshot& snapshot);

  // Programs run that may be using the link that loopback got by itself: it stays until they are gone.
  void keep_loopback(bool keep) { keep_loopback_ = keep; }
  // Whether UDP port 4791 is ours, for all links.
  void set_wire(bool has_wire) { has_wire_ = has_wire; }
  bool has_automatic_loopback() const;

  // Works all changes since the last call into the table. True: the table is another one now.
  bool settle();
  const control::LinkSnapshot& snapshot() const { return settled_; }

  // The device indexes of bonds that have had another hardware address `before`: another of their ports has
  // taken over.
  std::vector<uint32_t> failed_over(std::span<const control::Link> before) const;

  // The user added or deleted something that would be forgotten with this table.
  bool holds_user_changes() const;

 private:
  struct KnownAddress {
    NetdevAddress address;
    bool seen = true;
  };
  struct KnownNetdev {
    Netdev netdev;
    bool present = false;  // addresses may be told of before their netdev
    bool seen = true;
    std::vector<KnownAddress> addresses;  // in order of appearance
    bool link_deleted = false;
  };
  struct KnownLink {
    std::string name;
    uint32_t device_index = 0;
    uint32_t interface_index = 0;
    bool automatic = false;
    std::map<uint32_t, roce::Address> gids;  // by index
    std::vector<roce::Prefix> peers;
    // An agent before this one had put an address at index 0, and programs know it by that.
    bool first_is_taken = false;
  };

  KnownLink* find_link(std::string_view name);
  KnownLink* find_link_over(uint32_t interface_index);
  KnownLink& make_link(std::string name, uint32_t interface_index, bool automatic);
  std::string automatic_name(const Netdev& netdev);
  bool is_loopback(const KnownLink& link) const;
  bool wants_automatic_link(const KnownNetdev& known) const;
  void make_automatic_links();
  void settle_loopback();
  void settle_default_gid(KnownLink& link, const KnownNetdev& known);
  void settle_gids(KnownLink& link, const KnownNetdev& known);
  control::Link describe(const KnownLink& link) const;

  std::map<uint32_t, KnownNetdev> netdevs_;  // by interface index
  std::vector<KnownLink> links_;
  uint32_t next_device_index_ = 0;
  bool has_wire_ = true;
  bool keep_loopback_ = false;
  control::LinkSnapshot settled_;
};

}  // namespace verbena::agent

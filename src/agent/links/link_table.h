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

// A netdev as the kernel reports it.
struct Netdev {
  uint32_t index = 0;
  std::string name;
  bool up = false;       // administratively
  bool carrier = false;  // IFF_LOWER_UP
  bool loopback = false;
  bool enslaved = false;  // to a bridge or bond, which has the IP addresses
  bool bond = false;
  uint32_t mtu = 0;
  uint32_t speed = 0;  // Mb/s; 0: unknown
  std::array<uint8_t, 6> mac{};
};

// An address of a netdev as the kernel reports it.
struct NetdevAddress {
  roce::Address address;
  uint8_t prefix = 0;
};

// The links of this network namespace with their GID tables. Pure: netlink events and users' changes go in,
// the table comes out.
//
// A netdev that is up and has an address gets the automatic link rxe_<netdev>. The link stays until the
// netdev is removed or the user deletes the link; after a deletion only the user can add one. Loopback gets
// an automatic link only while no other link is up: programs that look at all devices would take it for a
// route to other hosts. The link is removed once another link is up, except while programs may be using it
// (keep_loopback()).
//
// GIDs have the same order as in the kernel. Index 0 is the default GID, made from the MAC address even if
// the netdev lacks that address. A netdev without a MAC address (loopback) has no default GID. The addresses
// follow: of those that appear together, IPv4 before IPv6; each takes the first free index. A tentative
// address gets its GID at once, so that indexes do not depend on timing. A GID keeps its index as long as its
// address exists.
class LinkTable {
 public:
  void netdev_changed(const Netdev& netdev);
  void netdev_removed(uint32_t interface_index);
  void address_changed(uint32_t interface_index, const NetdevAddress& address);
  void address_removed(uint32_t interface_index, const NetdevAddress& address);
  // Enclose a complete report by the kernel: end_dump() removes whatever was not reported since begin_dump().
  void begin_dump();
  void end_dump();

  control::AdminResult<void> add_link(std::string_view name, std::string_view netdev);
  control::AdminResult<void> delete_link(std::string_view name);
  // Renames the link. Its users keep the device. The link then counts as added by the user.
  control::AdminResult<void> rename_link(std::string_view name, std::string_view new_name);

  // Sets the only hosts from which the link receives packets. Lasts as long as the link, which ends when its
  // netdev is removed.
  control::AdminResult<void> set_peers(std::string_view name, std::vector<roce::Prefix> peers);

  // Restores device indexes, names and GID indexes from a former agent. Links of netdevs that are gone
  // disappear at the next settle(). REQUIRES: no client has seen the table yet
  void restore(const control::LinkSnapshot& snapshot);

  // Sets whether loopback's automatic link must stay, because running programs may be using it.
  void keep_loopback(bool keep) { keep_loopback_ = keep; }
  // Sets whether the agent has UDP port 4791, for all links.
  void set_wire(bool has_wire) { has_wire_ = has_wire; }
  bool has_automatic_loopback() const;

  // Applies all changes since the last call. Returns whether the table is different now.
  bool settle();
  const control::LinkSnapshot& snapshot() const { return settled_; }

  // Returns the device indexes of bonds whose hardware address differs from `before`: another of their ports
  // has taken over.
  std::vector<uint32_t> failed_over(std::span<const control::Link> before) const;

  // Whether the user has added or deleted something that would be lost with this table.
  bool holds_user_changes() const;

 private:
  struct KnownAddress {
    NetdevAddress address;
    bool seen = true;
  };
  struct KnownNetdev {
    Netdev netdev;
    bool present = false;  // false while only its addresses were reported
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
    // An older agent has put an address at index 0, and programs know it by that index.
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

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
#include "wire/roce/path.h"
#include "wire/roce/prefix.h"

namespace verbena::agent {

// A network interface (netdev) as the kernel reports it.
struct Netdev {
  uint32_t index = 0;
  std::string name;
  bool up = false;       // administratively
  bool carrier = false;  // IFF_LOWER_UP
  bool loopback = false;
  bool enslaved = false;  // port of a bridge or bond, which has the IP addresses
  bool bond = false;
  // Has no neighbours with hardware addresses: IFF_NOARP, IFF_POINTOPOINT or IFF_LOOPBACK.
  bool without_neighbours = false;
  uint32_t mtu = 0;
  std::array<uint8_t, 6> mac{};
};

// An address of a netdev as the kernel reports it.
struct NetdevAddress {
  roce::Address address;
  uint8_t prefix = 0;

  friend bool operator==(const NetdevAddress&, const NetdevAddress&) = default;
};

// The links of this network namespace with their GID tables. Does no I/O: the caller reports netlink events
// and users' changes, then calls settle() to compute the table.
//
// A netdev that is up and has an address gets the automatic link rxe_<netdev>, unless it is a port of a
// bridge or bond. The link stays until the netdev is removed or the user deletes the link; after a deletion
// only the user can add it again. Loopback gets an automatic link only while no other link is up, because
// programs that try all devices would expect it to reach other hosts. Loopback's link is removed once another
// link is up, except while programs may be using it (keep_loopback()).
//
// GIDs have the same order as in the kernel. Index 0 is the default GID, made from the MAC address even if
// the netdev lacks that address. A netdev without a MAC address (loopback) has no default GID. Each address
// takes the first free index from 1 on, or from 0 without a default GID. Addresses that appear together are
// ordered IPv4 before IPv6. An IPv6 address gets its GID even while tentative (duplicate address detection),
// so that indexes do not depend on timing. A GID keeps its index as long as its address exists.
class LinkTable {
 public:
  void netdev_changed(const Netdev& netdev);
  void netdev_removed(uint32_t interface_index);
  void address_changed(uint32_t interface_index, const NetdevAddress& address);
  void address_removed(uint32_t interface_index, const NetdevAddress& address);
  // Mark the beginning and the end of a complete report by the kernel. end_dump() removes netdevs and
  // addresses that were not reported since begin_dump().
  void begin_dump();
  void end_dump();

  // A netdev whose speed the table needs. `report` numbers the kernel's report that raised the question.
  struct SpeedQuestion {
    uint32_t interface_index = 0;
    uint64_t report = 0;
    std::string netdev;
  };
  // Returns a question for each netdev that has a link, or would get an automatic one, and was reported after
  // its last answered question.
  std::vector<SpeedQuestion> speed_questions() const;
  // Sets the netdev's speed to `speed` Mb/s, 0 if it is unknown. The speed stays until the next answer.
  // Returns whether the speed has changed.
  bool set_speed(const SpeedQuestion& question, uint32_t speed);

  control::AdminResult<void> add_link(std::string_view name, std::string_view netdev);
  control::AdminResult<void> delete_link(std::string_view name);
  // Renames the link. Programs that have the device open can still use it: its device index does not change.
  // A renamed link counts as added by the user.
  control::AdminResult<void> rename_link(std::string_view name, std::string_view new_name);

  // Makes the link receive packets only from hosts in `peers`; an empty list admits all hosts. The setting
  // lasts until the link is deleted or its netdev is removed.
  control::AdminResult<void> set_peers(std::string_view name, std::vector<roce::Prefix> peers);

  // Replaces all links by those of a former agent, with their names, peers, device indexes and GID indexes.
  // Also adopts the former agent's list of links that users have deleted. Ignores malformed links, and links
  // whose netdev no longer exists. REQUIRES: no client has seen the table yet
  void restore(const control::LinkSnapshot& snapshot);

  // Returns whether packets leave the netdev without a neighbour's hardware address. Netdevs without ARP
  // (tun, ipip, GRE, WireGuard, `ip link set DEV arp off`) have none, and the kernel's addr_resolve_neigh()
  // does not look for any. A point-to-point netdev's neighbour cannot be found by its address: the kernel has
  // a single entry for all of IPv4, under 0.0.0.0. False for an unknown netdev.
  bool needs_no_neighbours(uint32_t interface_index) const;

  // Sets whether loopback's automatic link must stay, because running programs may be using it.
  void keep_loopback(bool keep) { keep_loopback_ = keep; }
  // Sets whether the agent has UDP port 4791. Without the port, no link's RDMA port is ACTIVE.
  void set_wire(bool has_wire) { has_wire_ = has_wire; }
  bool has_automatic_loopback() const;

  // Recomputes the table from all changes since the last call. Returns whether the table has changed.
  bool settle();
  const control::LinkSnapshot& snapshot() const { return settled_; }

  // Returns the device indexes of bonds whose MAC address differs from that in `before`, which means that
  // another port of the bond has taken over.
  std::vector<uint32_t> failed_over(std::span<const control::Link> before) const;

  // Returns whether a user has added, renamed or deleted a link or set peers. The agent then does not end
  // when idle, because these changes would be lost.
  bool holds_user_changes() const;

 private:
  struct KnownAddress {
    NetdevAddress address;
    bool seen = true;
  };
  struct KnownNetdev {
    Netdev netdev;
    bool present = false;  // whether the netdev itself was reported, not only its addresses
    bool seen = true;
    std::vector<KnownAddress> addresses;  // in order of appearance
    bool link_deleted = false;
    uint64_t report = 0;           // number of the latest report of the netdev itself
    uint64_t answered_report = 0;  // that of the last answered SpeedQuestion
    uint32_t speed = 0;            // Mb/s; 0 if unknown
  };
  struct KnownLink {
    std::string name;
    uint32_t device_index = 0;
    uint32_t interface_index = 0;
    bool automatic = false;
    std::map<uint32_t, roce::Address> gids;  // by index
    std::vector<roce::Prefix> peers;
    // An agent of an older release has put an IP address at index 0 instead of the default GID. That address
    // stays there, because programs know it by that index.
    bool first_is_taken = false;
  };

  KnownLink* find_link(std::string_view name);
  KnownLink* find_link_over(uint32_t interface_index);
  bool has_link(uint32_t interface_index) const;
  KnownLink& make_link(std::string name, uint32_t interface_index, bool automatic);
  std::string automatic_name(const Netdev& netdev);
  void drop_links_without_netdev();
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
  uint64_t last_report_ = 0;
  bool has_wire_ = true;
  bool keep_loopback_ = false;
  control::LinkSnapshot settled_;
};

}  // namespace verbena::agent

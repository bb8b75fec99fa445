// SPDX-License-Identifier: Apache-2.0
#include "agent/status/state_tree.h"
#include "base/format.h"
#include "control/model/device_counters.h"
#include "management/mad/subnet.h"

namespace verbena::agent {
namespace {

using control::Link;

// The kernel's numbers for uverbs devices. Programs do not depend on the values.
constexpr unsigned kUverbsMajor = 231;
constexpr unsigned kFirstUverbsMinor = 192;
constexpr unsigned kFirstUmadMinor = 0;
constexpr unsigned kFirstIssmMinor = 64;
// The kernel assigns any minor number to a misc device.
constexpr unsigned kMiscMajor = 10;
constexpr unsigned kConnectionManagerMinor = 125;
constexpr uint32_t kGidFileStep = 16;
// A file that can be opened but not read (EINVAL): the loopback device has no speed. The kernel's files in
// gid_attrs/ behave like this for unused indexes.
constexpr const char* kUnreadable = "/sys/class/net/lo/speed";

// Formats a GUID as "5054:00ff:fe77:0001", and the 16 bytes of a GID likewise.
template <size_t Size>
std::string groups_of_four(const std::array<uint8_t, Size>& bytes) {
  std::string text;
  for (size_t i = 0; i < Size; i += 2) {
    text += verbena::format("{}{:02x}{:02x}", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
  }
  return text;
}

std::string mac_text(const Link& link) {
  return verbena::join(link.mac, ":", "{:02x}");
}

void add(Folder& folder, std::string path, std::string_view text) {
  folder.push_back({std::move(path), std::string(text) + '\n', false});
}

void add_link(Folder& folder, std::string path, std::string target) {
  folder.push_back({std::move(path), std::move(target), true});
}

// Links the device to its class, for programs that reach the device by another path.
void add_subsystem(Folder& folder, const std::string& device, std::string_view name) {
  add_link(folder, device + "subsystem", verbena::format("../../../../../class/{}", name));
}

void add_device_attributes(Folder& folder, const std::string& at, const Link& link,
                           std::string_view version) {
  const std::string guid = groups_of_four(control::guid_of(link));
  add(folder, at + "node_type", "1: CA");
  add(folder, at + "node_guid", guid);
  add(folder, at + "sys_image_guid", guid);
  add(folder, at + "node_desc", "verbena");
  add(folder, at + "fw_ver", version);
  add(folder, at + "hw_rev", "0");
  add(folder, at + "hca_type", "verbena");
  add(folder, at + "board_id", "verbena");
  add(folder, at + "parent", link.netdev);
  add(folder, at + "uevent", verbena::format("NAME={}", link.name));
  add_link(folder, at + "device", verbena::format("../../../{}", link.name));
  add_subsystem(folder, at, "infiniband");
}

// Adds the attributes of a port. The values match ibv_query_port(), except the LIDs. These match libibumad,
// so that ibstatus and ibstat agree.
void add_port_attributes(Folder& folder, const std::string& port, const Link& link) {
  const auto guid = load_be<uint64_t>(control::guid_of(link).data());
  add(folder, port + "state", link.is_active() ? "4: ACTIVE" : "1: DOWN");
  add(folder, port + "phys_state", link.is_active() ? "5: LinkUp" : link.up ? "2: Polling" : "3: Disabled");
  add(folder, port + "rate", control::port_speed_of(link.speed).text);
  add(folder, port + "lid", verbena::format("{:#x}", mad::Subnet::usual_lid(guid)));
  add(folder, port + "lid_mask_count", "0");
  add(folder, port + "sm_lid", verbena::format("{:#x}", mad::Subnet::kSwitchLid));
  add(folder, port + "sm_sl", "0");
  add(folder, port + "cap_mask", "0x00010000");
  add(folder, port + "link_layer", "Ethernet");
  add(folder, port + "pkeys/0", "0xffff");
  add(folder, port + "hw_counters/lifespan", "10");  // milliseconds
  for (const control::NamedCounter& counter : control::kNamedCounters)
    add(folder, verbena::format("{}{}", port, counter.path), "0");
}

// Adds the GID table up to the last GID, rounded up to 16 entries. The kernel has a file for each of a
// thousand indexes. No program needs those, and creating them takes a tenth of a second on a disk.
void add_gids(Folder& folder, const std::string& port, const Link& link) {
  const std::string nothing = groups_of_four(roce::Address{}.bytes);
  const uint32_t used = link.gids.empty() ? 0 : link.gids.back().index + 1;
  const uint32_t shown =
      std::min((used + kGidFileStep - 1) / kGidFileStep * kGidFileStep, control::kGidTableLength);
  auto entry = link.gids.begin();
  for (uint32_t index = 0; index < shown; ++index) {
    const std::string gid = verbena::format("{}gids/{}", port, index);
    const std::string type = verbena::format("{}gid_attrs/types/{}", port, index);
    const std::string netdev = verbena::format("{}gid_attrs/ndevs/{}", port, index);
    if (entry != link.gids.end() && entry->index == index) {
      add(folder, gid, groups_of_four(entry->gid.bytes));
      add(folder, type, "RoCE v2");
      add(folder, netdev, link.netdev);
      ++entry;
    } else {
      add(folder, gid, nothing);
      add_link(folder, type, kUnreadable);
      add_link(folder, netdev, kUnreadable);
    }
  }
}

// Adds the hardware device that the kernel would show, here a virtual one with its netdev.
void add_hardware(Folder& folder, const Link& link) {
  const std::string net = verbena::format("net/{}/", link.netdev);
  add(folder, net + "address", mac_text(link));
  add(folder, net + "ifindex", std::to_string(link.interface_index));
  add(folder, net + "mtu", std::to_string(link.mtu));
  add(folder, net + "operstate", link.up ? "up" : "down");
  add(folder, net + "carrier", link.up ? "1" : "0");
  add(folder, net + "dev_id", "0x0");
  add(folder, net + "dev_port", "0");
  add(folder, "vendor", "0xffffff");  // as in ibv_query_device(): none
  add(folder, "device", "0x0");
  add(folder, "numa_node", "-1");
  add(folder, "uevent", verbena::format("NAME={}", link.name));
}

// Adds a character device of the link with the attributes that the kernel gives to all of them. Returns its
// path.
std::string add_character_device(Folder& folder, const Link& link, std::string_view subsystem,
                                 const std::string& name, unsigned minor) {
  const std::string at = verbena::format("{}/{}/", subsystem, name);
  add(folder, at + "ibdev", link.name);
  add(folder, at + "dev", verbena::format("{}:{}", kUverbsMajor, minor));
  add(folder, at + "uevent",
      verbena::format("MAJOR={}\nMINOR={}\nDEVNAME=infiniband/{}", kUverbsMajor, minor, name));
  add_link(folder, at + "device", verbena::format("../../../{}", link.name));
  add_subsystem(folder, at, subsystem);
  return at;
}

void add_uverbs(Folder& folder, const Link& link) {
  const std::string at = add_character_device(folder, link, "infiniband_verbs", uverbs_name(link),
                                              kFirstUverbsMinor + link.device_index);
  add(folder, at + "abi_version", "1");
}

// Adds the devices for management datagrams of the port.
void add_mads(Folder& folder, const Link& link) {
  for (const auto& [name, first_minor] :
       {std::pair(umad_name(link), kFirstUmadMinor), {issm_name(link), kFirstIssmMinor}}) {
    const std::string at =
        add_character_device(folder, link, "infiniband_mad", name, first_minor + link.device_index);
    add(folder, at + "port", "1");
  }
}

}  // namespace

std::string uverbs_name(const Link& link) {
  return verbena::format("uverbs{}", link.device_index);
}

std::string umad_name(const Link& link) {
  return verbena::format("umad{}", link.device_index);
}

std::string issm_name(const Link& link) {
  return verbena::format("issm{}", link.device_index);
}

Folder device_folder(const Link& link, std::string_view version) {
  Folder folder;
  const std::string device = verbena::format("infiniband/{}/", link.name);
  const std::string port = device + "ports/1/";
  add_hardware(folder, link);
  add_device_attributes(folder, device, link, version);
  add_port_attributes(folder, port, link);
  add_gids(folder, port, link);
  add_uverbs(folder, link);
  add_mads(folder, link);
  return folder;
}

Folder connection_manager_folder() {
  Folder folder;
  add(folder, "abi_version", "4");
  add(folder, "dev", verbena::format("{}:{}", kMiscMajor, kConnectionManagerMinor));
  add(folder, "uevent",
      verbena::format("MAJOR={}\nMINOR={}\nDEVNAME=infiniband/rdma_cm", kMiscMajor, kConnectionManagerMinor));
  add_link(folder, "subsystem", "../../../../class/misc");
  return folder;
}

}  // namespace verbena::agent

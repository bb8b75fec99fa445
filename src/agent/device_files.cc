// SPDX-License-Identifier: Apache-2.0
#include "agent/device_files.h"

#include <algorithm>

#include <fmt/format.h>

#include "agent_client/device_counters.h"
#include "agent_client/port_speed.h"

namespace verbena::agent {
namespace {

using agent_client::Link;

// The kernel numbers its uverbs devices from here; which number they have means nothing to programs.
constexpr unsigned kUverbsMajor = 231;
constexpr unsigned kFirstUverbsMinor = 192;
constexpr unsigned kFirstUmadMinor = 0;
constexpr unsigned kFirstIssmMinor = 64;
constexpr uint32_t kGidFileStep = 16;

// "5054:00ff:fe77:0001", and likewise for a GID's 16 bytes.
template <size_t Size>
std::string groups_of_four(const std::array<uint8_t, Size>& bytes) {
  std::string text;
  for (size_t i = 0; i < Size; i += 2) {
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
  }
  return text;
}

std::string mac_text(const Link& link) {
  return fmt::format("{:02x}", fmt::join(link.mac, ":"));
}

void add(Folder& folder, std::string path, std::string_view text) {
  folder.push_back({std::move(path), std::string(text) + '\n', false});
}

void add_link(Folder& folder, std::string path, std::string target) {
  folder.push_back({std::move(path), std::move(target), true});
}

void add_device_attributes(Folder& folder, const Link& link, std::string_view version) {
  const std::string guid = groups_of_four(agent_client::guid_of(link));
  add(folder, "node_type", "1: CA");
  add(folder, "node_guid", guid);
  add(folder, "sys_image_guid", guid);
  add(folder, "node_desc", "verbena");
  add(folder, "fw_ver", version);
  add(folder, "hca_type", "verbena");
  add(folder, "parent", link.netdev);
}

// The numbers agree with what ibv_query_port() says.
void add_port_attributes(Folder& folder, const Link& link) {
  add(folder, "ports/1/state", link.up ? "4: ACTIVE" : "1: DOWN");
  add(folder, "ports/1/phys_state", link.up ? "5: LinkUp" : "3: Disabled");
  add(folder, "ports/1/rate", agent_client::port_speed_of(link.speed).text);
  add(folder, "ports/1/lid", "0x0");
  add(folder, "ports/1/lid_mask_count", "0");
  add(folder, "ports/1/sm_lid", "0x0");
  add(folder, "ports/1/sm_sl", "0");
  add(folder, "ports/1/cap_mask", "0x00010000");
  add(folder, "ports/1/link_layer", "Ethernet");
  add(folder, "ports/1/pkeys/0", "0xffff");
  add(folder, "ports/1/hw_counters/lifespan", "10");  // milliseconds
  for (const agent_client::NamedCounter& counter : agent_client::kNamedCounters)
    add(folder, fmt::format("ports/1/{}", counter.path), "0");
}

// The kernel has a file for every index of the table, a thousand of them; nobody needs those beyond the last
// GID, and making them takes a tenth of a second on a disk. Where the table has a hole the kernel's files of
// gid_attrs/ can be opened but not read (EINVAL), which no plain file can imitate: there they are missing.
void add_gids(Folder& folder, const Link& link) {
  const std::string nothing = groups_of_four(roce::Address{}.bytes);
  const uint32_t used = link.gids.empty() ? 0 : link.gids.back().index + 1;
  const uint32_t shown =
      std::min((used + kGidFileStep - 1) / kGidFileStep * kGidFileStep, agent_client::kGidTableLength);
  auto entry = link.gids.begin();
  for (uint32_t index = 0; index < shown; ++index) {
    const bool present = entry != link.gids.end() && entry->index == index;
    add(folder, fmt::format("ports/1/gids/{}", index), present ? groups_of_four(entry->gid.bytes) : nothing);
    if (!present) continue;
    add(folder, fmt::format("ports/1/gid_attrs/types/{}", index), "RoCE v2");
    add(folder, fmt::format("ports/1/gid_attrs/ndevs/{}", index), link.netdev);
    ++entry;
  }
}

// What `device` leads to under the kernel: the device's hardware, here a virtual one with its netdev.
void add_hardware(Folder& folder, const Link& link) {
  const std::string net = fmt::format("device/net/{}/", link.netdev);
  add(folder, net + "address", mac_text(link));
  add(folder, net + "ifindex", std::to_string(link.interface_index));
  add(folder, net + "mtu", std::to_string(link.mtu));
  add(folder, net + "operstate", link.up ? "up" : "down");
  add(folder, net + "carrier", link.up ? "1" : "0");
  add(folder, net + "dev_id", "0x0");
  add(folder, net + "dev_port", "0");
  add(folder, "device/vendor", "0xffffff");  // as ibv_query_device() says: none
  add(folder, "device/device", "0x0");
  add(folder, "device/numa_node", "-1");
  add(folder, "device/uevent", fmt::format("NAME={}", link.name));
  add_link(folder, "device/infiniband/" + link.name, "../..");
  add_link(folder, "device/infiniband_verbs/" + uverbs_name(link),
           "../../../../infiniband_verbs/" + uverbs_name(link));
}

}  // namespace

std::string uverbs_name(const Link& link) {
  return fmt::format("uverbs{}", link.device_index);
}

Folder device_folder(const Link& link, std::string_view version) {
  Folder folder;
  add_device_attributes(folder, link, version);
  add_port_attributes(folder, link);
  add_gids(folder, link);
  add_hardware(folder, link);
  return folder;
}

namespace {

// Of the port of a device, by which its management datagrams go.
Folder mad_folder(const Link& link, unsigned minor) {
  Folder folder;
  add(folder, "ibdev", link.name);
  add(folder, "port", "1");
  add(folder, "dev", fmt::format("{}:{}", kUverbsMajor, minor));
  add_link(folder, "device", fmt::format("../../infiniband/{}/device", link.name));
  return folder;
}

}  // namespace

std::string umad_name(const Link& link) {
  return fmt::format("umad{}", link.device_index);
}

std::string issm_name(const Link& link) {
  return fmt::format("issm{}", link.device_index);
}

Folder umad_folder(const Link& link) {
  return mad_folder(link, kFirstUmadMinor + link.device_index);
}

Folder issm_folder(const Link& link) {
  return mad_folder(link, kFirstIssmMinor + link.device_index);
}

Folder uverbs_folder(const Link& link) {
  Folder folder;
  add(folder, "ibdev", link.name);
  add(folder, "dev", fmt::format("{}:{}", kUverbsMajor, kFirstUverbsMinor + link.device_index));
  add(folder, "abi_version", "1");
  add_link(folder, "device", fmt::format("../../infiniband/{}/device", link.name));
  return folder;
}

}  // namespace verbena::agent

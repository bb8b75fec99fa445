// SPDX-License-Identifier: Apache-2.0
// Functions about adapters, such as umad_get_ca(3) and umad_get_port(3).
#include "libraries/libibumad/adapters.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include <infiniband/umad.h>

#include "base/bytes.h"
#include "base/c_abi.h"
#include "control/model/port_attributes.h"
#include "libraries/libibumad/agent_ports.h"
#include "libraries/libibumad/debug.h"

namespace verbena::umad {
namespace {

using control::Link;

constexpr unsigned kAdapterType = 1;
constexpr unsigned kDown = 1, kActive = 4;
constexpr unsigned kPolling = 2, kDisabled = 3, kLinkUp = 5;
constexpr uint16_t kDefaultPkey = 0xffff;
constexpr uint64_t kDefaultPrefix = 0xfe80000000000000;

template <size_t kSize>
void store(char (&to)[kSize], std::string_view text) {
  const size_t size = std::min(text.size(), kSize - 1);
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
}

// Returns the GUID in network byte order, which is how it is stored.
__be64 network_guid_of(const Link& link) {
  __be64 guid;
  std::memcpy(&guid, control::guid_of(link).data(), sizeof guid);
  return guid;
}

bool has_own_address(const Link* link) {
  return std::ranges::any_of(link->gids, [](const auto& entry) { return !entry.gid.is_link_local(); });
}

// Fills the port. LIDs come from the fabric; /sys and libibverbs do not show them, because they present a
// RoCE port.
int fill_port(const Link& link, umad_port_t& port) {
  const auto fabric = query_port(link.device_index);
  if (!fabric) return -EIO;
  auto* const pkeys = static_cast<uint16_t*>(std::calloc(1, sizeof(uint16_t)));
  if (pkeys == nullptr) return -EIO;
  *pkeys = kDefaultPkey;
  store(port.ca_name, link.name);
  port.portnum = kPortNumber;
  port.base_lid = fabric->lid;
  port.lmc = fabric->lid_mask_count;
  port.sm_lid = fabric->sm_lid;
  port.sm_sl = fabric->sm_sl;
  port.state = link.is_active() ? kActive : kDown;
  port.phys_state = link.is_active() ? kLinkUp : link.up ? kPolling : kDisabled;
  port.rate = static_cast<unsigned>(std::atoi(control::port_speed_of(link.speed).text));
  port.capmask = byteswap(fabric->capabilities);
  port.gid_prefix = byteswap(kDefaultPrefix);
  port.port_guid = network_guid_of(link);
  port.pkeys_size = 1;
  port.pkeys = pkeys;
  store(port.link_layer, "Ethernet");
  return 0;
}

int fill_adapter(const Link& link, umad_ca_t& ca) {
  std::memset(&ca, 0, sizeof ca);
  auto* const port = static_cast<umad_port_t*>(std::calloc(1, sizeof(umad_port_t)));
  if (port == nullptr) return -ENOMEM;
  if (const int failed = fill_port(link, *port); failed != 0) {
    std::free(port);
    return failed;
  }
  store(ca.ca_name, link.name);
  ca.node_type = kAdapterType;
  ca.numports = kPortNumber;
  store(ca.fw_ver, VERBENA_VERSION);
  store(ca.ca_type, "verbena");
  ca.node_guid = ca.system_guid = network_guid_of(link);
  ca.ports[kPortNumber] = port;
  return 0;
}

// Runs the body of a function that returns a number or a negative errno value.
template <class Body>
int answer_negative(Body&& body) {
  int answered = 0;
  const int failed = without_exceptions([&] {
    answered = body();
    return 0;
  });
  return failed != 0 ? -failed : answered;
}

}  // namespace

Result<std::vector<Link>> adapters() {
  auto links = umad::links();
  if (!links) return links;
  std::erase_if(*links, [](const Link& link) { return link.name.size() >= UMAD_CA_NAME_LEN; });
  return links;
}

// Selects a port as libibumad does. A device given by name is accepted as is, except with port 0; otherwise
// the port must be up. Unlike libibumad, accepts Ethernet links: all ours are.
Result<Choice> choose(const char* name, std::optional<int> port) {
  const auto links = adapters();
  if (!links) return fail(ENODEV);
  std::vector<const Link*> usable;
  for (const Link& link : *links) {
    if (name != nullptr && link.name != name) continue;
    const bool is_said = name != nullptr && (!port || *port > 0);
    if (is_said) return Choice{link, port.value_or(0)};
    const bool is_other = port.value_or(0) != 0 && *port != kPortNumber;
    if (link.is_active() && !is_other) usable.push_back(&link);
  }
  // Prefers an adapter with an address of its own, which can reach other hosts.
  const auto best = std::ranges::find_if(usable, has_own_address);
  if (best != usable.end()) return Choice{**best, kPortNumber};
  if (!usable.empty()) return Choice{*usable.front(), kPortNumber};
  return fail(ENODEV);
}

}  // namespace verbena::umad

using verbena::umad::answer_negative;
using verbena::umad::choose;

VERBENA_ABI int umad_init() {
  return 0;
}

VERBENA_ABI int umad_done() {
  return 0;
}

VERBENA_ABI int umad_get_cas_names(char names[][UMAD_CA_NAME_LEN], int max) {
  return answer_negative([&] {
    auto links = verbena::umad::adapters();
    if (!links || names == nullptr) return 0;
    std::ranges::sort(*links, {}, &verbena::control::Link::name);
    int count = 0;
    for (const auto& link : *links) {
      if (count < max) verbena::umad::store(names[count++], link.name);
    }
    return count;
  });
}

// Returns one GUID for each port, and 0 for port 0.
VERBENA_ABI int umad_get_ca_portguids(const char* name, __be64* guids, int max) {
  return answer_negative([&] {
    const auto chosen = choose(name, {});
    if (!chosen) return -ENODEV;
    if (guids == nullptr) return 0;
    if (max < verbena::umad::kPortNumber + 1) return -ENOMEM;
    guids[0] = 0;
    guids[verbena::umad::kPortNumber] = verbena::umad::network_guid_of(chosen->link);
    return verbena::umad::kPortNumber + 1;
  });
}

VERBENA_ABI int umad_get_ca(const char* name, umad_ca_t* ca) {
  return answer_negative([&] {
    if (ca == nullptr) return -EINVAL;
    const auto chosen = choose(name, {});
    return chosen ? verbena::umad::fill_adapter(chosen->link, *ca) : -ENODEV;
  });
}

VERBENA_ABI int umad_release_port(umad_port_t* port) {
  if (port == nullptr) return -ENODEV;
  std::free(port->pkeys);
  port->pkeys = nullptr;
  port->pkeys_size = 0;
  return 0;
}

VERBENA_ABI int umad_release_ca(umad_ca_t* ca) {
  if (ca == nullptr) return -ENODEV;
  for (umad_port_t*& port : ca->ports) {
    if (port != nullptr) umad_release_port(port);
    std::free(port);
    port = nullptr;
  }
  return 0;
}

VERBENA_ABI int umad_get_port(const char* name, int number, umad_port_t* port) {
  return answer_negative([&] {
    if (port == nullptr) return -EINVAL;
    const auto chosen = choose(name, number);
    if (!chosen) return -ENODEV;
    if (chosen->port != verbena::umad::kPortNumber) return -EIO;
    return verbena::umad::fill_port(chosen->link, *port);
  });
}

VERBENA_ABI int umad_get_issm_path(const char* name, int number, char path[], int max) {
  return answer_negative([&] {
    const auto chosen = choose(name, number);
    if (!chosen) return -ENODEV;
    if (chosen->port != verbena::umad::kPortNumber || path == nullptr || max <= 0) return -EINVAL;
    std::snprintf(path, static_cast<size_t>(max), "/dev/infiniband/issm%u", chosen->link.device_index);
    return 0;
  });
}

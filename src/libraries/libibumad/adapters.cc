// SPDX-License-Identifier: Apache-2.0
// Functions about adapters, such as umad_get_ca(3), umad_get_port(3) and umad_get_ca_device_list(3).
#include <cstdlib>

#include "base/c_abi.h"
#include "base/text.h"
#include "libraries/libibumad/umad.h"

namespace verbena::umad {
namespace {

using control::Link;

constexpr unsigned kAdapterType = 1;
constexpr unsigned kDown = 1, kActive = 4;
constexpr unsigned kPolling = 2, kDisabled = 3, kLinkUp = 5;
constexpr uint16_t kDefaultPkey = 0xffff;
constexpr uint64_t kDefaultPrefix = 0xfe80000000000000;

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
  store_text(port.ca_name, link.name);
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
  store_text(port.link_layer, "Ethernet");
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
  store_text(ca.ca_name, link.name);
  ca.node_type = kAdapterType;
  ca.numports = kPortNumber;
  store_text(ca.fw_ver, VERBENA_VERSION);
  store_text(ca.ca_type, "verbena");
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

// Unlike libibumad, accepts Ethernet links: all ours are.
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

using namespace verbena::umad;

VERBENA_ABI int umad_init() {
  return 0;
}

VERBENA_ABI int umad_done() {
  return 0;
}

VERBENA_ABI int umad_get_cas_names(char names[][UMAD_CA_NAME_LEN], int max) {
  return answer_negative([&] {
    auto links = adapters();
    if (!links || names == nullptr) return 0;
    std::ranges::sort(*links, {}, &verbena::control::Link::name);
    int count = 0;
    for (const auto& link : *links) {
      if (count < max) verbena::store_text(names[count++], link.name);
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
    if (max < kPortNumber + 1) return -ENOMEM;
    guids[0] = 0;
    guids[kPortNumber] = network_guid_of(chosen->link);
    return kPortNumber + 1;
  });
}

VERBENA_ABI int umad_get_ca(const char* name, umad_ca_t* ca) {
  return answer_negative([&] {
    if (ca == nullptr) return -EINVAL;
    const auto chosen = choose(name, {});
    return chosen ? fill_adapter(chosen->link, *ca) : -ENODEV;
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
    if (chosen->port != kPortNumber) return -EIO;
    return fill_port(chosen->link, *port);
  });
}

VERBENA_ABI int umad_get_issm_path(const char* name, int number, char path[], int max) {
  return answer_negative([&] {
    const auto chosen = choose(name, number);
    if (!chosen) return -ENODEV;
    if (chosen->port != kPortNumber || path == nullptr || max <= 0) return -EINVAL;
    std::snprintf(path, static_cast<size_t>(max), "/dev/infiniband/issm%u", chosen->link.device_index);
    return 0;
  });
}

namespace {

// Allocates a node with its name behind it, in one piece. Null if there is no memory.
umad_device_node* make_node(const std::string& name) {
  void* const memory = std::calloc(1, sizeof(umad_device_node) + name.size() + 1);
  if (memory == nullptr) return nullptr;
  auto* const node = static_cast<umad_device_node*>(memory);
  char* const text = reinterpret_cast<char*>(node + 1);
  std::memcpy(text, name.c_str(), name.size() + 1);
  node->ca_name = text;
  return node;
}

void join(const std::vector<umad_device_node*>& nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i]->next = i + 1 < nodes.size() ? nodes[i + 1] : nullptr;
}

}  // namespace

VERBENA_ABI void umad_free_ca_device_list(umad_device_node* head) {
  while (head != nullptr) {
    umad_device_node* const next = head->next;
    std::free(head);
    head = next;
  }
}

VERBENA_ABI umad_device_node* umad_get_ca_device_list() {
  umad_device_node* head = nullptr;
  const int failed = verbena::without_exceptions([&] {
    const auto links = adapters();
    if (!links) return 0;
    std::vector<umad_device_node*> nodes;
    nodes.reserve(links->size());
    for (const auto& link : *links) {
      umad_device_node* const node = make_node(link.name);
      if (node == nullptr) {
        for (umad_device_node* made : nodes) std::free(made);
        return ENOMEM;
      }
      nodes.push_back(node);
    }
    join(nodes);
    if (!nodes.empty()) head = nodes.front();
    return 0;
  });
  errno = failed;
  return head;
}

// EINVAL: `size` is not the list's length.
VERBENA_ABI int umad_sort_ca_device_list(umad_device_node** head, size_t size) {
  return verbena::without_exceptions([&] {
    std::vector<umad_device_node*> nodes;
    for (umad_device_node* node = *head; node != nullptr; node = node->next) nodes.push_back(node);
    if (size == 0) size = nodes.size();
    if (size < 2) return 0;
    if (size != nodes.size()) return EINVAL;
    std::ranges::stable_sort(nodes, [](const umad_device_node* one, const umad_device_node* other) {
      return std::strcmp(one->ca_name, other->ca_name) < 0;
    });
    join(nodes);
    *head = nodes.front();
    return 0;
  });
}

// umad_open_smi_port(3), umad_get_smi_gsi_pairs(3) and umad_get_smi_gsi_pair_by_ca_name(3): IBUMAD_1.3 and
// 1.4. Some adapters have separate devices for SMI and GSI; our ports serve both.
namespace verbena::umad::newer {

namespace {

CaPair pair_of(const std::string& device, uint32_t port) {
  CaPair pair{};
  store_text(pair.smi_name, device);
  store_text(pair.gsi_name, device);
  pair.smi_port = pair.gsi_port = port;
  return pair;
}

}  // namespace

VERBENA_NEWER_ABI(int, umad_open_smi_port, const char* name, int number) {
  return umad_open_port(name, number);
}

// Returns the number of devices, at most `max`; -1 on failure. Port numbers stay 0: only the function below
// selects a port.
VERBENA_NEWER_ABI(int, umad_get_smi_gsi_pairs, CaPair* pairs, size_t max) {
  int count = -1;
  without_exceptions([&] {
    if (pairs == nullptr && max > 0) return EINVAL;
    std::fill_n(pairs, max, CaPair{});
    auto links = adapters();
    if (!links) return count = 0;
    std::ranges::sort(*links, {}, &control::Link::name);
    const size_t found = std::min(links->size(), max);
    for (size_t i = 0; i < found; ++i) pairs[i] = pair_of((*links)[i].name, 0);
    count = static_cast<int>(found);
    return 0;
  });
  return count;
}

// Returns 0 or a negative errno value. A device given by name may be down; a null name selects the first
// active device. -ENODEV if there is no such device or port.
VERBENA_NEWER_ABI(int, umad_get_smi_gsi_pair_by_ca_name, const char* name, uint8_t number, CaPair* pair,
                  unsigned /*enforce_smi*/) {
  if (pair == nullptr) return -1;
  const int failed = without_exceptions([&] {
    *pair = CaPair{};
    const auto chosen = choose(name, number);
    if (!chosen || (number != 0 && number != kPortNumber)) return ENODEV;
    *pair = pair_of(chosen->link.name, kPortNumber);
    return 0;
  });
  if (failed != 0) errno = failed;
  return -failed;
}

}  // namespace verbena::umad::newer

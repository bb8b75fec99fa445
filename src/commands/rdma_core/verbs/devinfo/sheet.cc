// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/devinfo/sheet.h"

#include <algorithm>
#include <span>

#include <endian.h>

#include "base/format.h"

namespace verbena::rdma_core {

constexpr int kTab = 8;

void Sheet::row(int indent, const std::string& name, int column, const std::string& value) const {
  const int end = indent * kTab + static_cast<int>(name.size()) + 1;
  const int tabs = std::max(1, (column - end + kTab - 1) / kTab);
  output_.text("%s%s:%s%s\n", std::string(static_cast<size_t>(indent), '\t').c_str(), name.c_str(),
               std::string(static_cast<size_t>(tabs), '\t').c_str(), value.c_str());
}

Sheet::Json Sheet::flags(uint64_t value, std::span<const Flag> known, bool unknown_in_hex) const {
  Json names = Json::array();
  for (const Flag& flag : known) {
    if ((value & flag.bit) == 0) continue;
    output_.text("\t\t\t\t\t%s\n", flag.name);
    names.push_back(flag.name);
    value &= ~flag.bit;
  }
  if (value != 0 && unknown_in_hex) {
    const std::string rest = verbena::format("0x{:X}", value);
    output_.text("\t\t\t\t\tUnknown flags: %s\n", rest.c_str());
    names.push_back(rest);
  }
  return names;
}

namespace {

struct Name {
  int value;
  const char* text;
};

const char* find(std::span<const Name> names, int value, const char* otherwise) {
  for (const Name& each : names) {
    if (each.value == value) return each.text;
  }
  return otherwise;
}

constexpr Name kTransports[] = {{IBV_TRANSPORT_IB, "InfiniBand"},
                                {IBV_TRANSPORT_IWARP, "iWARP"},
                                {IBV_TRANSPORT_USNIC, "usNIC"},
                                {IBV_TRANSPORT_USNIC_UDP, "usNIC UDP"},
                                {IBV_TRANSPORT_UNSPECIFIED, "unspecified"}};
constexpr Name kPortStates[] = {{IBV_PORT_DOWN, "PORT_DOWN"},
                                {IBV_PORT_INIT, "PORT_INIT"},
                                {IBV_PORT_ARMED, "PORT_ARMED"},
                                {IBV_PORT_ACTIVE, "PORT_ACTIVE"}};
// Spelled as in ibv_devinfo(1).
constexpr Name kPhysicalStates[] = {{1, "SLEEP"},    {2, "POLLING"},
                                    {3, "DISABLED"}, {4, "PORT_CONFIGURATION TRAINNING"},
                                    {5, "LINK_UP"},  {6, "LINK_ERROR_RECOVERY"},
                                    {7, "PHY TEST"}};
constexpr Name kAtomics[] = {
    {IBV_ATOMIC_NONE, "ATOMIC_NONE"}, {IBV_ATOMIC_HCA, "ATOMIC_HCA"}, {IBV_ATOMIC_GLOB, "ATOMIC_GLOB"}};
constexpr Name kMtus[] = {{IBV_MTU_256, "256"},
                          {IBV_MTU_512, "512"},
                          {IBV_MTU_1024, "1024"},
                          {IBV_MTU_2048, "2048"},
                          {IBV_MTU_4096, "4096"}};
constexpr Name kWidths[] = {{1, "1"}, {2, "4"}, {4, "8"}, {8, "12"}, {16, "2"}};
constexpr Name kSpeeds[] = {{1, "2.5 Gbps"},   {2, "5.0 Gbps"},   {4, "10.0 Gbps"},  {8, "10.0 Gbps"},
                            {16, "14.0 Gbps"}, {32, "25.0 Gbps"}, {64, "50.0 Gbps"}, {128, "100.0 Gbps"}};
constexpr Name kVirtualLanes[] = {{1, "1"}, {2, "2"}, {3, "4"}, {4, "8"}, {5, "15"}};
constexpr Name kLinkLayers[] = {{IBV_LINK_LAYER_UNSPECIFIED, "Unspecified"},
                                {IBV_LINK_LAYER_INFINIBAND, "InfiniBand"},
                                {IBV_LINK_LAYER_ETHERNET, "Ethernet"}};

}  // namespace

const char* transport_name(int transport) {
  return find(kTransports, transport, "invalid transport");
}
const char* port_state_name(int state) {
  return find(kPortStates, state, "invalid state");
}
const char* physical_state_name(int state) {
  return find(kPhysicalStates, state, "invalid physical state");
}
const char* atomic_name(int capability) {
  return find(kAtomics, capability, "invalid atomic capability");
}
const char* mtu_name(int mtu) {
  return find(kMtus, mtu, "invalid MTU");
}
const char* width_name(int width) {
  return find(kWidths, width, "invalid width");
}
const char* speed_name(int speed) {
  return find(kSpeeds, speed, "invalid speed");
}
const char* virtual_lanes_name(int number) {
  return find(kVirtualLanes, number, "invalid value");
}
const char* link_layer_name(int layer) {
  return find(kLinkLayers, layer, "Unknown");
}

std::string guid_text(uint64_t guid_in_network_order) {
  const uint64_t guid = be64toh(guid_in_network_order);
  return verbena::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff, guid >> 16 & 0xffff,
                         guid & 0xffff);
}

std::string long_gid_text(const ibv_gid& gid) {
  std::string text;
  for (size_t i = 0; i < sizeof gid.raw; i += 2) {
    text += verbena::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid.raw[i], gid.raw[i + 1]);
  }
  return text;
}

}  // namespace verbena::rdma_core

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <infiniband/verbs.h>

namespace verbena::rdma_core {

// Return ibv_devinfo's names for values of verbs.h, or a text such as "invalid state" for unknown values.
const char* transport_name(int transport);
const char* port_state_name(int state);
const char* physical_state_name(int state);
const char* atomic_name(int capability);
const char* mtu_name(int mtu);
const char* width_name(int width);
const char* speed_name(int speed);
const char* virtual_lanes_name(int number);
const char* link_layer_name(int layer);

// Formats a GUID as "0011:2233:4455:6677".
std::string guid_text(uint64_t guid_in_network_order);

// Formats a GID as eight groups of four digits, without the abbreviations of IPv6.
std::string long_gid_text(const ibv_gid& gid);

}  // namespace verbena::rdma_core

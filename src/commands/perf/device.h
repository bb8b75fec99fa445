// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <verbena/verbs.hpp>

#include "commands/perf/parameters.h"

namespace verbena::perf {

// The device of a test, and the limits of the test that follow from it.
struct Device {
  // Opens the device that the parameters name, or the first one. Throws std::exception if there is none, or
  // if its port is not active.
  explicit Device(const Parameters& parameters);
  // Takes the device that librdmacm has chosen. Throws std::exception if its port is not active.
  Device(verbena::context chosen, const Parameters& parameters);

  // Returns the largest path MTU that this end can have: that of the port, or a smaller one that -m asks for.
  // Throws std::runtime_error if the value of -m is no MTU of IBTA.
  ibv_mtu mtu(const Parameters& parameters) const;

  verbena::context context;
  ibv_port_attr port{};
  ibv_gid_entry gid{};
  std::uint32_t inline_size = 0;  // bytes; longer messages are not sent inline
  std::uint32_t reads = 1;        // READs and atomics that may be under way

 private:
  void look_at(const Parameters& parameters);
};

// Returns the bytes of an MTU.
constexpr std::uint32_t bytes_of(ibv_mtu mtu) {
  return 128U << mtu;
}
// Return the names of the link layer and of the transport, as perftest prints them.
const char* name_of_link(const ibv_port_attr& port);
const char* name_of_transport(const verbena::context& device);

}  // namespace verbena::perf

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <infiniband/verbs.h>

namespace verbena {

// The address of a queue pair, which its peer needs to connect to it. The program sends these 40 bytes to the
// peer in any way it likes. They are in network byte order, so that hosts of both byte orders understand each
// other. An endpoint from a peer is untrusted, as all input is: qp::connect() checks the endpoint
// (is_valid()).
class endpoint {
 public:
  endpoint() = default;
  endpoint(const ibv_gid& gid, std::uint32_t qp_num, std::uint32_t psn, std::uint16_t lid, ibv_mtu mtu) {
    std::memcpy(bytes_.data(), gid.raw, sizeof gid.raw);
    put(kQpNumAt, qp_num);
    put(kPsnAt, psn);
    put(kLidAt, lid);
    put(kMtuAt, static_cast<std::uint32_t>(mtu));
  }

  ibv_gid gid() const {
    ibv_gid gid;
    std::memcpy(gid.raw, bytes_.data(), sizeof gid.raw);
    return gid;
  }
  std::uint32_t qp_num() const { return get(kQpNumAt) & kMask24; }
  // Packet sequence number of the first packet that this end sends.
  std::uint32_t psn() const { return get(kPsnAt) & kMask24; }
  // InfiniBand's local ID. 0 on Ethernet.
  std::uint16_t lid() const { return static_cast<std::uint16_t>(get(kLidAt)); }
  // Whether this can be the address of a queue pair: a unicast GID, and numbers within their ranges.
  bool is_valid() const {
    const bool is_multicast = bytes_[0] == 0xff;
    const bool is_zero =
        std::all_of(bytes_.begin(), bytes_.begin() + sizeof(ibv_gid), [](auto byte) { return byte == 0; });
    return !is_multicast && !is_zero && get(kQpNumAt) <= kMask24 && get(kPsnAt) <= kMask24 &&
           get(kLidAt) <= 0xffff && mtu() >= IBV_MTU_256 && mtu() <= IBV_MTU_4096;
  }
  // The largest path MTU that this end's port supports.
  ibv_mtu mtu() const { return static_cast<ibv_mtu>(get(kMtuAt)); }

 private:
  static constexpr std::size_t kQpNumAt = 16, kPsnAt = 20, kLidAt = 24, kMtuAt = 28;
  static constexpr std::uint32_t kMask24 = 0xffffff;

  void put(std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) bytes_[at + i] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
  }
  std::uint32_t get(std::size_t at) const {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | bytes_[at + i];
    return value;
  }

  std::array<std::uint8_t, 40> bytes_{};
};
static_assert(std::is_trivially_copyable_v<endpoint> && sizeof(endpoint) == 40);

}  // namespace verbena

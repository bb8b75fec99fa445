// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/bytes.h"

namespace verbena::protocol {

// The maximum private data in bytes of any message: 224 in a DREP; a REP has at most 196.
inline constexpr size_t kCmPrivateBytes = 224;

// The parameters of one end of a connection that is being set up. From rdma_conn_param, rdma_connect() and
// rdma_accept() build the parameters for the CmConnectRequest to the agent. The connection manager writes
// them into the REQ or REP (management/cm/parameters.h). The peer's parameters come in a CmEvent,
// translated to our view: the peer's initiator depth is our responder resources.
//
// Part of the agent protocol: plain bytes of a fixed size. Values from outside may be arbitrary.
struct ConnectionParameters {
  uint32_t qpn;
  uint32_t qkey;        // only for UD: the accepting side's Q_Key
  uint32_t ece_vendor;  // 0 without enhanced connection establishment (ECE)
  uint32_t ece_options;
  uint8_t responder_resources;
  uint8_t initiator_depth;
  uint8_t flow_control;
  uint8_t retry_count;
  uint8_t rnr_retry_count;
  uint8_t srq;
  uint8_t private_length;
  uint8_t reserved;
  uint8_t private_data[kCmPrivateBytes];

  ConstBytes data() const {
    return std::as_bytes(std::span(private_data)).first(std::min<size_t>(private_length, kCmPrivateBytes));
  }
  // The next three methods change the private data. If it would be too long, they return false and change
  // nothing.
  bool append(ConstBytes more) { return insert(data().size(), more); }
  bool prepend(ConstBytes more) { return insert(0, more); }
  bool set_data(ConstBytes whole) {
    if (whole.size() > kCmPrivateBytes) return false;
    private_length = 0;
    return append(whole);
  }

 private:
  bool insert(size_t at, ConstBytes more) {
    const size_t length = data().size();
    if (more.size() > kCmPrivateBytes - length) return false;
    if (more.empty()) return true;
    std::memmove(private_data + at + more.size(), private_data + at, length - at);
    std::memcpy(private_data + at, more.data(), more.size());
    private_length = static_cast<uint8_t>(length + more.size());
    return true;
  }
};
static_assert(sizeof(ConnectionParameters) == 248);
static_assert(std::is_trivial_v<ConnectionParameters>);

}  // namespace verbena::protocol

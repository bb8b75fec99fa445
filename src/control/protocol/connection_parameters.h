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

// The maximum private data of any message (REP: 196, DREP: 224).
inline constexpr size_t kCmPrivateBytes = 224;

// The parameters of one end of a connection that is being set up. One type is used all the way:
// rdma_connect() and rdma_accept() build it from rdma_conn_param, CmConnectRequest carries it to the agent,
// and the connection manager writes it into the REQ or REP (management/cm/spoken_parameters.h). The peer's
// parameters come back in a CmEvent, to rdma_cm_event, translated to our view: its initiator depth is our
// responder resources.
//
// Part of the agent protocol: plain bytes of a fixed size. Values from outside may be arbitrary.
struct ConnectionParameters {
  uint32_t qpn;
  uint32_t qkey;        // UD: the accepting side's
  uint32_t ece_vendor;  // 0: no enhanced connection establishment
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
  // These return false, and change nothing, if there is no room.
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "management/cm/field_io.h"
#include "management/cm/messages.h"

namespace verbena::cm {

// The layouts of the messages: walk() calls `io` for each field with its offset (IBTA volume 1, tables 106 to
// 120). Bits of enhanced connection establishment are as in Linux' include/rdma/ibta_vol1_c12.h. Io is a
// FieldReader, or a FieldWriter with a const message.

template <class Message, class Io>
using MessageOf = std::conditional_t<std::is_same_v<Io, FieldWriter>, const Message, Message>;

template <class Io>
void walk_ids(Io& io, auto& m) {
  io.u32(0, m.local_id);
  io.u32(4, m.remote_id);
}

// A path in a REQ, at offset 52 or 96.
template <class Io>
void walk_path(Io& io, size_t at, MessageOf<PathFields, Io>& path) {
  io.u16(at, path.local_lid);
  io.u16(at + 2, path.remote_lid);
  io.address(at + 4, path.local_gid);
  io.address(at + 20, path.remote_gid);
  io.u20(at + 36, path.flow_label);
  io.bits(at + 39, 2, 6, path.packet_rate);
  io.u8(at + 40, path.traffic_class);
  io.u8(at + 41, path.hop_limit);
  io.bits(at + 42, 0, 4, path.service_level);
  io.bits(at + 42, 4, 1, path.subnet_local);
  io.bits(at + 43, 0, 5, path.local_ack_timeout);
}

template <class Io>
void walk(Io& io, MessageOf<Req, Io>& m) {
  io.u32(0, m.local_id);
  io.u24(5, m.ece.vendor);
  io.u64(8, m.service_id);
  io.u64(16, m.local_ca_guid);
  io.u32(28, m.local_qkey);
  io.u24(32, m.local_qpn);
  io.u8(35, m.responder_resources);
  io.u24(36, m.local_eecn);
  io.u8(39, m.initiator_depth);
  io.u24(40, m.remote_eecn);
  io.bits(43, 0, 5, m.remote_response_timeout);
  io.bits(43, 5, 2, m.transport);
  io.bits(43, 7, 1, m.flow_control);
  io.u24(44, m.starting_psn);
  io.bits(47, 0, 5, m.local_response_timeout);
  io.bits(47, 5, 3, m.retry_count);
  io.u16(48, m.pkey);
  io.bits(50, 0, 4, m.path_mtu);
  io.bits(50, 4, 1, m.rdc_exists);
  io.bits(50, 5, 3, m.rnr_retry_count);
  io.bits(51, 0, 4, m.max_cm_retries);
  io.bits(51, 4, 1, m.srq);
  io.bits(51, 5, 3, m.extended_transport);
  walk_path(io, 52, m.primary);
  walk_path(io, 96, m.alternate);
  io.bits(139, 5, 1, m.sap_supported);
  io.bytes(140, m.private_data);
}

template <class Io>
void walk(Io& io, MessageOf<Mra, Io>& m) {
  walk_ids(io, m);
  io.bits(8, 0, 2, m.delayed);
  io.bits(9, 0, 5, m.service_timeout);
  io.bytes(10, m.private_data);
}

template <class Io>
void walk(Io& io, MessageOf<Rej, Io>& m) {
  walk_ids(io, m);
  io.bits(8, 0, 2, m.rejected);
  io.bits(9, 0, 7, m.ari_length);
  io.u16(10, m.reason);
  io.bytes(12, m.ari);
  io.bytes(84, m.private_data);
}

// The 24-bit vendor ID of a REP is split over bytes 15, 19 and 23, which follow the QPN, the EECN and the
// starting PSN.
template <class Io>
void walk_vendor(Io& io, MessageOf<Rep, Io>& m) {
  uint8_t high = static_cast<uint8_t>(m.ece.vendor >> 16);
  uint8_t middle = static_cast<uint8_t>(m.ece.vendor >> 8);
  uint8_t low = static_cast<uint8_t>(m.ece.vendor);
  io.u8(15, high);
  io.u8(19, middle);
  io.u8(23, low);
  if constexpr (std::is_same_v<Io, FieldReader>) {
    m.ece.vendor = static_cast<uint32_t>(high) << 16 | static_cast<uint32_t>(middle) << 8 | low;
  }
}

template <class Io>
void walk(Io& io, MessageOf<Rep, Io>& m) {
  walk_ids(io, m);
  io.u32(8, m.local_qkey);
  io.u24(12, m.local_qpn);
  io.u24(16, m.local_eecn);
  io.u24(20, m.starting_psn);
  walk_vendor(io, m);
  io.u8(24, m.responder_resources);
  io.u8(25, m.initiator_depth);
  io.bits(26, 0, 5, m.target_ack_delay);
  io.bits(26, 5, 2, m.failover_accepted);
  io.bits(26, 7, 1, m.flow_control);
  io.bits(27, 0, 3, m.rnr_retry_count);
  io.bits(27, 3, 1, m.srq);
  io.u64(28, m.local_ca_guid);
  io.bytes(36, m.private_data);
}

template <class Io>
void walk(Io& io, MessageOf<Rtu, Io>& m) {
  walk_ids(io, m);
  io.bytes(8, m.private_data);
}

template <class Io>
void walk(Io& io, MessageOf<Dreq, Io>& m) {
  walk_ids(io, m);
  io.u24(8, m.remote_qpn);
  io.bytes(12, m.private_data);
}

template <class Io>
void walk(Io& io, MessageOf<Drep, Io>& m) {
  walk_ids(io, m);
  io.bytes(8, m.private_data);
}

// The path of a LAP has its last fields in another order than that of a REQ.
template <class Io>
void walk(Io& io, MessageOf<Lap, Io>& m) {
  walk_ids(io, m);
  io.u24(12, m.remote_qpn);
  io.bits(15, 0, 5, m.remote_response_timeout);
  io.u16(20, m.alternate.local_lid);
  io.u16(22, m.alternate.remote_lid);
  io.address(24, m.alternate.local_gid);
  io.address(40, m.alternate.remote_gid);
  io.u20(56, m.alternate.flow_label);
  io.u8(59, m.alternate.traffic_class);
  io.u8(60, m.alternate.hop_limit);
  io.bits(61, 2, 6, m.alternate.packet_rate);
  io.bits(62, 0, 4, m.alternate.service_level);
  io.bits(62, 4, 1, m.alternate.subnet_local);
  io.bits(63, 0, 5, m.alternate.local_ack_timeout);
  io.bytes(64, m.private_data);
}

template <class Io>
void walk(Io& io, MessageOf<Apr, Io>& m) {
  walk_ids(io, m);
  io.u8(8, m.info_length);
  io.bits(9, 0, 8, m.status);
  io.bytes(12, m.info);
  io.bytes(84, m.private_data);
}

template <class Io>
void walk(Io& io, MessageOf<SidrReq, Io>& m) {
  io.u32(0, m.request_id);
  io.u16(4, m.pkey);
  io.u64(8, m.service_id);
  io.bytes(16, m.private_data);
}

template <class Io>
void walk(Io& io, MessageOf<SidrRep, Io>& m) {
  uint16_t vendor_high = static_cast<uint16_t>(m.ece.vendor >> 8);
  uint8_t vendor_low = static_cast<uint8_t>(m.ece.vendor);
  io.u32(0, m.request_id);
  io.bits(4, 0, 8, m.status);
  io.u8(5, m.info_length);
  io.u16(6, vendor_high);
  io.u24(8, m.qpn);
  io.u8(11, vendor_low);
  io.u64(12, m.service_id);
  io.u32(20, m.qkey);
  io.bytes(24, m.info);
  io.bytes(96, m.private_data);
  if constexpr (std::is_same_v<Io, FieldReader>) {
    m.ece.vendor = static_cast<uint32_t>(vendor_high) << 8 | vendor_low;
  }
}

}  // namespace verbena::cm

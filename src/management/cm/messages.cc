// SPDX-License-Identifier: Apache-2.0
#include "management/cm/messages.h"

#include "wire/roce/qpn.h"

namespace verbena::cm {
namespace {

constexpr uint32_t kMulticastQpn = roce::kMulticastQpn.value();

// Reads or writes the fields of a message by their byte offset in the datagram's data, so that each layout is
// written once for both directions. Bits are counted as in the specification, from the byte's most
// significant bit.
class FieldIo {
 public:
  // Reads fields from `data`.
  explicit FieldIo(const std::byte* data) : from_(data) {}
  // Writes fields to `data`. REQUIRES: all bytes there are zero
  explicit FieldIo(std::byte* data) : to_(data) {}

  void u8(size_t at, uint8_t& value) { bits(at, 0, 8, value); }
  void u16(size_t at, uint16_t& value) { number(at, value); }
  void u32(size_t at, uint32_t& value) { number(at, value); }
  void u64(size_t at, uint64_t& value) { number(at, value); }
  void u24(size_t at, uint32_t& value) { u24({at, at + 1, at + 2}, value); }
  // Three bytes that are apart, the most significant one first.
  void u24(const std::array<size_t, 3>& at, uint32_t& value) {
    std::array<uint8_t, 3> bytes;
    if (to_ != nullptr) store_be24(bytes.data(), value);
    for (size_t i = 0; i < at.size(); ++i) u8(at[i], bytes[i]);
    if (to_ == nullptr) value = load_be24(bytes.data());
  }
  // The upper 20 bits of three bytes.
  void u20(size_t at, uint32_t& value) {
    uint32_t shifted = value << 4;
    u24(at, shifted);
    value = shifted >> 4;
  }
  template <class T>
  void bits(size_t at, unsigned first, unsigned width, T& value) {
    const unsigned shift = 8 - first - width;
    const unsigned mask = (1u << width) - 1;
    if (to_ != nullptr) {
      to_[at] |= static_cast<std::byte>((static_cast<unsigned>(value) & mask) << shift);
    } else {
      value = static_cast<T>(static_cast<unsigned>(from_[at]) >> shift & mask);
    }
  }
  template <size_t N>
  void bytes(size_t at, std::array<uint8_t, N>& value) {
    static_assert(N <= kMadBytes - kMadHeaderBytes);
    if (to_ != nullptr) {
      std::memcpy(to_ + at, value.data(), N);
    } else {
      std::memcpy(value.data(), from_ + at, N);
    }
  }

 private:
  template <class T>
  void number(size_t at, T& value) {
    if (to_ != nullptr) {
      store_be(to_ + at, value);
    } else {
      value = load_be<T>(from_ + at);
    }
  }

  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;  // nullptr: reads
};

// The layouts of the messages (IBTA volume 1, tables 106 to 120). Bits of enhanced connection establishment
// are as in Linux' include/rdma/ibta_vol1_c12.h.

void walk_ids(FieldIo& io, auto& m) {
  io.u32(0, m.local_id);
  io.u32(4, m.remote_id);
}

// A path in a REQ, at offset 52 or 96.
void walk_path(FieldIo& io, size_t at, PathFields& path) {
  io.u16(at, path.local_lid);
  io.u16(at + 2, path.remote_lid);
  io.bytes(at + 4, path.local_gid.bytes);
  io.bytes(at + 20, path.remote_gid.bytes);
  io.u20(at + 36, path.flow_label);
  io.bits(at + 39, 2, 6, path.packet_rate);
  io.u8(at + 40, path.traffic_class);
  io.u8(at + 41, path.hop_limit);
  io.bits(at + 42, 0, 4, path.service_level);
  io.bits(at + 42, 4, 1, path.subnet_local);
  io.bits(at + 43, 0, 5, path.local_ack_timeout);
}

void walk(FieldIo& io, Req& m) {
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

void walk(FieldIo& io, Mra& m) {
  walk_ids(io, m);
  io.bits(8, 0, 2, m.delayed);
  io.bits(9, 0, 5, m.service_timeout);
  io.bytes(10, m.private_data);
}

void walk(FieldIo& io, Rej& m) {
  walk_ids(io, m);
  io.bits(8, 0, 2, m.rejected);
  io.bits(9, 0, 7, m.ari_length);
  io.u16(10, m.reason);
  io.bytes(12, m.ari);
  io.bytes(84, m.private_data);
}

// The bytes of the vendor ID follow the QPN, the EECN and the starting PSN.
void walk(FieldIo& io, Rep& m) {
  walk_ids(io, m);
  io.u32(8, m.local_qkey);
  io.u24(12, m.local_qpn);
  io.u24(16, m.local_eecn);
  io.u24(20, m.starting_psn);
  io.u24({15, 19, 23}, m.ece.vendor);
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

void walk(FieldIo& io, Rtu& m) {
  walk_ids(io, m);
  io.bytes(8, m.private_data);
}

void walk(FieldIo& io, Dreq& m) {
  walk_ids(io, m);
  io.u24(8, m.remote_qpn);
  io.bytes(12, m.private_data);
}

void walk(FieldIo& io, Drep& m) {
  walk_ids(io, m);
  io.bytes(8, m.private_data);
}

// The path of a LAP has its last fields in another order than that of a REQ.
void walk(FieldIo& io, Lap& m) {
  walk_ids(io, m);
  io.u24(12, m.remote_qpn);
  io.bits(15, 0, 5, m.remote_response_timeout);
  io.u16(20, m.alternate.local_lid);
  io.u16(22, m.alternate.remote_lid);
  io.bytes(24, m.alternate.local_gid.bytes);
  io.bytes(40, m.alternate.remote_gid.bytes);
  io.u20(56, m.alternate.flow_label);
  io.u8(59, m.alternate.traffic_class);
  io.u8(60, m.alternate.hop_limit);
  io.bits(61, 2, 6, m.alternate.packet_rate);
  io.bits(62, 0, 4, m.alternate.service_level);
  io.bits(62, 4, 1, m.alternate.subnet_local);
  io.bits(63, 0, 5, m.alternate.local_ack_timeout);
  io.bytes(64, m.private_data);
}

void walk(FieldIo& io, Apr& m) {
  walk_ids(io, m);
  io.u8(8, m.info_length);
  io.bits(9, 0, 8, m.status);
  io.bytes(12, m.info);
  io.bytes(84, m.private_data);
}

void walk(FieldIo& io, SidrReq& m) {
  io.u32(0, m.request_id);
  io.u16(4, m.pkey);
  io.u64(8, m.service_id);
  io.bytes(16, m.private_data);
}

void walk(FieldIo& io, SidrRep& m) {
  io.u32(0, m.request_id);
  io.bits(4, 0, 8, m.status);
  io.u8(5, m.info_length);
  io.u24(8, m.qpn);
  io.u24({6, 7, 11}, m.ece.vendor);
  io.u64(12, m.service_id);
  io.u32(20, m.qkey);
  io.bytes(24, m.info);
  io.bytes(96, m.private_data);
}

// Checks that do not depend on the state. A QPN of 0 is valid: a program that exchanges only private data
// connects without a QP, which the kernel allows.
bool is_sound(const auto& m) {
  return m.local_id != 0 && m.remote_id != 0;
}
bool is_sound(const Req& m) {
  return m.local_id != 0 && m.local_qpn != kMulticastQpn;
}
bool is_sound(const Mra& m) {
  return m.remote_id != 0 && m.delayed <= Answered::kOther;
}
// Our ID is missing if the sender timed out before any message from us arrived.
bool is_sound(const Rej& m) {
  return (m.local_id != 0 || m.remote_id != 0) && m.rejected <= Answered::kOther &&
         m.ari_length <= m.ari.size();
}
bool is_sound(const Rep& m) {
  return m.local_id != 0 && m.remote_id != 0 && m.local_qpn != kMulticastQpn && m.local_eecn != kMulticastQpn;
}
bool is_sound(const Apr& m) {
  return m.local_id != 0 && m.remote_id != 0 && m.info_length <= m.info.size();
}
bool is_sound(const SidrReq& m) {
  return m.request_id != 0;
}
bool is_sound(const SidrRep& m) {
  return m.request_id != 0 && m.info_length <= m.info.size();
}

}  // namespace

tl::expected<MessageHeader, DropReason> decode_header(ConstBytes mad) {
  if (mad.size() != kMadBytes) return tl::unexpected(DropReason::kNotWhole);
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(mad[at]); };
  const auto type = static_cast<size_t>(load_be<uint16_t>(&mad[roce::kAttributeAt])) - kFirstAttribute;
  const bool is_ours = byte(roce::kBaseVersionAt) == roce::kMadBaseVersion &&
                       byte(roce::kClassAt) == kMadClass && byte(roce::kClassVersionAt) == kMadClassVersion &&
                       byte(roce::kMethodAt) == roce::kMadMethodSend && type < kMessageTypes;
  if (!is_ours) return tl::unexpected(DropReason::kNotOurs);
  return MessageHeader{static_cast<MessageType>(type), load_be<uint64_t>(&mad[roce::kTransactionAt])};
}

template <class Message>
std::optional<Message> decode(ConstBytes mad) {
  Message message;
  FieldIo reader(mad.data() + kMadHeaderBytes);
  walk(reader, message);
  if constexpr (requires { message.ece; }) {
    message.ece.options = load_be<uint32_t>(&mad[roce::kModifierAt]);
  }
  return is_sound(message) ? std::optional(message) : std::nullopt;
}

template <class Message>
Mad encode(const Message& message, uint64_t transaction) {
  Mad mad;
  mad.set_kind(kMadClass, kMadClassVersion, roce::kMadMethodSend,
               static_cast<uint16_t>(kFirstAttribute + static_cast<uint16_t>(Message::kType)));
  mad.set(roce::kTransactionAt, transaction);
  if constexpr (requires { message.ece; }) mad.set(roce::kModifierAt, message.ece.options);
  FieldIo writer(mad.at(kMadHeaderBytes));
  Message copy = message;
  walk(writer, copy);
  return mad;
}

#define VERBENA_CM_MESSAGE(Message)                            \
  template std::optional<Message> decode<Message>(ConstBytes); \
  template Mad encode<Message>(const Message&, uint64_t)
VERBENA_CM_MESSAGE(Req);
VERBENA_CM_MESSAGE(Mra);
VERBENA_CM_MESSAGE(Rej);
VERBENA_CM_MESSAGE(Rep);
VERBENA_CM_MESSAGE(Rtu);
VERBENA_CM_MESSAGE(Dreq);
VERBENA_CM_MESSAGE(Drep);
VERBENA_CM_MESSAGE(SidrReq);
VERBENA_CM_MESSAGE(SidrRep);
VERBENA_CM_MESSAGE(Lap);
VERBENA_CM_MESSAGE(Apr);
#undef VERBENA_CM_MESSAGE

}  // namespace verbena::cm

// SPDX-License-Identifier: Apache-2.0
#include "management/cm/messages.h"

#include "management/cm/layouts.h"
#include "wire/roce/qpn.h"

namespace verbena::cm {
namespace {

// Offsets in the common MAD header (IBTA volume 1, 13.4.3).
constexpr size_t kBaseVersionAt = 0;
constexpr size_t kClassAt = 1;
constexpr size_t kClassVersionAt = 2;
constexpr size_t kMethodAt = 3;
constexpr size_t kTransactionAt = 8;
constexpr size_t kAttributeAt = 16;
constexpr size_t kModifierAt = 20;

constexpr uint32_t kMulticastQpn = roce::kMulticastQpn.value();

bool has_ids(const auto& message) {
  return message.local_id != 0 && message.remote_id != 0;
}

// Checks that do not depend on the state. A QPN of 0 is valid: a program that exchanges only private data
// connects without a QP, which the kernel allows.
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
  return has_ids(m) && m.local_qpn != kMulticastQpn && m.local_eecn != kMulticastQpn;
}
bool is_sound(const Rtu& m) {
  return has_ids(m);
}
bool is_sound(const Dreq& m) {
  return has_ids(m);
}
bool is_sound(const Drep& m) {
  return has_ids(m);
}
bool is_sound(const Lap& m) {
  return has_ids(m);
}
bool is_sound(const Apr& m) {
  return has_ids(m) && m.info_length <= m.info.size();
}
bool is_sound(const SidrReq& m) {
  return m.request_id != 0;
}
bool is_sound(const SidrRep& m) {
  return m.request_id != 0 && m.info_length <= m.info.size();
}

// The attribute modifier, which carries the options of enhanced connection establishment.
uint32_t modifier_of(const auto& message) {
  if constexpr (requires { message.ece; }) return message.ece.options;
  return 0;
}

}  // namespace

tl::expected<MadHeader, DecodeError> decode_header(ConstBytes mad) {
  if (mad.size() != kMadBytes) return tl::unexpected(DecodeError::kSize);
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(mad[at]); };
  if (byte(kBaseVersionAt) != kMadBaseVersion) return tl::unexpected(DecodeError::kVersion);
  if (byte(kClassAt) != kMadClass) return tl::unexpected(DecodeError::kClass);
  if (byte(kClassVersionAt) != kMadClassVersion) return tl::unexpected(DecodeError::kVersion);
  if (byte(kMethodAt) != kMadMethodSend) return tl::unexpected(DecodeError::kMethod);
  const auto attribute = load_be<uint16_t>(&mad[kAttributeAt]);
  if (attribute < kFirstAttribute || attribute >= kFirstAttribute + kMessageTypes) {
    return tl::unexpected(DecodeError::kAttribute);
  }
  return MadHeader{static_cast<MessageType>(attribute - kFirstAttribute),
                   load_be<uint64_t>(&mad[kTransactionAt]), load_be<uint32_t>(&mad[kModifierAt])};
}

template <class Message>
tl::expected<Message, DecodeError> decode(ConstBytes mad) {
  Message message;
  FieldReader reader(mad.data() + kMadHeaderBytes);
  walk(reader, message);
  if constexpr (requires { message.ece; }) {
    message.ece.options = load_be<uint32_t>(&mad[kModifierAt]);
  }
  if (!is_sound(message)) return tl::unexpected(DecodeError::kField);
  return message;
}

template <class Message>
Mad encode(const Message& message, uint64_t transaction) {
  Mad mad;
  std::byte* const bytes = mad.bytes.data();
  bytes[kBaseVersionAt] = std::byte{kMadBaseVersion};
  bytes[kClassAt] = std::byte{kMadClass};
  bytes[kClassVersionAt] = std::byte{kMadClassVersion};
  bytes[kMethodAt] = std::byte{kMadMethodSend};
  store_be(bytes + kTransactionAt, transaction);
  store_be(bytes + kAttributeAt,
           static_cast<uint16_t>(kFirstAttribute + static_cast<uint16_t>(Message::kType)));
  store_be(bytes + kModifierAt, modifier_of(message));
  FieldWriter writer(bytes + kMadHeaderBytes);
  walk(writer, message);
  return mad;
}

template tl::expected<Req, DecodeError> decode<Req>(ConstBytes);
template tl::expected<Mra, DecodeError> decode<Mra>(ConstBytes);
template tl::expected<Rej, DecodeError> decode<Rej>(ConstBytes);
template tl::expected<Rep, DecodeError> decode<Rep>(ConstBytes);
template tl::expected<Rtu, DecodeError> decode<Rtu>(ConstBytes);
template tl::expected<Dreq, DecodeError> decode<Dreq>(ConstBytes);
template tl::expected<Drep, DecodeError> decode<Drep>(ConstBytes);
template tl::expected<SidrReq, DecodeError> decode<SidrReq>(ConstBytes);
template tl::expected<SidrRep, DecodeError> decode<SidrRep>(ConstBytes);
template tl::expected<Lap, DecodeError> decode<Lap>(ConstBytes);
template tl::expected<Apr, DecodeError> decode<Apr>(ConstBytes);
template Mad encode<Req>(const Req&, uint64_t);
template Mad encode<Mra>(const Mra&, uint64_t);
template Mad encode<Rej>(const Rej&, uint64_t);
template Mad encode<Rep>(const Rep&, uint64_t);
template Mad encode<Rtu>(const Rtu&, uint64_t);
template Mad encode<Dreq>(const Dreq&, uint64_t);
template Mad encode<Drep>(const Drep&, uint64_t);
template Mad encode<SidrReq>(const SidrReq&, uint64_t);
template Mad encode<SidrRep>(const SidrRep&, uint64_t);
template Mad encode<Lap>(const Lap&, uint64_t);
template Mad encode<Apr>(const Apr&, uint64_t);

}  // namespace verbena::cm

// SPDX-License-Identifier: Apache-2.0
#include "management/mad/rmpp.h"

#include <algorithm>

namespace verbena::mad {
namespace {

constexpr size_t kAdministrationData = 56;
constexpr size_t kDeviceData = 64;
constexpr size_t kVendorData = 40;

// Copies the headers of the answered datagram with the response bit inverted; the rest is zero.
Mad begin(const Mad& about, RmppType type) {
  const uint8_t management_class = about.u8(kClassAt);
  const size_t headers = has_rmpp(management_class) ? rmpp_data_offset(management_class) : kRmppDataAt;
  Mad mad;
  std::copy_n(about.bytes.begin(), headers, mad.bytes.begin());
  mad.set_u8(kMethodAt, about.u8(kMethodAt) ^ kMethodResponse);
  mad.set_u8(kRmppVersionAt, kRmppVersion);
  mad.set_u8(kRmppTypeAt, static_cast<uint8_t>(type));
  mad.set_u8(kRmppFlagsAt, static_cast<uint8_t>((about.u8(kRmppFlagsAt) & 0xf8) | kRmppActive));
  mad.set_u8(kRmppStatusAt, 0);
  return mad;
}

}  // namespace

size_t rmpp_data_offset(uint8_t management_class) {
  if (management_class == kClassSubnAdministration) return kAdministrationData;
  return is_vendor_with_oui(management_class) ? kVendorData : kDeviceData;
}

RmppType rmpp_type(const Mad& mad) {
  return static_cast<RmppType>(mad.u8(kRmppTypeAt));
}

RmppKey rmpp_key(uint64_t owner, const roce::Address& other, const Mad& mad) {
  RmppKey key;
  key.owner = owner;
  key.other = other;
  key.transaction = mad.get<uint64_t>(kTransactionAt);
  key.management_class = mad.u8(kClassAt);
  key.class_version = mad.u8(kClassVersionAt);
  key.method = mad.u8(kMethodAt);
  return key;
}

RmppKey rmpp_key_answered_by(uint64_t owner, const roce::Address& other, const Mad& mad) {
  RmppKey key = rmpp_key(owner, other, mad);
  key.method ^= kMethodResponse;
  return key;
}

Mad rmpp_ack(const Mad& about, uint32_t segment, uint32_t window) {
  Mad mad = begin(about, RmppType::kAck);
  mad.set(kRmppSegmentAt, segment);
  mad.set(kRmppLengthAt, window);
  return mad;
}

Mad rmpp_refusal(const Mad& about, RmppType type, RmppStatus status) {
  Mad mad = begin(about, type);
  mad.set_u8(kRmppStatusAt, static_cast<uint8_t>(status));
  mad.set(kRmppSegmentAt, uint32_t{0});
  mad.set(kRmppLengthAt, uint32_t{0});
  return mad;
}

}  // namespace verbena::mad

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "management/mad/mad.h"
#include "wire/roce/path.h"

namespace verbena::mad {

// The reliable multi-packet protocol (RMPP): messages of several datagrams (IBTA volume 1, 13.6). Each
// segment has the message's MAD header, an RMPP header, the class header and a part of the data. Where the
// specification leaves a choice, we do as the Linux kernel does, for interoperability
// (drivers/infiniband/core/mad_rmpp.c).

// Offsets in the RMPP header (13.6.2.1).
inline constexpr size_t kRmppVersionAt = 24;
inline constexpr size_t kRmppTypeAt = 25;
inline constexpr size_t kRmppFlagsAt = 26;  // the response time is in the upper five bits
inline constexpr size_t kRmppStatusAt = 27;
inline constexpr size_t kRmppSegmentAt = 28;
inline constexpr size_t kRmppLengthAt = 32;  // DATA: payload length; ACK: last segment of the window
inline constexpr size_t kRmppDataAt = 36;    // the class header counts as payload

inline constexpr uint8_t kRmppVersion = 1;
inline constexpr uint8_t kRmppActive = 0x01, kRmppFirst = 0x02, kRmppLast = 0x04;
enum class RmppType : uint8_t { kNone = 0, kData = 1, kAck = 2, kStop = 3, kAbort = 4 };

// The reason of a STOP or ABORT (table 49).
enum class RmppStatus : uint8_t {
  kNormal = 0,
  kNoResources = 1,  // the only status of a STOP
  kTooLong = 118,    // time limit exceeded; the lowest status of an ABORT
  kBadSegment = 120,
  kBadType = 121,
  kWindowTooSmall = 122,
  kSegmentTooBig = 123,
  kIllegalStatus = 124,
  kBadVersion = 125,
  kLast = 127,
};

// Our maximum length of a message, in bytes. (The kernel has no such limit.)
inline constexpr size_t kMaxRmppBytes = size_t{4} << 20;

// Returns the offset of a segment's data, after all headers. REQUIRES: has_rmpp(management_class)
size_t rmpp_data_offset(uint8_t management_class);

// Whether a datagram or message with these headers uses RMPP. REQUIRES: `mad` includes the RMPP header
inline bool is_rmpp(ConstBytes mad) {
  return has_rmpp(static_cast<uint8_t>(mad[kClassAt])) &&
         (static_cast<uint8_t>(mad[kRmppFlagsAt]) & kRmppActive) != 0;
}
inline bool is_rmpp(const Mad& mad) {
  return is_rmpp(ConstBytes(mad.bytes));
}
RmppType rmpp_type(const Mad& mad);

// Identifies the message that a datagram belongs to. The two ends of a message have different keys, since
// answers have the response bit in their method.
struct RmppKey {
  uint64_t owner = 0;     // the local sender or receiver of the message, by a number of the caller's
  roce::Address other{};  // the address of the other end; zero if the other end is local, too
  uint64_t transaction = 0;
  uint8_t management_class = 0;
  uint8_t class_version = 0;
  uint8_t method = 0;

  auto tied() const {
    return std::tie(owner, other.bytes, transaction, management_class, class_version, method);
  }
  friend bool operator<(const RmppKey& one, const RmppKey& two) { return one.tied() < two.tied(); }
};
// Returns the key of the message that `mad` belongs to. REQUIRES: `mad` is one of the message's own datagrams
RmppKey rmpp_key(uint64_t owner, const roce::Address& other, const Mad& mad);
// Returns the key of the message that `mad` refers to. REQUIRES: `mad` is an ACK, STOP or ABORT from the
// message's receiver
RmppKey rmpp_key_answered_by(uint64_t owner, const roce::Address& other, const Mad& mad);

// Build an ACK, and a STOP or ABORT (`type`), in answer to the datagram `about`. `segment`: the last segment
// received in order. `window`: the last segment that may be sent.
Mad rmpp_ack(const Mad& about, uint32_t segment, uint32_t window);
Mad rmpp_refusal(const Mad& about, RmppType type, RmppStatus status);

}  // namespace verbena::mad

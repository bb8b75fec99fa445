// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "management/mad/mad.h"
#include "wire/roce/path.h"

namespace verbena::mad {

// The reliable multi-packet protocol: messages of several datagrams (IBTA volume 1, 13.6). Each segment has
// the message's header, that of RMPP and that of its class, and a part of the data behind. Where the book
// leaves a choice, it is the Linux kernel's, which is what others speak (drivers/infiniband/core/mad_rmpp.c).

// Where the header's fields lie (13.6.2.1).
inline constexpr size_t kRmppVersionAt = 24;
inline constexpr size_t kRmppTypeAt = 25;
inline constexpr size_t kRmppFlagsAt = 26;  // and the response time, in the upper five bits
inline constexpr size_t kRmppStatusAt = 27;
inline constexpr size_t kRmppSegmentAt = 28;
inline constexpr size_t kRmppLengthAt = 32;  // of data: the payload's length; of an ACK: the window's last
inline constexpr size_t kRmppDataAt = 36;    // the class's own header is counted as payload

inline constexpr uint8_t kRmppVersion = 1;
inline constexpr uint8_t kRmppActive = 0x01, kRmppFirst = 0x02, kRmppLast = 0x04;
enum class RmppType : uint8_t { kNone = 0, kData = 1, kAck = 2, kStop = 3, kAbort = 4 };

// Why it is stopped or aborted (table 49).
enum class RmppStatus : uint8_t {
  kNormal = 0,
  kNoResources = 1,  // the only one of STOP
  kTooLong = 118,    // it has taken longer than it may; the first one of ABORT
  kBadSegment = 120,
  kBadType = 121,
  kWindowTooSmall = 122,
  kSegmentTooBig = 123,
  kIllegalStatus = 124,
  kBadVersion = 125,
  kLast = 127,
};

// No message is longer. The kernel knows no limit but its memory.
inline constexpr size_t kMaxRmppBytes = size_t{4} << 20;

// Where the data of a segment begin, behind all headers. REQUIRES: has_rmpp(management_class)
size_t rmpp_data_offset(uint8_t management_class);

// Whether RMPP is at work in a datagram, or in the message that begins with it. REQUIRES: all of that header
// is there
inline bool is_rmpp(ConstBytes mad) {
  return has_rmpp(static_cast<uint8_t>(mad[kClassAt])) &&
         (static_cast<uint8_t>(mad[kRmppFlagsAt]) & kRmppActive) != 0;
}
inline bool is_rmpp(const Mad& mad) {
  return is_rmpp(ConstBytes(mad.bytes));
}
RmppType rmpp_type(const Mad& mad);

// What says of a datagram which message it belongs to. Two ends of one know it by different keys, as what
// comes back has the other method.
struct RmppKey {
  uint64_t owner = 0;     // whose it is here
  roce::Address other{};  // zero: it is here, too
  uint64_t transaction = 0;
  uint8_t management_class = 0;
  uint8_t class_version = 0;
  uint8_t method = 0;

  auto tied() const {
    return std::tie(owner, other.bytes, transaction, management_class, class_version, method);
  }
  friend bool operator<(const RmppKey& one, const RmppKey& two) { return one.tied() < two.tied(); }
};
RmppKey rmpp_key(uint64_t owner, const roce::Address& other, const Mad& mad);
// The key of what `mad` is an ACK, STOP or ABORT to.
RmppKey rmpp_key_answered_by(uint64_t owner, const roce::Address& other, const Mad& mad);

// The datagrams that go back. `about`: the one that they answer.
Mad rmpp_ack(const Mad& about, uint32_t segment, uint32_t window);
Mad rmpp_refusal(const Mad& about, RmppType type, RmppStatus status);

}  // namespace verbena::mad

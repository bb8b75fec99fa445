// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbena::cm {

// The reasons of a REJ (IBTA volume 1, table 109). Peers may send other reasons, so received reasons are
// stored as numbers.
enum class RejReason : uint16_t {
  kNoQp = 1,
  kNoEec = 2,
  kNoResources = 3,
  kTimeout = 4,  // ARI: the sender's CA GUID
  kUnsupportedRequest = 5,
  kInvalidCommunicationId = 6,
  kInvalidCommunicationInstance = 7,
  kInvalidServiceId = 8,
  kInvalidTransportServiceType = 9,
  kStaleConnection = 10,
  kRdcDoesNotExist = 11,
  kInvalidGid = 12,  // ARI for this and the following: an acceptable value
  kInvalidLid = 13,
  kInvalidServiceLevel = 14,
  kInvalidTrafficClass = 15,
  kInvalidHopLimit = 16,
  kInvalidPacketRate = 17,
  kInvalidAlternateGid = 18,
  kInvalidAlternateLid = 19,
  kInvalidAlternateServiceLevel = 20,
  kInvalidAlternateTrafficClass = 21,
  kInvalidAlternateHopLimit = 22,
  kInvalidAlternatePacketRate = 23,
  kCmRedirection = 24,
  kRedirection = 25,
  kInvalidPathMtu = 26,
  kInsufficientResponderResources = 27,
  kConsumer = 28,
  kInvalidRnrRetryCount = 29,
  kDuplicateCommunicationId = 30,
  kInvalidClassVersion = 31,
  kInvalidFlowLabel = 32,
  kInvalidAlternateFlowLabel = 33,
  kVendorOptionNotSupported = 35,
};
const char* reason_name(uint16_t reason);

// The kind of message that is rejected, or delayed by an MRA (IBTA volume 1, 12.6.6 and 12.6.7).
enum class Answered : uint8_t { kReq = 0, kRep = 1, kOther = 2 };

// The result of a SIDR_REQ (IBTA volume 1, 12.11.2).
enum class SidrStatus : uint8_t {
  kValid = 0,
  kUnsupported = 1,
  kRejected = 2,
  kNoQp = 3,
  kRedirected = 4,
  kUnsupportedVersion = 5,
};

// The result of a LAP (IBTA volume 1, 12.8.2).
enum class AprStatus : uint8_t {
  kLoaded = 0,
  kInvalidCommunicationId = 1,
  kUnsupported = 2,
  kRejected = 3,
  kRedirected = 4,
  kIsCurrent = 5,
  kInvalidQpn = 6,
  kInvalidLid = 7,
  kInvalidGid = 8,
  kInvalidFlowLabel = 9,
  kInvalidTrafficClass = 10,
  kInvalidHopLimit = 11,
  kInvalidPacketRate = 12,
  kInvalidServiceLevel = 13,
};

}  // namespace verbena::cm

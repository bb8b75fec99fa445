// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/roce/mad.h"
#include "wire/roce/path.h"

namespace verbena::cm {

using roce::kGsiQkey, roce::kGsiQpn, roce::kMadBytes, roce::kMadHeaderBytes, roce::Mad;

inline constexpr uint8_t kMadClass = 0x07;  // communication management
inline constexpr uint8_t kMadClassVersion = 2;

// The messages of the CM class (IBTA volume 1, table 104), numbered from zero. The attribute ID of a message
// is 0x0010 (kFirstAttribute) plus this number.
enum class MessageType : uint8_t {
  kReq,
  kMra,
  kRej,
  kRep,
  kRtu,
  kDreq,
  kDrep,
  kSidrReq,
  kSidrRep,
  kLap,
  kApr,
};
inline constexpr size_t kMessageTypes = 11;
inline constexpr uint16_t kFirstAttribute = 0x0010;
const char* message_name(MessageType type);

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

// The result of a LAP (IBTA volume 1, 12.8.2). Has only the values that we send.
enum class AprStatus : uint8_t {
  kLoaded = 0,
  kInvalidCommunicationId = 1,
  kUnsupported = 2,
  kInvalidQpn = 6
};

// The reason why a received datagram was dropped without effect.
enum class DropReason : uint8_t {
  kNotWhole,   // length is not 256 bytes
  kNotOurs,    // other management class, version or method, or unknown attribute
  kMalformed,  // a field has an impossible value
  // No connection has the communication ID. (We answer a REP, RTU, DREQ or LAP nevertheless.)
  kUnknownConnection,
  // The ID belongs to a connection with another host or QP, or another program of the peer's host sent the
  // datagram.
  kWrongPeer,
  kUnexpected,       // the message makes no sense in the connection's state
  kTooManyHalfOpen,  // REQ, SIDR_REQ: ManagerConfig::max_half_open is reached
  kNotAdmitted,      // REQ, SIDR_REQ: the owner ignored the request, as for a full backlog
  kPeerToPeerLost,   // does not occur: keeps its place in protocol::CmStatus
};
inline constexpr size_t kDropReasons = 9;
const char* drop_reason_name(DropReason reason);

// Counters of one GSI, written only by the manager's thread.
struct Counters {
  using ByMessage = std::array<uint64_t, kMessageTypes>;
  ByMessage sent{};           // including retransmissions
  ByMessage retransmitted{};  // by timer
  ByMessage received{};
  ByMessage duplicates{};  // received more than once; answered again where the specification says so
  ByMessage timed_out{};   // given up after all retransmissions
  std::array<uint64_t, kDropReasons> dropped{};
  uint64_t stale_connections = 0;    // stale connections, detected because the peer reused the QPN
  uint64_t time_wait_cut_short = 0;  // waits ended early by ManagerConfig::max_waiting

  uint64_t& of(DropReason reason) { return dropped[static_cast<size_t>(reason)]; }
  uint64_t of(DropReason reason) const { return dropped[static_cast<size_t>(reason)]; }
};

// The messages of communication management as values in host order (IBTA volume 1, 12.6 to 12.11). As in the
// specification, "local" and "remote" are from the sender's view. Timeouts are 5-bit exponents n: 4.096 us *
// 2^n. Reserved bits are sent as zero and ignored when received. Private data always has full length, padded
// with zeros.

template <size_t N>
using PrivateData = std::array<uint8_t, N>;

// The fields of enhanced connection establishment (ECE), by which two adapters of one vendor agree on options
// beyond the standard. In a message, the options are in the attribute modifier, and the vendor ID is in
// formerly reserved bits.
struct Ece {
  uint32_t vendor = 0;  // 24 bits; 0 if there is none
  uint32_t options = 0;

  friend bool operator==(const Ece&, const Ece&) = default;
};

// The transport of a connection. XRC is extended transport type 1 (annex A14).
enum class Transport : uint8_t { kRc = 0, kUc = 1, kRd = 2, kExtended = 3 };
inline constexpr uint8_t kExtendedXrc = 1;

// The LID fields of a path whose hop limit exceeds 1; otherwise they are 0. RoCE has no LIDs.
inline constexpr uint16_t kPermissiveLid = 0xffff;
// A path as REQ and LAP describe it.
struct PathFields {
  uint16_t local_lid = 0;
  uint16_t remote_lid = 0;
  roce::Address local_gid;
  roce::Address remote_gid;
  uint32_t flow_label = 0;  // 20 bits
  uint8_t packet_rate = 0;  // 6 bits; 0 means the port's rate
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint8_t service_level = 0;  // 4 bits
  bool subnet_local = false;
  uint8_t local_ack_timeout = 0;  // 5 bits: 4.096 us * 2^n

  bool exists() const { return local_lid != 0 || !local_gid.is_zero(); }
  friend bool operator==(const PathFields&, const PathFields&) = default;
};

struct Req {
  static constexpr MessageType kType = MessageType::kReq;
  uint32_t local_id = 0;
  Ece ece{};
  uint64_t service_id = 0;
  uint64_t local_ca_guid = 0;
  uint32_t local_qkey = 0;
  uint32_t local_qpn = 0;
  uint8_t responder_resources = 0;
  uint32_t local_eecn = 0;
  uint8_t initiator_depth = 0;
  uint32_t remote_eecn = 0;
  uint8_t remote_response_timeout = 0;
  Transport transport = Transport::kRc;
  bool flow_control = false;
  uint32_t starting_psn = 0;
  uint8_t local_response_timeout = 0;
  uint8_t retry_count = 0;
  uint16_t pkey = 0xffff;
  uint8_t path_mtu = 0;  // enum ibv_mtu
  bool rdc_exists = false;
  uint8_t rnr_retry_count = 0;
  uint8_t max_cm_retries = 0;
  bool srq = false;
  uint8_t extended_transport = 0;
  PathFields primary{};
  PathFields alternate{};
  bool sap_supported = false;
  PrivateData<92> private_data{};

  bool is_xrc() const { return transport == Transport::kExtended && extended_transport == kExtendedXrc; }
  friend bool operator==(const Req&, const Req&) = default;
};

struct Mra {
  static constexpr MessageType kType = MessageType::kMra;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  Answered delayed = Answered::kReq;
  uint8_t service_timeout = 0;
  PrivateData<222> private_data{};

  friend bool operator==(const Mra&, const Mra&) = default;
};

struct Rej {
  static constexpr MessageType kType = MessageType::kRej;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  Answered rejected = Answered::kReq;
  uint16_t reason = 0;  // RejReason
  uint8_t ari_length = 0;
  PrivateData<72> ari{};  // additional reject information
  PrivateData<148> private_data{};

  bool is(RejReason what) const { return reason == static_cast<uint16_t>(what); }
  friend bool operator==(const Rej&, const Rej&) = default;
};

struct Rep {
  static constexpr MessageType kType = MessageType::kRep;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint32_t local_qkey = 0;
  uint32_t local_qpn = 0;  // 0 for an XRC target, whose QPN is in local_eecn
  uint32_t local_eecn = 0;
  Ece ece{};
  uint32_t starting_psn = 0;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t target_ack_delay = 0;
  uint8_t failover_accepted = 0;
  bool flow_control = false;
  uint8_t rnr_retry_count = 0;
  bool srq = false;
  uint64_t local_ca_guid = 0;
  PrivateData<196> private_data{};

  friend bool operator==(const Rep&, const Rep&) = default;
};

struct Rtu {
  static constexpr MessageType kType = MessageType::kRtu;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  PrivateData<224> private_data{};

  friend bool operator==(const Rtu&, const Rtu&) = default;
};

struct Dreq {
  static constexpr MessageType kType = MessageType::kDreq;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint32_t remote_qpn = 0;
  PrivateData<220> private_data{};

  friend bool operator==(const Dreq&, const Dreq&) = default;
};

struct Drep {
  static constexpr MessageType kType = MessageType::kDrep;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  PrivateData<224> private_data{};

  friend bool operator==(const Drep&, const Drep&) = default;
};

struct Lap {
  static constexpr MessageType kType = MessageType::kLap;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint32_t remote_qpn = 0;
  uint8_t remote_response_timeout = 0;
  PathFields alternate{};
  PrivateData<168> private_data{};

  friend bool operator==(const Lap&, const Lap&) = default;
};

struct Apr {
  static constexpr MessageType kType = MessageType::kApr;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint8_t info_length = 0;
  AprStatus status = AprStatus::kLoaded;
  PrivateData<72> info{};
  PrivateData<148> private_data{};

  friend bool operator==(const Apr&, const Apr&) = default;
};

struct SidrReq {
  static constexpr MessageType kType = MessageType::kSidrReq;
  uint32_t request_id = 0;
  uint16_t pkey = 0xffff;
  uint64_t service_id = 0;
  PrivateData<216> private_data{};

  friend bool operator==(const SidrReq&, const SidrReq&) = default;
};

struct SidrRep {
  static constexpr MessageType kType = MessageType::kSidrRep;
  uint32_t request_id = 0;
  SidrStatus status = SidrStatus::kValid;
  uint8_t info_length = 0;
  Ece ece{};
  uint32_t qpn = 0;
  uint64_t service_id = 0;
  uint32_t qkey = 0;
  PrivateData<72> info{};
  PrivateData<136> private_data{};

  friend bool operator==(const SidrRep&, const SidrRep&) = default;
};

// The fields of the MAD header that differ among datagrams of the CM class, except for the attribute
// modifier, which carries the options of enhanced connection establishment.
struct MessageHeader {
  MessageType type = MessageType::kReq;
  uint64_t transaction = 0;
};

// Decodes the MAD header. Fails with kNotWhole or kNotOurs if the datagram is no CM message.
tl::expected<MessageHeader, DropReason> decode_header(ConstBytes mad);

// Decodes a message. Returns nullopt for impossible values: lengths beyond their field, IDs of zero where one
// is required, QPNs that no connection can have. REQUIRES: decode_header(mad) returned Message::kType
template <class Message>
std::optional<Message> decode(ConstBytes mad);

// Encodes a message as a whole datagram with this transaction ID.
template <class Message>
Mad encode(const Message& message, uint64_t transaction);

// Copies private data into a message's field. Returns false, without copying, if the data is longer than the
// field. REQUIRES: the field is zero
template <size_t N>
bool put(ConstBytes from, PrivateData<N>& to) {
  if (from.size() > N) return false;
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  return true;
}

}  // namespace verbena::cm

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "base/time.h"
#include "control/protocol/connection_messages.h"
#include "management/cm/events.h"
#include "management/cm/messages.h"
#include "wire/roce/path.h"

namespace verbena::cm {

// The RDMA IP CM service (IBTA volume 1, annex A11). It uses IP ports as service IDs. The private data of a
// REQ or SIDR_REQ begins with the IP addresses of both ends.

// Port spaces, with the values of enum rdma_port_space. kTcp and kUdp are the annex's: 0x0100 plus the IP
// protocol. kIpoib and kIb are librdmacm's.
enum class PortSpace : uint16_t { kIpoib = 0x0002, kTcp = 0x0106, kUdp = 0x0111, kIb = 0x013f };

// Returns the service ID of a port: the port space in bits 16 to 31, and the port in the low 16 bits. The
// annex's form is 0x0000000001PPpppp: PP is the IP protocol, pppp the port.
constexpr uint64_t service_id(PortSpace space, uint16_t port) {
  return static_cast<uint64_t>(space) << 16 | port;
}

struct IpService {
  PortSpace space;
  uint16_t port;  // host order
};
// Parses a service ID. EINVAL if the service ID belongs to none of these port spaces.
Result<IpService> parse_service_id(uint64_t service_id);

// The header at the beginning of the private data (A11.4.1). Addresses are in GID form, IPv4 mapped.
struct IpHeader {
  static constexpr size_t kBytes = 36;
  uint8_t major_version = 0;
  uint8_t minor_version = 0;
  uint16_t source_port = 0;  // host order
  roce::Address source;
  roce::Address destination;

  bool is_ipv4() const { return destination.is_ipv4(); }
  friend bool operator==(const IpHeader&, const IpHeader&) = default;
};

// Decodes the header. EINVAL if the private data is too short, the major version is not 0, or the addresses
// are neither IPv4 nor IPv6.
Result<IpHeader> decode_ip_header(ConstBytes private_data);
// Encodes the header. REQUIRES: both addresses are IPv4, or both are IPv6
std::array<uint8_t, IpHeader::kBytes> encode_ip_header(const IpHeader& header);

// The bytes of private data that the header leaves to the application.
inline constexpr size_t kIpReqPrivateBytes = 92 - IpHeader::kBytes;
inline constexpr size_t kIpSidrReqPrivateBytes = 216 - IpHeader::kBytes;
static_assert(kIpReqPrivateBytes == 56 && kIpSidrReqPrivateBytes == 180);

using protocol::ConnectionParameters;

// Returns the time for a 5-bit exponent n in a message: 4.096 us * 2^n, but at least a millisecond. With a
// shorter time, a peer could cause a storm of retransmissions.
constexpr Duration time_of(uint8_t exponent) {
  return std::max<Duration>(Duration(4096) * (int64_t{1} << (exponent & 31)), std::chrono::milliseconds(1));
}

// Returns the exponent of the local ACK timeout for a path: the sum of twice the packet life time and the
// responder's delay (IBTA volume 1, 12.7.34). Both arguments are exponents. Rounded as in the kernel: returns
// the larger exponent of the two terms, plus one if the exponents differ by at most one; at most 31.
constexpr uint8_t ack_timeout(uint8_t ack_delay, uint8_t packet_life_time) {
  const unsigned life = packet_life_time + 1u;
  const unsigned timeout = life >= ack_delay ? life + (ack_delay + 1u >= life ? 1 : 0)
                                             : ack_delay + (life + 1u >= ack_delay ? 1 : 0);
  return static_cast<uint8_t>(std::min(timeout, 31u));
}

struct ManagerConfig {
  // The maximum number of passive connections and resolutions that are unanswered by the owner, or whose
  // answer the peer has not acknowledged. Further REQs are dropped, so that their senders retry. base/quota.h
  // shares the number among accounts, with a reserve of an eighth for own_account and root. Another eighth is
  // reserved for all other accounts, because any host can cause half-open connections at root's services.
  size_t max_half_open = 8192;
  uint32_t own_account = 0;  // the agent's own user, who may use the reserve (base/quota.h)
  // Roughly the maximum time to wait for the RTU after our REP. The REQ sets this wait by its timeout and
  // number of retries. If a REQ asks for more, the REP is retransmitted fewer times, but at least once. The
  // kernel's own requests ask for 69 s.
  Duration longest_confirmation = std::chrono::seconds(70);
  // How long the owner may leave a peer's request unanswered after the peer sent it last; then
  // on_unreachable() follows. A peer that still wants an answer repeats its request sooner, even if an MRA
  // has asked it to wait.
  Duration longest_silence = std::chrono::minutes(4);
  // The maximum number of waiting connections: those in TIMEWAIT, and those refused (resolutions: answered)
  // at most 16 s ago. Beyond this number, the oldest waits end early. REQUIRES: more than 0
  size_t max_waiting = 65536;
  // The maximum number of destroyed connections whose DREQ the peer has not answered. base/quota.h shares the
  // number among accounts. Beyond this number, a DREQ is sent once without waiting for the DREP.
  size_t max_unanswered = 65536;
  // The maximum exponent that we accept for a response time, from a peer or the owner, and for TIMEWAIT: 22
  // is 17 s. Larger exponents are cut to this value.
  uint8_t longest_response_timeout = 22;
  // The minimum exponent for a peer's response time in answer_time(): 14 is 67 ms.
  uint8_t shortest_response_timeout = 14;
  // The maximum exponent that we accept in an MRA: 24 is 69 s. Larger exponents are cut to this value.
  uint8_t longest_service_timeout = 24;
  // The upper 32 bits of the transaction IDs of our requests.
  uint32_t transaction_prefix = 2;
  // The maximum number of REPs and REJs retransmitted by timer to a peer that has never answered.
  uint8_t max_unasked = 3;
  // Makes communication IDs a counter XORed with this mask; otherwise IDs are unpredictable (IdSequence).
  std::optional<uint32_t> id_mask;

  // Returns the time for an exponent that is a response time or a packet lifetime. Exponents above
  // longest_response_timeout are cut.
  Duration response_time(uint8_t exponent) const {
    return time_of(std::min(exponent, longest_response_timeout));
  }
  // Returns the time to wait for a peer's answer before a retransmission: like response_time(), but at least
  // the time of shortest_response_timeout.
  Duration answer_time(uint8_t exponent) const {
    return response_time(std::max(exponent, shortest_response_timeout));
  }
  // Returns the time to wait for an answer to our own request: two packet lifetimes plus the peer's response
  // time. The owner chose both exponents.
  Duration answer_time(uint8_t packet_life_time, uint8_t response_timeout) const {
    return 2 * response_time(packet_life_time) + response_time(response_timeout);
  }
  // Returns the time to wait if a peer asks for this exponent in an MRA.
  Duration service_time(uint8_t exponent) const {
    return time_of(std::min(exponent, longest_service_timeout));
  }
};

// Parameters of a Manager's operations. Defaults are those of the kernel's rdma_cm over RoCE, so that
// messages look the same. Times are 5-bit exponents n: 4.096 us * 2^n.

enum class QpType : uint8_t {
  kRc,
  kUc,
  kXrcInitiator,  // active side
  kXrcTarget,     // passive side; follows from the REQ
};

// The parameters of Manager::connect(): a connection to request.
struct ConnectRequest {
  uint32_t account = 0;  // the owner's (ConnectionInfo)
  roce::Path path;
  uint64_t service_id = 0;
  uint64_t local_ca_guid = 0;  // of our device
  QpType qp_type = QpType::kRc;
  uint32_t starting_psn = 0;  // the first PSN that our responder expects
  uint8_t path_mtu = 3;       // enum ibv_mtu
  uint8_t packet_life_time = 18;
  uint8_t packet_rate = 0;
  uint8_t ack_delay = 15;  // of our device
  uint16_t pkey = 0xffff;
  uint8_t remote_response_timeout = 20;
  uint8_t local_response_timeout = 20;
  uint8_t max_cm_retries = 15;
  ConnectionParameters parameters{};  // private data: at most 92 bytes
};

// The parameters of Manager::reply(): our answer to a REQ.
struct ConnectReply {
  uint64_t local_ca_guid = 0;
  uint32_t starting_psn = 0;
  uint8_t ack_delay = 15;
  uint8_t failover_accepted = 0;      // 0 accepted, or no alternate path; 1 not supported; 2 path rejected
  ConnectionParameters parameters{};  // private data: at most 196 bytes
};

struct RejectParameters {
  uint16_t reason = static_cast<uint16_t>(RejReason::kConsumer);
  ConstBytes ari;           // at most 72 bytes
  ConstBytes private_data;  // at most 148 bytes
};

struct SidrRequest {
  uint32_t account = 0;  // the owner's (ConnectionInfo)
  roce::Path path;
  uint64_t service_id = 0;
  uint16_t pkey = 0xffff;
  uint8_t packet_life_time = 18;
  uint8_t remote_response_timeout = 20;
  uint8_t max_cm_retries = 15;
  ConnectionParameters parameters{};  // only the private data is used: at most 216 bytes
};

struct SidrReply {
  SidrStatus status = SidrStatus::kValid;
  ConstBytes info;                    // at most 72 bytes
  ConnectionParameters parameters{};  // private data: at most 136 bytes
};

// States of a connection, as in the specification's diagrams (IBTA volume 1, 12.9) and in the kernel.
enum class State : uint8_t {
  kIdle,  // failed or ended; waits for destroy()
  kReqSent,
  kReqReceived,
  kMraReqSent,
  kMraReqReceived,
  kRepSent,
  kRepReceived,
  kMraRepSent,
  kMraRepReceived,
  kEstablished,
  kDreqSent,
  kDreqReceived,
  kTimeWait,
  kSidrReqSent,
  kSidrReqReceived,
};
inline constexpr size_t kStates = 15;
const char* state_name(State state);

// The negotiated parameters of a connection. A program needs them to bring its QP to RTR and RTS
// (ibv_modify_qp(3)). A new manager needs them to continue the connection (Manager::restore()). Fields that
// are not negotiated yet are zero. Some comments name the corresponding field of ibv_qp_attr.
struct ConnectionInfo {
  State state = State::kIdle;
  uint64_t context = 0;
  // The user to whom the connection belongs, also after destroy(). While half open, the connection counts
  // toward this user's share of ManagerConfig::max_half_open. The owner may handle timers per account
  // (Manager::on_timer()), so that many timers of one user do not delay another user's.
  uint32_t account = 0;
  LocalId local_id = 0;
  uint32_t remote_id = 0;  // 0 while unknown
  roce::Path path;
  bool is_active = false;
  // The peer has sent from UDP port 4791, so messages from other ports are dropped.
  bool peer_has_roce_port = false;
  QpType qp_type = QpType::kRc;
  uint32_t local_qpn = 0;
  uint32_t remote_qpn = 0;   // dest_qp_num
  uint32_t send_psn = 0;     // sq_psn
  uint32_t receive_psn = 0;  // rq_psn
  uint16_t pkey = 0xffff;
  uint8_t path_mtu = 0;
  uint8_t ack_timeout = 0;          // timeout
  uint8_t retry_count = 0;          // retry_cnt
  uint8_t rnr_retry_count = 0;      // rnr_retry
  uint8_t responder_resources = 0;  // max_dest_rd_atomic
  uint8_t initiator_depth = 0;      // max_rd_atomic
  uint8_t peer_response_timeout = 0;
  uint8_t max_cm_retries = 0;
};

// Translates connection parameters between the sender's and the receiver's view: the sender's initiator depth
// is the receiver's responder resources, and vice versa.

// These functions write parameters into a message. They return false if the private data is too long for the
// message. A REQ gets only the fields that its transport uses. REQUIRES: the transport of a REQ is set
bool say(const ConnectionParameters& parameters, Req& req);
// Writes parameters into a REP. `from_xrc_target`: the sender's QP is an XRC target, which sends no requests
// and receives by SRQs. The QPN of an XRC target is in the EECN field (local_eecn) of a REP.
bool say(const ConnectionParameters& parameters, bool from_xrc_target, Rep& rep);
bool say(const ConnectionParameters& parameters, SidrReq& req);
bool say(const ConnectionParameters& parameters, SidrRep& rep);

// These functions return the parameters in a received message, from the receiver's view. The private data has
// the field's full length, including padding zeros. `from_xrc_target` as in say().
ConnectionParameters heard_in(const Req& req);
ConnectionParameters heard_in(const Rep& rep, bool from_xrc_target);
ConnectionParameters heard_in(const Rej& rej);
ConnectionParameters heard_in(const SidrReq& req);
ConnectionParameters heard_in(const SidrRep& rep);
// Returns the parameters without the first 36 bytes of private data. In a REQ or SIDR_REQ of the kernel's
// rdma_cm, these bytes are the header with IP addresses (annex A11). Does not check that the bytes are such a
// header.
ConnectionParameters without_ip_header(const ConnectionParameters& parameters);

}  // namespace verbena::cm

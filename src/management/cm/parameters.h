// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "management/cm/events.h"
#include "management/cm/messages.h"
#include "management/cm/spoken_parameters.h"
#include "wire/roce/path.h"

namespace verbena::cm {

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
  // If the peer's REQ for the same service crosses ours, both belong to this one connection.
  bool peer_to_peer = false;
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

// The negotiated parameters of a connection. A QP needs them to become RTR and RTS (ibv_modify_qp(3)), and
// another manager to take the connection over (Manager::restore()). Fields not yet negotiated are zero.
struct ConnectionInfo {
  State state = State::kIdle;
  uint64_t context = 0;
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

}  // namespace verbena::cm

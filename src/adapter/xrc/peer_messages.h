// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "wire/roce/packet.h"
#include "wire/roce/path.h"

// The messages between two processes that share an XRC domain, over a SOCK_SEQPACKET pair that the agent
// makes. One process has an XRC target, the other owns the shared receive queue that a request names. Numbers
// are in host byte order, because both processes are on one machine. Each process checks the other's messages
// like packets from the network.
namespace verbena::engine {

inline constexpr uint32_t kPeerMagic = 0x31637278;  // "xrc1"; changes with the layout

enum class PeerMessage : uint8_t {
  kRequest,  // target to queue owner: RequestMessage, then a packet as on the wire but with a zero ICRC
  kEnd,  // target to queue owner: the target has ended; of RequestMessage only magic, type and qpn are used
  kAnswer,  // queue owner to target: AnswerMessage
};

struct RequestMessage {
  uint32_t magic;
  PeerMessage type;
  uint8_t repeated;  // 0 or 1; see transport::ForwardedRequest
  uint8_t max_dest_rd_atomic;
  uint8_t min_rnr_timer;
  uint32_t run;
  uint32_t msn;
  uint32_t qpn;         // of the target
  uint32_t requester;   // QPN of the target's peer
  uint32_t access;      // enum ibv_access_flags
  uint32_t path_mtu;    // bytes
  uint32_t flow_label;  // of the path to the requester
  uint32_t interface_index;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint8_t source[16];
  uint8_t destination[16];
  uint8_t reserved[6];
};
static_assert(sizeof(RequestMessage) == 80);

struct AnswerMessage {
  uint32_t magic;
  PeerMessage type;
  uint8_t syndrome;
  uint8_t has_event;
  uint8_t reserved;
  uint32_t qpn;  // of the target
  uint32_t run;
  uint32_t psn;
  uint32_t msn;
  uint32_t event;  // enum ibv_event_type
};
static_assert(sizeof(AnswerMessage) == 28);

inline constexpr uint32_t kMaxPeerMessage =
    sizeof(RequestMessage) + roce::kMaxHeaderBytes + roce::kMaxPathMtu + 3 + roce::kIcrcBytes;

}  // namespace verbena::engine

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "control/protocol/messages.h"

namespace verbena::protocol {

// The part of the agent protocol for management datagrams. It replaces the kernel's ib_umad for libibumad. (A
// MAD agent is a program's registration for a management class, as in ib_umad. "Agent" alone is Verbena's
// agent.)
//
//   kMadGetPort     DeviceRequest -> MadPortReply: attributes of a link's port in the fabric
//   kMadOpenPort    DeviceRequest -> header [socket]; flags: kMadLongMessages
//   kMadRegister    MadRegisterRequest -> MadRegisterReply: registers a MAD agent on an open port
//   kMadUnregister  MadRegisterRequest (only port and agent are used) -> header
//
// Datagrams are sent on the socket (SOCK_SEQPACKET), in both directions, each after a UserMad, which is the
// kernel's struct ib_user_mad. The port stays open while any process has the socket, even after the session
// that opened it has ended.
//
// Two features need a port that was opened with kMadLongMessages:
//
// 1. Messages of more than kMadBytes, in either direction. The message on the socket has the first kMadBytes
// bytes, and a file that comes with it has the rest. The size of the file is sealed (base/sealed_file.h), and
// UserMad::length is the total length. A program must use a file for each such message: the agent drops
// longer messages without a file. The agent uses a file only beyond kMaxMadBytesInline, and else sends the
// whole message on the socket.
//
// 2. Requests that a program sends with UserMad::status ETIMEDOUT. The agent does not send such a request but
// returns it to the program at once, as unanswered. libibumad needs this after a restart of the agent: it
// sends the requests that the former agent had not answered. So the application gets them back from the
// socket as timed out.
//
// Errors are the kernel's: EINVAL for an invalid class, version or OUI, or for methods registered already;
// ENOMEM for too many MAD agents. EPERM for the class of connection management, which Verbena's agent handles
// itself. ENODEV if there is no such link, EBADF if this user has no such port open.

struct MadPortReply {
  MessageHeader header;
  uint16_t lid;
  uint16_t sm_lid;
  uint8_t lid_mask_count;
  uint8_t sm_sl;
  uint8_t reserved[2];
  uint32_t capabilities;  // PortInfo's CapabilityMask
  uint32_t reserved2;
};
static_assert(sizeof(MadPortReply) == 32);

struct MadRegisterRequest {
  MessageHeader header;
  uint64_t port;   // inode of the port's socket, known to every process that has the socket
  uint32_t agent;  // for kMadUnregister and kMadKeepsNumber
  uint32_t oui;    // for vendor classes of range 2
  uint8_t management_class;
  uint8_t class_version;
  uint8_t queue_pair;  // 0 or 1
  uint8_t rmpp_version;
  uint32_t flags;            // kMadUserRmpp, kMadKeepsNumber
  uint64_t method_masks[2];  // bit n: method n
};
static_assert(sizeof(MadRegisterRequest) == 56);
inline constexpr uint32_t kMadLongMessages = 1;  // DeviceRequest::flags
// MadRegisterRequest::flags: the program segments and reassembles RMPP messages itself.
inline constexpr uint32_t kMadUserRmpp = 1;
// MadRegisterRequest::flags: registers the MAD agent with the number `agent`, which it had before Verbena's
// agent was restarted. EEXIST if the number is in use.
inline constexpr uint32_t kMadKeepsNumber = 2;

struct MadRegisterReply {
  MessageHeader header;
  uint32_t agent;
  uint32_t reserved;
};
static_assert(sizeof(MadRegisterReply) == 24);

// struct ib_user_mad of <infiniband/umad.h>. Fields ending in _be are in network byte order.
struct UserMad {
  uint32_t agent;
  uint32_t status;  // an errno value: ETIMEDOUT for an unanswered request
  uint32_t timeout_ms;
  uint32_t retries;
  uint32_t length;
  uint32_t queue_pair_be;
  uint32_t qkey_be;
  uint16_t lid_be;
  uint8_t sl;
  uint8_t path_bits;
  uint8_t grh_present;
  uint8_t gid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
  uint8_t gid[16];
  uint32_t flow_label_be;
  uint16_t pkey_index;
  uint8_t reserved[6];
};
static_assert(sizeof(UserMad) == 64);

inline constexpr size_t kUserMadBytes = sizeof(UserMad);
// Message lengths in bytes. kMadBytes is the length of a MAD. kMaxMadBytesInline is the longest message that
// the agent sends without a file. With a file, RMPP sets the limit (management/mad/rmpp.h).
// kLeastSentMadBytes is the shortest message that a program may send, as in the kernel: a MAD header and an
// RMPP header.
inline constexpr size_t kMadBytes = 256;
inline constexpr size_t kMaxMadBytesInline = size_t{129} << 10;
inline constexpr size_t kLeastSentMadBytes = 36;
inline constexpr uint32_t kMaxMadAgents = 32;  // per port

}  // namespace verbena::protocol

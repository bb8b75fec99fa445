// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "control/protocol/messages.h"

namespace verbena::protocol {

// The part of the agent protocol that carries management datagrams: what the kernel's ib_umad is to
// libibumad.
//
//   kMadGetPort     DeviceRequest -> MadPortReply: what the fabric says of a link's port
//   kMadOpenPort    DeviceRequest -> header [socket]; flags: kMadLongMessages
//   kMadRegister    MadRegisterRequest -> MadRegisterReply: an agent for datagrams, on an open port
//   kMadUnregister  MadRegisterRequest, of which port and agent count -> header
//
// Datagrams travel on the socket (SOCK_SEQPACKET), each with a UserMad in front, which is the kernel's struct
// ib_user_mad, in both directions. The port is open for as long as somebody has the socket, also when the
// session that opened it has ended.
//
// A message of more than kMadBytes travels with a file, which has what is beyond these, and whose size is
// sealed (base/sealed_file.h); from the agent only one of more than kMaxMadBytesInline. `length` then says
// how long it is. Only ports that were opened with kMadLongMessages take files, in either direction, and only
// on them `status` counts in what the program sends: what it sends with ETIMEDOUT comes back at once, as if
// it had not been answered. So the next agent gives back what the one before had not.
//
// Errors are the kernel's: EINVAL for a class, version or OUI that cannot be, or methods that another has
// registered for; ENOMEM for too many agents. EPERM: the class is the agent's own (communication management).
// ENODEV: there is no such link; EBADF: no such port of this user's.

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
  uint64_t port;   // the inode of its socket, which every process that has it can tell
  uint32_t agent;  // in kMadUnregister, and with kMadKeepsNumber
  uint32_t oui;    // of vendor classes of range 2
  uint8_t management_class;
  uint8_t class_version;
  uint8_t queue_pair;  // 0 or 1
  uint8_t rmpp_version;
  uint32_t flags;            // kMadUserRmpp, kMadKeepsNumber
  uint64_t method_masks[2];  // bit n: method n
};
static_assert(sizeof(MadRegisterRequest) == 56);
inline constexpr uint32_t kMadLongMessages = 1;  // DeviceRequest::flags
inline constexpr uint32_t kMadUserRmpp = 1;  // the program puts messages of several datagrams together itself
// It gets the number `agent`, which it had at the agent before; EEXIST: another has it.
inline constexpr uint32_t kMadKeepsNumber = 2;

struct MadRegisterReply {
  MessageHeader header;
  uint32_t agent;
  uint32_t reserved;
};
static_assert(sizeof(MadRegisterReply) == 24);

// struct ib_user_mad of <infiniband/umad.h>; be: in network order.
struct UserMad {
  uint32_t agent;
  uint32_t status;  // an errno value: ETIMEDOUT for a request that was not answered
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
// What a program may send without a file; at all, as much as RMPP carries (management/mad/rmpp.h). The least
// of it is a header with that of RMPP behind, as the kernel wants it.
inline constexpr size_t kMadBytes = 256;
inline constexpr size_t kMaxMadBytesInline = size_t{129} << 10;
inline constexpr size_t kLeastSentMadBytes = 36;
inline constexpr uint32_t kMaxMadAgents = 32;  // of a port

}  // namespace verbena::protocol

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/bytes.h"
#include "control/protocol/slot_secret.h"

namespace verbena::protocol {

// The agent protocol: fixed-layout messages over a SOCK_SEQPACKET socket (an agent belongs to a network
// namespace). Host byte order: both ends are on one machine. A request
// is answered by one reply with the same sequence number and type | kReply; header.error != 0 makes it an
// ErrorReply. Descriptors travel by SCM_RIGHTS; from a client to the agent only the vault, the files of
// XRC domains and event channels (connection_messages.h).
//
// A root agent listens on a file in its directory (base/paths/state_path.h) and on the abstract name
// "@verbena/0", and serves everybody; a user's on a file of the user's and on "@verbena/<uid>", and serves
// that user. Both ends check the other's credentials (SO_PEERCRED): an abstract name is free for anyone to
// take.

inline constexpr uint32_t kProtocolMagic = 0x6e627276;  // "vrbn"
inline constexpr uint16_t kProtocolVersion = 6;
inline constexpr uint16_t kOldestProtocolVersion = 1;
inline constexpr size_t kMaxAgentMessageBytes = 512;
inline constexpr size_t kMaxMessageFds = 4;
inline constexpr size_t kTextBytes = 240;
inline constexpr size_t kLinkNameBytes = 64;    // IB_DEVICE_NAME_MAX
inline constexpr size_t kNetdevNameBytes = 16;  // IFNAMSIZ
inline constexpr size_t kProgramBytes = 64;
inline constexpr size_t kVersionBytes = 32;

// Versions. A library and an agent of neighbouring versions work together: programs run on while the package
// is upgraded. The messages of a connection are of the version that both know; an agent answers in the
// version of the request. What a version adds stands at the end of a struct, or has a type of its own, which
// an end that does not know it answers by EOPNOTSUPP. A request of the next version, which we cannot know,
// may be longer than ours. Any other version is refused by EPROTONOSUPPORT, in a reply that has the version
// of the end that refuses.
//
// Version 2: HelloReply, StatusReply and SlotStatusReply are longer.
// Version 3: channels between two slots, kAskChannel to kChannelSeen. On the event socket there is nobody to
// answer EOPNOTSUPP, so neither end says any of these to one of an older version.
// Version 4: what goes by memory is captured: kStartCapture, kGetCaptureNews, and on the event socket
// kCapture and kCaptureSeen, of which the same holds.
// Version 5: packets may be handed over, SlotWire::kHandedOver; a link may hear some hosts only, kSetPeers.
// Version 6: programs are asked for each packet in their traces: kStartTrace, and on the event socket
// kTraceDetails and kTraceDetailsSeen, of which the same holds as of captures. Traces outlive their programs:
// kGetKeptTrace.
constexpr bool is_neighbour(uint16_t version) {
  return version >= kOldestProtocolVersion && version <= kProtocolVersion + 1;
}
constexpr uint16_t common_version(uint16_t theirs) {
  return theirs < kProtocolVersion ? theirs : kProtocolVersion;
}

// How long a message is in a version that we know.
template <class Message>
constexpr size_t bytes_in(uint16_t version) {
  if constexpr (requires { Message::kBytesInVersion1; }) {
    if (version == 1) return Message::kBytesInVersion1;
  }
  return sizeof(Message);
}

enum class MessageType : uint16_t {
  kHello = 1,      // HelloRequest [vault] -> HelloReply [event socket, link table, vault?]
  kGetLinks,       // header -> header [link table]
  kTakeSlot,       // header -> TakeSlotReply [status page, socket or receiving end of a pair?]
  kKeepSlot,       // SlotRequest -> header: after the agent was restarted
  kReturnSlot,     // SlotRequest -> header
  kAddLink,        // LinkRequest -> header
  kDeleteLink,     // LinkRequest -> header
  kGetStatus,      // header -> StatusReply [link table]
  kGetSlotStatus,  // SlotRequest -> SlotStatusReply [status page]: the first lent slot from `index` on
  // On the event socket:
  kLinksChanged,  // agent to client: header [link table]. The next one is sent when this one was answered by
  kLinksSeen,     // client to agent: header. So a client that does not read costs one message, never more.
  kAskPeer,       // client to agent: PeerMessage. The way to a slot in a domain; answered by kPeer.
  kPeer,          // agent to client: PeerMessage [socket?]. At most kMaxPeersUnseen lie unanswered.
  kPeerSeen,      // client to agent: header
  kAskChannel,    // client to agent: ChannelMessage. The way to another slot; answered by kChannel.
  kChannel,       // agent to client: ChannelMessage [socket?]. At most kMaxChannelsUnseen lie unanswered.
  kChannelSeen,   // client to agent: header
  kCapture,       // agent to client: CaptureMessage [ring?]. Begins, or without a ring ends.
  kCaptureSeen,   // client to agent: header. Nothing begins while kMaxCapturesUnseen lie unanswered.
  kTraceDetails,  // agent to client: TraceMessage
  kTraceDetailsSeen,  // client to agent: header. Nothing begins while kMaxTracesUnseen lie unanswered.

  kClaimSlot = 24,  // ClaimSlotRequest -> header: kKeepSlot by what the status page says

  kJoinGroup = 32,     // GroupRequest -> header [socket]
  kGetDeviceCounters,  // DeviceRequest -> DeviceCountersReply
  kGetCmStatus,        // header -> CmStatusReply (connection_status.h)
  kOpenDomain,         // DomainRequest [file] -> header
  kCloseDomain,        // DomainRequest -> header
  kStartCapture,       // StartCaptureRequest -> header. It ends with the session.
  kGetCaptureNews,     // header -> CaptureNewsReply [ring?, status page?]
  kSetPeers,           // PeersRequest -> header

  kGetCmIds = 48,       // header -> CmIdsReply [records] (connection_status.h)
  kRenameLink,          // RenameRequest -> header
  kGetKeptTrace,        // KeptTraceRequest -> KeptTraceReply [rings]: the first from that number on
  kStartTrace,          // StartTraceRequest -> header. It ends with the session.
  kGetConnectionTrace,  // ConnectionTraceRequest -> KeptTraceReply [rings]: the first from that number on

  // Connection management: connection_messages.h
  kCmOpenChannel = 64,
  kCmCloseChannel,
  kCmCreateId,
  kCmDestroyId,
  kCmBind,
  kCmResolveAddress,
  kCmResolveRoute,
  kCmListen,
  kCmConnect,
  kCmAccept,
  kCmReject,
  kCmEstablish,
  kCmDisconnect,
  kCmSetOption,
  kCmJoin,
  kCmLeave,
  kCmMigrateId,
  kCmRestoreId,

  // Management datagrams: mad_messages.h
  kMadGetPort = 96,
  kMadOpenPort,
  kMadRegister,
  kMadUnregister,
};
inline constexpr uint16_t kReply = 0x8000;

struct MessageHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t type;
  uint32_t sequence;
  int32_t error;  // 0 or an errno value; only in replies
};
static_assert(sizeof(MessageHeader) == 16);

struct ErrorReply {
  MessageHeader header;
  char text[kTextBytes];  // why, for the user; may be empty
};
static_assert(sizeof(ErrorReply) == 256);

struct HelloRequest {
  static constexpr MessageType kType = MessageType::kHello;
  MessageHeader header;
  char program[kProgramBytes];
};
static_assert(sizeof(HelloRequest) == 80);

// What an agent can do that another of the same version may be built without. One of version 1 can do both.
inline constexpr uint64_t kServesXrcDomains = 1;
inline constexpr uint64_t kServesConnectionManagement = 2;
inline constexpr uint64_t kServesLongMads = 4;  // kMadLongMessages, kMadKeepsNumber (mad_messages.h)

struct HelloReply {
  static constexpr size_t kBytesInVersion1 = 56;
  MessageHeader header;
  uint32_t agent_pid;
  uint32_t agent_uid;
  char agent_version[kVersionBytes];
  uint64_t capabilities;
};
static_assert(sizeof(HelloReply) == 64);

inline constexpr uint16_t kFirstVersionWithHandOver = 5;

// How packets come to a slot from the wire. Before version 5 any but kNone is a socket.
enum class SlotWire : uint32_t {
  kNone = 0,
  kSocket = 1,      // by a socket of UDP port 4791 that is the slot's
  kHandedOver = 2,  // the agent takes them, and hands them over: handed_datagram.h
};

struct TakeSlotReply {
  MessageHeader header;
  uint32_t index;
  SlotWire wire;
  char no_wire_reason[kTextBytes];
};
static_assert(sizeof(TakeSlotReply) == 264);

struct SlotRequest {
  MessageHeader header;
  uint32_t index;
  uint32_t reserved;
};
static_assert(sizeof(SlotRequest) == 24);

// Agents from before it answer EOPNOTSUPP, and their status pages have no secret.
struct ClaimSlotRequest {
  MessageHeader header;
  uint32_t index;
  uint32_t reserved;
  SlotSecret secret;  // of the slot's status page
};
static_assert(sizeof(ClaimSlotRequest) == 40);

struct LinkRequest {
  MessageHeader header;
  char name[kLinkNameBytes];
  char netdev[kNetdevNameBytes];  // empty in kDeleteLink
};
static_assert(sizeof(LinkRequest) == 96);

struct RenameRequest {
  MessageHeader header;
  char name[kLinkNameBytes];
  char new_name[kLinkNameBytes];
};
static_assert(sizeof(RenameRequest) == 144);

// A network whose hosts a link hears: wire/roce/prefix.h.
struct PeerRecord {
  uint8_t network[16];
  uint8_t bits;
  uint8_t reserved[3];
};
static_assert(sizeof(PeerRecord) == 20);
inline constexpr size_t kMaxPeersOfLink = 20;

// The link hears these only; count 0: all again.
struct PeersRequest {
  MessageHeader header;
  char name[kLinkNameBytes];
  uint32_t count;
  uint32_t reserved;
  PeerRecord peers[kMaxPeersOfLink];
};
static_assert(sizeof(PeersRequest) == 488 && sizeof(PeersRequest) <= kMaxAgentMessageBytes);

struct GroupRequest {
  MessageHeader header;
  uint32_t device_index;
  uint32_t reserved;
  uint8_t group[16];  // a multicast GID
};
static_assert(sizeof(GroupRequest) == 40);

// An XRC domain: the file's inode says which it is. The agent and each client call it by numbers of their
// own. EAGAIN: there is none, and none is to be made; EINVAL: there is one, and it was to be new; EBADF: the
// descriptor gives no right to the file (O_PATH).
struct DomainRequest {
  static constexpr uint32_t kCreate = 1;
  static constexpr uint32_t kExclusive = 2;
  MessageHeader header;
  uint64_t domain;
  uint32_t device_index;
  uint32_t slot;  // the client's, whose queues and targets are in it
  uint32_t flags;
  uint32_t reserved;
};
static_assert(sizeof(DomainRequest) == 40);

// Two clients with a domain in common: the socket carries the requests of one, the asker, and the
// other's answers. Both get an end.
struct PeerMessage {
  MessageHeader header;  // header.error: why there is no socket; ENOENT: nobody has the domain open there
  uint64_t domain;       // as the client calls it that sends this or gets it
  uint32_t slot;         // the other's
  uint32_t asked;        // in kPeer: the client is the one that asked
};
static_assert(sizeof(PeerMessage) == 32);
inline constexpr uint32_t kMaxPeersUnseen = 64;

inline constexpr uint16_t kFirstVersionWithChannels = 3;

// A channel between two slots: the socket joins the processes that have them, which may be of different
// users, or one and the same. Both get an end; what goes over it is between the two.
struct ChannelMessage {
  // header.error: why there is no socket. ENOENT: nobody has the other slot now. EAGAIN: not now; its process
  // is yet to come back from a former agent, or does not read its events. EOPNOTSUPP: its library is of a
  // version without channels. EINVAL: own_slot is not the asker's, or is the other one, too.
  MessageHeader header;
  uint32_t own_slot;   // of the client that sends this or gets it
  uint32_t peer_slot;  // the other's
  uint32_t asked;      // in kChannel: the client is the one that asked
  uint32_t reserved;
};
static_assert(sizeof(ChannelMessage) == 32);
inline constexpr uint32_t kMaxChannelsUnseen = 64;

inline constexpr uint16_t kFirstVersionWithCaptures = 4;

// The packets that a slot sends by memory are to go into a ring, too (observe/capture/layout.h), or no
// longer.
struct CaptureMessage {
  MessageHeader header;
  uint32_t slot;  // of the client that gets this
  uint32_t reserved;
};
static_assert(sizeof(CaptureMessage) == 24);
inline constexpr uint32_t kMaxCapturesUnseen = 64;

inline constexpr uint16_t kFirstVersionWithTraces = 6;

// Whether each request and packet of the client's queue pairs is to be traced, too (trace_ring.h).
struct TraceMessage {
  MessageHeader header;
  uint32_t on;
  uint32_t reserved;
};
static_assert(sizeof(TraceMessage) == 24);
inline constexpr uint32_t kMaxTracesUnseen = 64;

// No message on the event socket is longer.
inline constexpr size_t kMaxEventBytes = 32;
static_assert(sizeof(PeerMessage) <= kMaxEventBytes && sizeof(ChannelMessage) <= kMaxEventBytes &&
              sizeof(CaptureMessage) <= kMaxEventBytes && sizeof(TraceMessage) <= kMaxEventBytes);

// EPERM: it is not for this user. EBUSY: another session captures.
struct StartCaptureRequest {
  MessageHeader header;
  uint32_t snap_bytes;  // of each packet's payload so many are wanted
  uint32_t reserved;
};
static_assert(sizeof(StartCaptureRequest) == 24);

// What has become of the slots since the capture began, one piece of news at a time and in order.
struct CaptureNewsReply {
  enum Kind : uint32_t {
    kNothing = 0,  // there is no more, now
    kBegun = 1,    // [ring, status page]
    kEnded = 2,    // of one that had begun: nothing more is written
    kRefused =
        3,  // the slot is not captured; `error` says why. EOPNOTSUPP: its library is of an older version
  };
  MessageHeader header;
  uint32_t kind;
  uint32_t slot;
  int32_t pid;  // 0: in a pid namespace that the agent does not see
  uint32_t uid;
  char program[kProgramBytes];
  int32_t error;
  uint32_t reserved;
};
static_assert(sizeof(CaptureNewsReply) == 104);

// ESRCH: there is no such process, or it is not for this user. EOPNOTSUPP: its library is of an older
// version. EAGAIN: it does not read what the agent tells it.
struct StartTraceRequest {
  MessageHeader header;
  int32_t pid;
  uint32_t reserved;
};
static_assert(sizeof(StartTraceRequest) == 24);

struct KeptTraceRequest {
  MessageHeader header;
  uint64_t from;
};
static_assert(sizeof(KeptTraceRequest) == 24);

// What is left of the rings of a slot whose process has ended: a file with TraceRings, which nobody changes.
struct KeptTraceReply {
  MessageHeader header;
  uint64_t number;   // later ones are larger
  uint64_t process;  // slots of one process have the same
  int64_t ended_at;  // CLOCK_MONOTONIC, nanoseconds
  int32_t pid;       // 0: in a pid namespace that the agent does not see
  uint32_t uid;
  uint32_t slot;
  uint32_t in_order;  // 1: it has given its slot back
  char program[kProgramBytes];
};
static_assert(sizeof(KeptTraceReply) == 120);

// The same of the connections of a process that runs. Its file is written on. ended_at and in_order are 0;
// the slot's number is one that no slot has.
struct ConnectionTraceRequest {
  MessageHeader header;
  uint64_t from;
};
static_assert(sizeof(ConnectionTraceRequest) == 24);

struct DeviceRequest {
  MessageHeader header;
  uint32_t device_index;
  uint32_t flags;  // of kMadOpenPort (mad_messages.h); else 0
};
static_assert(sizeof(DeviceRequest) == 24);

struct DeviceCountersReply {
  static constexpr size_t kNumbers = 48;
  MessageHeader header;
  uint64_t link_downed;
  uint64_t qps[kNumbers];  // by transport::QpCounter; zeros beyond
};
static_assert(sizeof(DeviceCountersReply) == 408);

struct StatusReply {
  static constexpr size_t kBytesInVersion1 = 296;
  MessageHeader header;
  uint32_t agent_pid;
  uint32_t agent_uid;
  char agent_version[kVersionBytes];
  char no_wire_reason[kTextBytes];  // empty: there is a wire
  uint16_t protocol_version;        // the agent's own
  uint16_t refused_version;         // of the last program that was refused for its version
  uint32_t refused;                 // how many were
  int32_t refused_pid;
  uint32_t reserved;
};
static_assert(sizeof(StatusReply) == 312);

struct SlotStatusReply {
  static constexpr size_t kBytesInVersion1 = 96;
  MessageHeader header;
  uint32_t index;
  int32_t pid;  // 0: in a pid namespace that the agent does not see
  uint32_t uid;
  SlotWire wire;
  char program[kProgramBytes];
  uint16_t protocol_version;  // that the program's library and the agent speak; 0: not known yet
  uint16_t reserved[3];
};
static_assert(sizeof(SlotStatusReply) == 104);

// A message that is a header and nothing else, under a type of its own.
template <MessageType T>
struct Plain {
  static constexpr MessageType kType = T;
  MessageHeader header;
};
using GetLinksRequest = Plain<MessageType::kGetLinks>;
using TakeSlotRequest = Plain<MessageType::kTakeSlot>;
using GetStatusRequest = Plain<MessageType::kGetStatus>;
using GetCmStatusRequest = Plain<MessageType::kGetCmStatus>;
using GetCmIdsRequest = Plain<MessageType::kGetCmIds>;
using GetCaptureNewsRequest = Plain<MessageType::kGetCaptureNews>;

struct PlainReply {
  MessageHeader header;
};
static_assert(sizeof(PlainReply) == 16);

template <class Message>
ConstBytes bytes_of(const Message& message) {
  static_assert(std::is_trivially_copyable_v<Message>);
  return std::as_bytes(std::span(&message, 1));
}

// Of a message whose length was checked: an older version's is shorter, a newer one's longer.
template <class Message>
Message read_as(ConstBytes bytes) {
  static_assert(std::is_trivially_copyable_v<Message>);
  Message message{};
  std::memcpy(&message, bytes.data(), std::min(bytes.size(), sizeof message));
  return message;
}

inline MessageHeader request_header(MessageType type, uint32_t sequence,
                                    uint16_t version = kProtocolVersion) {
  return {kProtocolMagic, version, static_cast<uint16_t>(type), sequence, 0};
}

inline MessageHeader reply_header(const MessageHeader& request, int error = 0) {
  const uint16_t version = is_neighbour(request.version) ? common_version(request.version) : kProtocolVersion;
  return {kProtocolMagic, version, static_cast<uint16_t>(request.type | kReply), request.sequence, error};
}

// A reply as it was in the version of the request that it answers.
template <class Reply>
ConstBytes reply_bytes(const Reply& reply) {
  return bytes_of(reply).first(bytes_in<Reply>(reply.header.version));
}

}  // namespace verbena::protocol

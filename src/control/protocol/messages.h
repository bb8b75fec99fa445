// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/bytes.h"

namespace verbena::protocol {

// A secret in a slot's status page. A process that reconnects to the next agent sends the secret to prove
// that the slot is its own. A pid would not prove that, since the two agents may be in different pid
// namespaces. All zeros if there is none.
using SlotSecret = std::array<uint64_t, 2>;

constexpr bool is_set(const SlotSecret& secret) {
  return secret != SlotSecret{};
}

// The header of a datagram that the agent forwards to a process without a socket of UDP port 4791. A message
// on a SOCK_SEQPACKET socket has this header in host byte order, then the datagram as received. The header's
// fields are from the kernel and can be trusted; the datagram is unchecked.
struct ForwardedDatagram {
  static constexpr uint32_t kMagic = 0x646e6168;  // "hand"
  uint32_t magic;
  uint32_t interface_index;  // incoming interface
  uint8_t source[16];        // a GID; IPv4 addresses are mapped
  uint8_t destination[16];
  uint32_t flow_label;
  uint32_t segment_bytes;  // for merged datagrams (GRO), the length of each but the last; 0 for a single one
  uint16_t source_port;
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint32_t reassembled;  // 1 if the datagram arrived in IP fragments
};
static_assert(sizeof(ForwardedDatagram) == 56);

// Maximum length in bytes of a forwarded datagram, merged or not, without the header.
inline constexpr size_t kMaxForwardedBytes = 65536;

// The agent protocol: messages of fixed layout over a SOCK_SEQPACKET socket to the agent of a network
// namespace. Host byte order, since both ends are on one machine. Each request gets one reply with the same
// sequence number and type | kReply. If header.error is not 0, the reply is an ErrorReply. Descriptors are
// passed by SCM_RIGHTS. A client passes only descriptors of the takeover state, of XRC domains' files and of
// event channels (connection_messages.h).
//
// Root's agent listens on a socket file in its state directory (base/paths/state_path.h) and on the abstract
// name "@verbena/0". It serves all users, or with --serve-only root and one other. A user's agent listens on
// the user's file and on "@verbena/<uid>", and serves that user. Both ends check the other's credentials
// (SO_PEERCRED), since any user can bind an abstract name.

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

// Protocol versions. A library and an agent of neighbouring versions work together, so programs continue
// during a package upgrade. This release accepts the versions kOldestProtocolVersion to kProtocolVersion + 1
// (is_neighbour()). The messages of a connection have the highest version known to both ends; a reply has the
// version of its request. New fields are appended to a struct. An end that does not know a message type
// answers EOPNOTSUPP. A request of the next version may be longer than in this release. Other versions are
// refused with EPROTONOSUPPORT, in a reply with the refusing end's version.
//
// Version 2: HelloReply, StatusReply and SlotStatusReply are longer.
// Version 3: channels between two slots, kAskChannel to kChannelSeen. Messages on the event socket have no
// reply for EOPNOTSUPP, so neither end sends these messages to an end of an older version.
// Version 4: shared-memory traffic can be captured: kStartCapture, kGetCaptureNews, and on the event socket
// kCapture and kCaptureSeen, which are not sent to older versions either.
// Version 5: packets may be forwarded, SlotWire::kForwarded; a link may accept some hosts only, kSetPeers.
// Version 6: traces of every packet on request: kStartTrace, and on the event socket kTraceDetails and
// kTraceDetailsSeen, which are not sent to older versions either. Traces outlive their programs:
// kGetKeptTrace.
constexpr bool is_neighbour(uint16_t version) {
  return version >= kOldestProtocolVersion && version <= kProtocolVersion + 1;
}
constexpr uint16_t common_version(uint16_t theirs) {
  return theirs < kProtocolVersion ? theirs : kProtocolVersion;
}

// Returns the length in bytes of a message in a known version.
template <class Message>
constexpr size_t bytes_in(uint16_t version) {
  if constexpr (requires { Message::kBytesInVersion1; }) {
    if (version == 1) return Message::kBytesInVersion1;
  }
  return sizeof(Message);
}

// The comments say: request -> reply, with descriptors in brackets. A question mark means optional.
enum class MessageType : uint16_t {
  kHello = 1,      // HelloRequest [takeover state] -> HelloReply [event socket, link table, takeover state?]
  kGetLinks,       // header -> header [link table]
  kTakeSlot,       // header -> TakeSlotReply [status page, socket or receiving end of a pair?]
  kKeepSlot,       // SlotRequest -> header: after a restart of the agent
  kReturnSlot,     // SlotRequest -> header
  kAddLink,        // LinkRequest -> header
  kDeleteLink,     // LinkRequest -> header
  kGetStatus,      // header -> StatusReply [link table]
  kGetSlotStatus,  // SlotRequest -> SlotStatusReply [status page]: the first leased slot from `index` on
  // On the event socket:
  kLinksChanged,  // agent to client: header [link table]. The next is sent only after kLinksSeen.
  kLinksSeen,     // client to agent: header. So a slow client has at most one message queued.
  kAskPeer,       // client to agent: PeerMessage. Requests a socket to a slot in a domain; answered by kPeer.
  kPeer,          // agent to client: PeerMessage [socket?]. At most kMaxPeersUnseen are unanswered.
  kPeerSeen,      // client to agent: header
  kAskChannel,    // client to agent: ChannelMessage. Requests a socket to another slot; answered by kChannel.
  kChannel,       // agent to client: ChannelMessage [socket?]. At most kMaxChannelsUnseen are unanswered.
  kChannelSeen,   // client to agent: header with the sequence number of the kChannel message
  kCapture,  // agent to client: CaptureMessage [ring?]. Starts a capture, or stops it if there is no ring.
  kCaptureSeen,       // client to agent: header. No start is sent while kMaxCapturesUnseen are unanswered.
  kTraceDetails,      // agent to client: TraceMessage
  kTraceDetailsSeen,  // client to agent: header. No start is sent while kMaxTracesUnseen are unanswered.

  kClaimSlot = 24,  // ClaimSlotRequest -> header: kKeepSlot authorized by the status page's secret

  kJoinGroup = 32,     // GroupRequest -> header [socket]
  kGetDeviceCounters,  // DeviceRequest -> DeviceCountersReply
  kGetCmStatus,        // header -> CmStatusReply (connection_messages.h)
  kOpenDomain,         // DomainRequest [file] -> header
  kCloseDomain,        // DomainRequest -> header
  kStartCapture,       // StartCaptureRequest -> header. Ends with the session.
  kGetCaptureNews,     // header -> CaptureNewsReply [ring?, status page?]
  kSetPeers,           // PeersRequest -> header

  kGetCmIds = 48,       // header -> CmIdsReply [records] (connection_messages.h)
  kRenameLink,          // RenameRequest -> header
  kGetKeptTrace,        // KeptTraceRequest -> KeptTraceReply [rings]
  kStartTrace,          // StartTraceRequest -> header. Ends with the session.
  kGetConnectionTrace,  // ConnectionTraceRequest -> KeptTraceReply [rings]

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
  char text[kTextBytes];  // the reason, for the user; may be empty
};
static_assert(sizeof(ErrorReply) == 256);

struct HelloRequest {
  static constexpr MessageType kType = MessageType::kHello;
  MessageHeader header;
  char program[kProgramBytes];
};
static_assert(sizeof(HelloRequest) == 80);

// Optional features of an agent, independent of the protocol version: flags of HelloReply::capabilities. An
// agent of protocol version 1 sends no flags, and clients assume the first two.
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

inline constexpr uint16_t kFirstVersionWithForwarding = 5;

// Tells how a slot receives packets from other hosts. Before version 5, any value but kNone means a socket.
enum class SlotWire : uint32_t {
  kNone = 0,
  kSocket = 1,     // by a socket of UDP port 4791 that the process has
  kForwarded = 2,  // the agent receives and forwards packets: ForwardedDatagram
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

// The request of kClaimSlot. Older agents answer EOPNOTSUPP, and their status pages have no secret.
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

// A network from which a link accepts packets: wire/roce/prefix.h.
struct PeerRecord {
  uint8_t network[16];
  uint8_t bits;
  uint8_t reserved[3];
};
static_assert(sizeof(PeerRecord) == 20);
inline constexpr size_t kMaxPeersOfLink = 20;

// Makes a link accept packets only from these networks. If `count` is 0, removes the restriction.
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

// Opens or closes an XRC domain, which is identified by the inode of the file in kOpenDomain. Each client
// chooses its own number for the domain. EAGAIN if the domain does not exist and kCreate is not set, EINVAL
// if it exists and kExclusive is set. EBADF if the descriptor gives no access to the file (O_PATH).
struct DomainRequest {
  static constexpr uint32_t kCreate = 1;
  static constexpr uint32_t kExclusive = 2;
  MessageHeader header;
  uint64_t domain;
  uint32_t device_index;
  uint32_t slot;  // the client's slot that has the domain's shared receive queues and target QPs
  uint32_t flags;
  uint32_t reserved;
};
static_assert(sizeof(DomainRequest) == 40);

// Requests (kAskPeer) or brings (kPeer) a socket between two clients of one XRC domain. Each client gets an
// end of the socket. The client that requested the socket sends requests on it, and the other client answers.
struct PeerMessage {
  MessageHeader header;  // error: 0, EAGAIN, or ENOENT if no client at the slot has the domain open
  uint64_t domain;       // the number used by the client that sends or receives this message
  uint32_t slot;         // the slot of the other client
  uint32_t asked;        // in kPeer, 1 if this client requested the socket
};
static_assert(sizeof(PeerMessage) == 32);
// The maximum number of kPeer messages that a client has not acknowledged.
inline constexpr uint32_t kMaxPeersUnseen = 64;

inline constexpr uint16_t kFirstVersionWithChannels = 3;

// Requests (kAskChannel) or brings (kChannel) a socket for a channel between two slots. Their processes may
// belong to different users, or be the same process. Each process gets an end of the socket; the agent is not
// involved afterwards.
struct ChannelMessage {
  // header.error is 0 if there is a socket. ENOENT if the other slot is not leased, EOPNOTSUPP if the other
  // process's library is too old for channels. EINVAL if own_slot is not the requester's or equals peer_slot.
  // EAGAIN if a later request may succeed: the agent cannot create a socket now, or the other process does
  // not read its events or has yet to reconnect. ESTALE, without a request: the lease of the other slot has
  // ended, and the slot's former process may still have its end of a channel. The client acknowledges this
  // message at once (kChannelSeen). Until then, the agent leases the other slot to no other user.
  MessageHeader header;
  uint32_t own_slot;   // of the client that sends or receives this message
  uint32_t peer_slot;  // the other slot
  uint32_t asked;      // in kChannel, 1 if this client requested the socket
  uint32_t peer_user;  // in kChannel, the user of the other slot as the agent sees it; 0 from old agents
};
static_assert(sizeof(ChannelMessage) == 32);
// The maximum number of kChannel messages that a client has not acknowledged. Channels to slots of one user
// may be at most two thirds of them (base/quota.h). Root and the client's own user have no such limit.
inline constexpr uint32_t kMaxChannelsUnseen = 64;

inline constexpr uint16_t kFirstVersionWithCaptures = 4;

// Tells a client to copy the packets that a slot sends by shared memory into a ring
// (observe/capture/ring_file.h). The ring's file is the message's descriptor. A message without a descriptor
// tells the client to stop.
struct CaptureMessage {
  MessageHeader header;
  uint32_t slot;  // a slot of the receiving client
  uint32_t reserved;
};
static_assert(sizeof(CaptureMessage) == 24);
inline constexpr uint32_t kMaxCapturesUnseen = 64;

inline constexpr uint16_t kFirstVersionWithTraces = 6;

// Tells a client to trace each request and packet of its queue pairs (trace_ring.h) if `on` is not 0, else to
// stop.
struct TraceMessage {
  MessageHeader header;
  uint32_t on;
  uint32_t reserved;
};
static_assert(sizeof(TraceMessage) == 24);
inline constexpr uint32_t kMaxTracesUnseen = 64;

// Maximum length in bytes of messages on the event socket.
inline constexpr size_t kMaxEventBytes = 32;
static_assert(sizeof(PeerMessage) <= kMaxEventBytes && sizeof(ChannelMessage) <= kMaxEventBytes &&
              sizeof(CaptureMessage) <= kMaxEventBytes && sizeof(TraceMessage) <= kMaxEventBytes);

// Starts a capture for the client's session. EPERM if this user may not capture, EBUSY if another session
// captures.
struct StartCaptureRequest {
  MessageHeader header;
  uint32_t snap_bytes;  // maximum bytes to capture of each packet's payload
  uint32_t reserved;
};
static_assert(sizeof(StartCaptureRequest) == 24);

// Reports one change of a slot's capture. Each kGetCaptureNews returns the next change, in the order in which
// they happened.
struct CaptureNewsReply {
  enum Kind : uint32_t {
    kNothing = 0,  // there is no change now
    kBegun = 1,    // [ring, status page]
    kEnded = 2,    // a capture that had begun has ended: nothing more is written to its ring
    kRefused = 3,  // not captured because of `error`; EOPNOTSUPP if the process's library is too old
  };
  MessageHeader header;
  uint32_t kind;
  uint32_t slot;
  int32_t pid;  // 0 if in a pid namespace invisible to the agent
  uint32_t uid;
  char program[kProgramBytes];
  int32_t error;
  uint32_t reserved;
};
static_assert(sizeof(CaptureNewsReply) == 104);

// Makes a process trace each request and packet. ESRCH if there is no such process with a slot, or this user
// may not trace it. EOPNOTSUPP if the process's library is too old. EAGAIN if the process has yet to
// reconnect or does not read its event socket. ENOSPC if this session traces 16 processes already.
struct StartTraceRequest {
  MessageHeader header;
  int32_t pid;
  uint32_t reserved;
};
static_assert(sizeof(StartTraceRequest) == 24);

// Requests the first stored trace whose number is `from` or higher. ENOENT if there is none.
struct KeptTraceRequest {
  MessageHeader header;
  uint64_t from;
};
static_assert(sizeof(KeptTraceRequest) == 24);

// Describes the trace of a slot whose process has ended, or of connections (ConnectionTraceRequest). The
// descriptor is a file with TraceRings that no longer changes.
struct KeptTraceReply {
  MessageHeader header;
  uint64_t number;   // increases with each trace; `from` selects by this number
  uint64_t process;  // the same for all slots of one process
  int64_t ended_at;  // CLOCK_MONOTONIC, nanoseconds
  int32_t pid;       // 0 if in a pid namespace invisible to the agent
  uint32_t uid;
  uint32_t slot;
  uint32_t in_order;  // 1 if the process returned its slot before it ended
  char program[kProgramBytes];
};
static_assert(sizeof(KeptTraceReply) == 120);

// Requests the trace of a running process's connection management. These traces are numbered: the reply has
// the first one whose number is `from` or higher. ENOENT if there is none. In the KeptTraceReply, ended_at
// and in_order are 0, and `slot` is no valid slot number. The file is a copy, without later events.
struct ConnectionTraceRequest {
  MessageHeader header;
  uint64_t from;
};
static_assert(sizeof(ConnectionTraceRequest) == 24);

struct DeviceRequest {
  MessageHeader header;
  uint32_t device_index;
  uint32_t flags;  // for kMadOpenPort (mad_messages.h); else 0
};
static_assert(sizeof(DeviceRequest) == 24);

struct DeviceCountersReply {
  static constexpr size_t kNumbers = 48;
  MessageHeader header;
  uint64_t link_downed;
  uint64_t qps[kNumbers];  // by transport::QpCounter; unused ones are zero
};
static_assert(sizeof(DeviceCountersReply) == 408);

struct StatusReply {
  static constexpr size_t kBytesInVersion1 = 296;
  MessageHeader header;
  uint32_t agent_pid;
  uint32_t agent_uid;
  char agent_version[kVersionBytes];
  char no_wire_reason[kTextBytes];  // empty if the agent has UDP port 4791
  uint16_t protocol_version;        // the agent's own
  uint16_t refused_version;         // version of the last program refused for its version
  uint32_t refused;                 // number of refused programs
  int32_t refused_pid;
  uint32_t reserved;
};
static_assert(sizeof(StatusReply) == 312);

struct SlotStatusReply {
  static constexpr size_t kBytesInVersion1 = 96;
  MessageHeader header;
  uint32_t index;
  int32_t pid;  // 0 if in a pid namespace invisible to the agent
  uint32_t uid;
  SlotWire wire;
  char program[kProgramBytes];
  uint16_t protocol_version;  // in use between the program's library and the agent; 0 if unknown yet
  uint16_t reserved[3];
};
static_assert(sizeof(SlotStatusReply) == 104);

// A request that consists of the header only.
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

// Returns a copy of a received message. Missing fields of an older version become zero; additional fields of
// a newer version are ignored. REQUIRES: the message's length was checked
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

// Returns the bytes of a reply, cut to the length that the reply has in its header's version.
template <class Reply>
ConstBytes reply_bytes(const Reply& reply) {
  return bytes_of(reply).first(bytes_in<Reply>(reply.header.version));
}

// The layout of the link table's file: a header, the indexes of interfaces whose automatic link the user
// deleted, then the links. Each link is a record, followed by the records of its GIDs. All clients share the
// sealed file, and the next agent starts from it. The header contains the record lengths. Records of a later
// version may be longer; readers ignore the part that they do not know.
inline constexpr uint32_t kLinkTableMagic = 0x6b6e6c76;  // "vlnk"
inline constexpr uint32_t kLinkTableVersion = 1;

struct LinkTableHeader {
  uint32_t magic;
  uint32_t version;
  uint64_t generation;
  uint32_t next_device_index;
  uint32_t deleted_count;  // number of interface indexes, 4 bytes each, that follow the header
  uint32_t link_count;
  uint16_t link_record_bytes;  // 0 in files of protocol version 1, which have that version's lengths
  uint16_t gid_record_bytes;
};
static_assert(sizeof(LinkTableHeader) == 32);

inline constexpr uint32_t kLinkUp = 1;
inline constexpr uint32_t kLinkAutomatic = 2;
inline constexpr uint32_t kLinkHasNoWire = 4;  // the agent does not have UDP port 4791

inline constexpr size_t kLinkRecordBytesInVersion4 = 108;

struct LinkRecord {
  char name[kLinkNameBytes];
  char netdev[kNetdevNameBytes];
  uint32_t device_index;
  uint32_t interface_index;
  uint32_t mtu;
  uint32_t flags;  // kLinkUp, kLinkAutomatic, kLinkHasNoWire
  uint32_t gid_count;
  uint8_t mac[6];
  uint16_t speed;  // in 100 Mb/s; 0 if unknown
  // Since version 5:
  uint32_t peer_count;  // 0 if the link accepts packets from all hosts
  PeerRecord peers[kMaxPeersOfLink];
};
static_assert(sizeof(LinkRecord) == kLinkRecordBytesInVersion4 + 404);

struct GidRecord {
  uint32_t index;
  uint8_t gid[16];
};
static_assert(sizeof(GidRecord) == 20);

}  // namespace verbena::protocol

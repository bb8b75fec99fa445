// SPDX-License-Identifier: Apache-2.0
#include "observe/trace/event_words.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <iterator>

#include <infiniband/verbs.h>

#include "adapter/queues/status_words.h"
#include "base/format.h"
#include "observe/trace/connection_note.h"
#include "wire/roce/aeth.h"
#include "wire/roce/opcode.h"
#include "wire/roce/path.h"
#include "wire/roce/prefix.h"

namespace verbena::trace {
namespace {

using Numbers = Recorder::Numbers;

// Returns a function from a number to its name. A traced process may write any number; numbers without a name
// are formatted as numbers.
template <class Names>
constexpr auto names(const Names& table, std::string_view what) {
  return [&table, what](uint64_t number) {
    const bool is_known = number < std::size(table) && !std::string_view(table[number]).empty();
    return is_known ? std::string(table[number]) : verbena::format("{} {}", what, number);
  };
}

// enum ibv_qp_type
constexpr std::string_view kTypes[] = {"", "", "RC",         "UC",       "UD",      "",
                                       "", "", "RAW_PACKET", "XRC_SEND", "XRC_RECV"};
// protocol::TraceCause
constexpr std::string_view kCauses[] = {"by the program", "because of an error", "as its device is gone"};
// protocol::TraceWay
constexpr std::string_view kWays[] = {"none: UDP port 4791 is not available", "the wire", "shared memory"};
// protocol::TraceDrop
constexpr std::string_view kDrops[] = {
    "the queue pair is in no state to receive it",
    "it is of another transport service",
    "its partition key is not ours",
    "it does not come from the peer",
    "its Q_Key is wrong",
    "no receive request is posted",
    "the message cannot be placed whole",
};
// roce::NakCode
constexpr std::string_view kNaks[] = {"sequence error", "invalid request", "remote access error",
                                      "remote operational error", "invalid RD request"};
// enum ibv_wr_opcode
constexpr std::string_view kRequests[] = {"RDMA WRITE",
                                          "RDMA WRITE with immediate data",
                                          "SEND",
                                          "SEND with immediate data",
                                          "RDMA READ",
                                          "compare and swap",
                                          "fetch and add",
                                          "local invalidate",
                                          "memory window bind",
                                          "SEND with invalidate",
                                          "segmented SEND",
                                          "",
                                          "",
                                          "",
                                          "FLUSH",
                                          "atomic WRITE"};
static_assert(std::size(kRequests) == IBV_WR_ATOMIC_WRITE + 1);

constexpr auto type_name = names(kTypes, "type");
constexpr auto state_name = names(queues::kQpStates, "state");
constexpr auto cause_name = names(kCauses, "cause");
constexpr auto way_name = names(kWays, "way");
constexpr auto drop_name = names(kDrops, "reason");
constexpr auto nak_name = names(kNaks, "code");
constexpr auto status_name = names(queues::kCompletionStatuses, "status");
constexpr auto event_name = names(queues::kEventTypes, "type");
constexpr auto request_name = names(kRequests, "request");

std::string duration_text(uint64_t nanoseconds) {
  return nanoseconds >= 1'000'000'000 ? verbena::format("{:.3g} s", static_cast<double>(nanoseconds) / 1e9)
         : nanoseconds >= 1'000'000   ? verbena::format("{:.3g} ms", static_cast<double>(nanoseconds) / 1e6)
                                      : verbena::format("{:.3g} us", static_cast<double>(nanoseconds) / 1e3);
}

// Names of packets that IBTA does not have, except that of congestion notifications.
constexpr std::pair<uint8_t, const char*> kOwnPackets[] = {
    {roce::kSackOpcode, "word of what has arrived"},
    {roce::kSackConfirmationOpcode, "word that it was heard"},
    {roce::kReceiverReportOpcode, "receipt"},
    {roce::kReportRequestOpcode, "receipt"},
    {roce::kRefusalOpcode, "words of a refusal"},
    {roce::kRepeatedReadsOpcode, "word of READs that were sent"},
    {roce::kStoppedOpcode, "word that the peer's process is stopped"},
    {roce::kCnpOpcode, "congestion notification"},
};

std::string packet_name(uint64_t opcode) {
  for (const auto& [own, name] : kOwnPackets) {
    if (own == opcode) return name;
  }
  const roce::OpcodeInfo& info = roce::kOpcodes[opcode & 0xff];
  return info.exists() ? info.name : verbena::format("opcode {:#04x}", opcode & 0xff);
}

std::string psn_text(uint64_t psn) {
  return verbena::format("PSN {:#08x}", psn & 0xffffff);
}
// The number of PSNs from `from` up to, but without, `past`.
uint64_t psns_between(uint64_t from, uint64_t past) {
  return (past - from) & 0xffffff;
}
// "1 packet", "2 packets".
std::string count_text(uint64_t count, std::string_view what) {
  return verbena::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string syndrome_text(uint64_t word) {
  const auto syndrome = static_cast<uint8_t>(word);
  const uint8_t value = roce::aeth_value(syndrome);
  if (syndrome == roce::kReadySyndrome) return "ready (the receive request is posted; send again)";
  switch (roce::aeth_kind(syndrome)) {
    case roce::AethKind::kRnrNak:
      return verbena::format("RNR NAK (no receive request; wait {})",
                             duration_text(static_cast<uint64_t>(roce::rnr_delay(value).count())));
    case roce::AethKind::kNak:
      return verbena::format("NAK ({})", nak_name(value));
    default:
      return "ACK";
  }
}

// The text of a kPacketSent or kPacketReceived event.
std::string packet_text(const Numbers& n) {
  const uint64_t joined = n[0] >> 8 & 0xff;
  const auto syndrome = static_cast<uint8_t>(n[3]);
  const bool is_answer = roce::kOpcodes[n[0] & 0xff].has(roce::kAeth);
  std::string text =
      verbena::format("{} {}, {}", packet_name(n[0] & 0xff), psn_text(n[1]), count_text(n[2], "byte"));
  if (joined > 1) text += verbena::format(", {} packets as one", joined);
  if ((n[0] >> 16 & 1) != 0) text += ", asks for an acknowledgement";
  if (is_answer && roce::aeth_kind(syndrome) != roce::AethKind::kAck) text += ": " + syndrome_text(syndrome);
  return text;
}

// The GID in a kPeer or connection event.
std::string gid_text(const Numbers& n) {
  roce::Address address;
  static_assert(sizeof address.bytes == 2 * sizeof n[0]);
  std::memcpy(address.bytes.data(), n.data(), sizeof address.bytes);
  return roce::text_of(address);
}

std::string ack_timeout_text(uint64_t code) {
  const Duration timeout = roce::ack_timeout(static_cast<uint8_t>(code & 0x1f));
  return timeout == Duration::zero() ? "none" : duration_text(static_cast<uint64_t>(timeout.count()));
}

constexpr size_t kMaxFields = 6;

struct KindInfo {
  Kind kind;
  std::string_view name;
  size_t field_count;
  std::array<Field, kMaxFields> fields;
  std::string (*words)(const Numbers& n);
};

constexpr KindInfo event(Kind kind, std::string_view name, std::initializer_list<Field> fields,
                         std::string (*words)(const Numbers& n)) {
  KindInfo info{kind, name, fields.size(), {}, words};
  std::ranges::copy(fields, info.fields.begin());
  return info;
}

// An event of connection management (connection_note.h). `what`: the name of the first field.
template <Kind kKind>
constexpr KindInfo connection_event(std::string_view name, std::string_view what) {
  return event(kKind, name,
               {{what, 3, 0, 8},
                {"id", 2, 0, 32},
                {"remote_port", 2, 32, 16},
                {"remote_qpn", 3, 8, 24},
                {"repetitions", 2, 48, 16},
                {"status", 3, 32, 32, true}},
               [](const Numbers& n) { return connection_text(kKind, n); });
}

constexpr KindInfo packet_event(Kind kind, std::string_view name, std::string (*words)(const Numbers& n)) {
  return event(kind, name,
               {{"opcode", 0, 0, 8},
                {"joined", 0, 8, 8},
                {"ack_request", 0, 16, 1},
                {"psn", 1},
                {"bytes", 2},
                {"syndrome", 3}},
               words);
}

constexpr std::array kKinds{
    event(Kind::kQpMade, "qp_made", {{"type", 0}, {"device_index", 1}},
          [](const Numbers& n) { return verbena::format("created, {}", type_name(n[0])); }),
    event(Kind::kQpDestroyed, "qp_destroyed", {}, [](const Numbers&) { return std::string("destroyed"); }),
    event(Kind::kState, "state", {{"from", 0}, {"to", 1}, {"cause", 2}},
          [](const Numbers& n) {
            return verbena::format("{} -> {} {}", state_name(n[0]), state_name(n[1]), cause_name(n[2]));
          }),
    event(Kind::kPeer, "peer", {{"remote_qpn", 2, 0, 32}, {"path_mtu", 2, 32, 32}, {"receive_psn", 3}},
          [](const Numbers& n) {
            return verbena::format("peer: QP {:#08x} at {}, path MTU {}; expects {}", n[2] & 0xffffff,
                                   gid_text(n), n[2] >> 32, psn_text(n[3]));
          }),
    event(Kind::kReadyToSend, "ready_to_send",
          {{"send_psn", 0}, {"timeout", 1, 0, 8}, {"retry_cnt", 1, 8, 8}, {"rnr_retry", 1, 16, 8}},
          [](const Numbers& n) {
            return verbena::format("sends from {} on; ACK timeout {} (code {}), retry_cnt {}, rnr_retry {}",
                                   psn_text(n[0]), ack_timeout_text(n[1]), n[1] & 0xff, n[1] >> 8 & 0xff,
                                   n[1] >> 16 & 0xff);
          }),
    event(Kind::kRoute, "route", {{"way", 0}},
          [](const Numbers& n) { return verbena::format("route: {}", way_name(n[0])); }),
    event(Kind::kTimeout, "timeout", {{"psn", 0}, {"sent_before", 1}, {"tries_left", 2}, {"timeout_ns", 3}},
          [](const Numbers& n) {
            return verbena::format("timeout: no acknowledgement from {} on ({} sent), {} left",
                                   psn_text(n[0]), count_text(psns_between(n[0], n[1]), "packet"),
                                   n[2] == 1 ? "1 try" : verbena::format("{} tries", n[2]));
          }),
    event(Kind::kProbe, "probe", {{"psn", 0}},
          [](const Numbers& n) { return verbena::format("tail-loss probe, {}", psn_text(n[0])); }),
    event(Kind::kLost, "lost", {{"psn", 0}, {"packets", 1}},
          [](const Numbers& n) {
            return verbena::format("retransmits {} from {} (selective)", count_text(n[1], "packet"),
                                   psn_text(n[0]));
          }),
    event(Kind::kGoesBack, "goes_back", {{"psn", 0}, {"sent_before", 1}},
          [](const Numbers& n) {
            return verbena::format("retransmits {} from {} (go-back-N)",
                                   count_text(psns_between(n[0], n[1]), "packet"), psn_text(n[0]));
          }),
    event(Kind::kImpliedLoss, "implied_loss", {{"psn", 0}},
          [](const Numbers& n) {
            return verbena::format("implied NAK: the response to {} is missing, a later one came",
                                   psn_text(n[0]));
          }),
    event(Kind::kNakSent, "nak_sent", {{"psn", 0}, {"syndrome", 1}},
          [](const Numbers& n) {
            return verbena::format("sent: {}, {}", syndrome_text(n[1]), psn_text(n[0]));
          }),
    event(Kind::kNakReceived, "nak_received", {{"psn", 0}, {"syndrome", 1}, {"tries_left", 2}},
          [](const Numbers& n) {
            const bool is_rnr = roce::aeth_kind(static_cast<uint8_t>(n[1])) == roce::AethKind::kRnrNak;
            const std::string tries = n[2] == 7   ? ", tries without end"
                                      : n[2] == 1 ? ", 1 try left"
                                                  : verbena::format(", {} tries left", n[2]);
            return verbena::format("received: {}, {}{}", syndrome_text(n[1]), psn_text(n[0]),
                                   is_rnr ? tries : "");
          }),
    event(Kind::kRefused, "refused",
          {{"opcode", 0, 0, 8},
           {"nak_code", 0, 8, 8},
           {"psn", 1},
           {"address", 2},
           {"key", 3, 0, 32},
           {"bytes", 3, 32, 32}},
          [](const Numbers& n) {
            std::string text = verbena::format("refuses the peer's {}, {}: {}", packet_name(n[0] & 0xff),
                                               psn_text(n[1]), nak_name(n[0] >> 8 & 0xff));
            const roce::OpcodeInfo& info = roce::kOpcodes[n[0] & 0xff];
            if (info.has(roce::kReth) || info.has(roce::kAtomicEth)) {
              text += verbena::format(" (key {:#x}, address {:#x}, {})", n[3] & 0xffffffff, n[2],
                                      count_text(n[3] >> 32, "byte"));
            }
            return text;
          }),
    event(Kind::kOutOfSequence, "out_of_sequence", {{"psn", 0}, {"expected_psn", 1}},
          [](const Numbers& n) {
            return verbena::format("out of sequence: received {}, expected {} ({} missing or late)",
                                   psn_text(n[0]), psn_text(n[1]),
                                   count_text(psns_between(n[1], n[0]), "packet"));
          }),
    event(Kind::kDuplicate, "duplicate", {{"psn", 0}, {"expected_psn", 1}, {"opcode", 2}},
          [](const Numbers& n) {
            return verbena::format("duplicate {}, {}; expected {}", packet_name(n[2]), psn_text(n[0]),
                                   psn_text(n[1]));
          }),
    event(Kind::kSendFailed, "send_failed",
          {{"status", 0, 0, 32}, {"wr_opcode", 0, 32, 32}, {"wr_id", 1}, {"psn", 2}, {"bytes", 3}},
          [](const Numbers& n) {
            return verbena::format("{} of {} failed: {} (wr_id {:#x}, first {})", request_name(n[0] >> 32),
                                   count_text(n[3], "byte"), status_name(n[0] & 0xffffffff), n[1],
                                   psn_text(n[2]));
          }),
    event(Kind::kReceiveFailed, "receive_failed", {{"status", 0}, {"wr_id", 1}},
          [](const Numbers& n) {
            return verbena::format("receive request failed: {} (wr_id {:#x})", status_name(n[0]), n[1]);
          }),
    event(Kind::kFlushed, "flushed", {{"sends", 0}, {"receives", 1}},
          [](const Numbers& n) {
            return verbena::format("flushed: {}, {}", count_text(n[0], "send request"),
                                   count_text(n[1], "receive request"));
          }),
    event(Kind::kCqOverrun, "cq_overrun", {{"of_receives", 0}},
          [](const Numbers& n) {
            return verbena::format("its completion queue for {} is in error: a completion was lost",
                                   n[0] == 0 ? "sends" : "receives");
          }),
    event(Kind::kAsyncEvent, "async_event", {{"event_type", 0}},
          [](const Numbers& n) { return verbena::format("asynchronous event: {}", event_name(n[0])); }),
    event(Kind::kDropped, "dropped", {{"reason", 0}, {"opcode", 1}, {"psn", 2}},
          [](const Numbers& n) {
            return verbena::format("{} {} dropped: {}", packet_name(n[1]), psn_text(n[2]), drop_name(n[0]));
          }),
    event(Kind::kPortFull, "port_full", {{"way", 0}},
          [](const Numbers& n) {
            return verbena::format("send buffer full: waits for room in {}", way_name(n[0]));
          }),
    event(Kind::kLeftOut, "left_out", {{"kind", 0}, {"count", 1}},
          [](const Numbers& n) {
            return verbena::format("{} more of '{}', of all queue pairs, left out since", n[1],
                                   name_of(static_cast<Kind>(n[0] & 0xff)));
          }),
    connection_event<Kind::kCmCall>("cm_call", "call"),
    connection_event<Kind::kCmSent>("cm_sent", "message"),
    connection_event<Kind::kCmReceived>("cm_received", "message"),
    connection_event<Kind::kCmEvent>("cm_event", "event_type"),
    event(Kind::kPosted, "posted", {{"wr_opcode", 0}, {"wr_id", 1}, {"bytes", 2}},
          [](const Numbers& n) {
            return verbena::format("posted: {} of {} (wr_id {:#x})", request_name(n[0]),
                                   count_text(n[2], "byte"), n[1]);
          }),
    packet_event(Kind::kPacketSent, "packet_sent", [](const Numbers& n) { return "-> " + packet_text(n); }),
    packet_event(Kind::kPacketReceived, "packet_received",
                 [](const Numbers& n) { return "<- " + packet_text(n); }),
    event(Kind::kCompletion, "completion",
          {{"status", 0, 0, 32}, {"wc_opcode", 0, 32, 32}, {"wr_id", 1}, {"bytes", 2}}, [](const Numbers& n) {
            const bool is_receive = (n[0] >> 32 & IBV_WC_RECV) != 0;
            return verbena::format("completion of a {} request: {} (wr_id {:#x}, {})",
                                   is_receive ? "receive" : "send", status_name(n[0] & 0xffffffff), n[1],
                                   count_text(n[2], "byte"));
          })};

const KindInfo* find(Kind kind) {
  const auto* found = std::ranges::find(kKinds, kind, &KindInfo::kind);
  return found != kKinds.end() ? found : nullptr;
}

}  // namespace

std::string_view name_of(Kind kind) {
  const KindInfo* info = find(kind);
  return info != nullptr ? info->name : "unknown";
}

std::span<const Field> fields_of(Kind kind) {
  const KindInfo* info = find(kind);
  if (info == nullptr) return {};
  return {info->fields.data(), info->field_count};
}

std::string words_of(const Event& event) {
  const KindInfo* info = find(event.kind);
  return info != nullptr ? info->words(event.numbers) : "unknown";
}

std::vector<NamedText> texts_of(const Event& event) {
  if (event.kind == Kind::kPeer) return {{"remote_gid", gid_text(event.numbers)}};
  if (!is_of_connection(event.kind)) return {};
  std::vector<NamedText> texts{{"name", connection_subject(event.kind, event.numbers)}};
  if (!unpacked(event.numbers).peer.is_zero()) texts.emplace_back("remote_gid", gid_text(event.numbers));
  return texts;
}

}  // namespace verbena::trace

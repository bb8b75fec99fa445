// SPDX-License-Identifier: Apache-2.0
#include "observe/trace/event_words.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <infiniband/verbs.h>

#include "base/format.h"
#include "observe/trace/connection_note.h"
#include "observe/trace/number_words.h"
#include "wire/roce/aeth.h"
#include "wire/roce/opcode.h"

namespace verbena::trace {
namespace {

using Numbers = Recorder::Numbers;

constexpr size_t kMaxFields = 6;

// The fields of all connection management events (connection_note.h). The first has an individual name.
constexpr std::array<Field, kMaxFields> connection_fields(std::string_view what) {
  return {{{what, 3, 0, 8},
           {"id", 2, 0, 32},
           {"remote_port", 2, 32, 16},
           {"remote_qpn", 3, 8, 24},
           {"repetitions", 2, 48, 16},
           {"status", 3, 32, 32, true}}};
}

struct KindInfo {
  Kind kind;
  std::string_view name;
  size_t field_count;
  std::array<Field, kMaxFields> fields;
  std::string (*words)(const Numbers& n);
};

const KindInfo kKinds[] = {
    {Kind::kQpMade,
     "qp_made",
     2,
     {{{"type", 0}, {"device_index", 1}}},
     [](const Numbers& n) { return verbena::format("created, {}", type_name(n[0])); }},
    {Kind::kQpDestroyed, "qp_destroyed", 0, {}, [](const Numbers&) { return std::string("destroyed"); }},
    {Kind::kState,
     "state",
     3,
     {{{"from", 0}, {"to", 1}, {"cause", 2}}},
     [](const Numbers& n) {
       return verbena::format("{} -> {} {}", state_name(n[0]), state_name(n[1]), cause_name(n[2]));
     }},
    {Kind::kPeer,
     "peer",
     3,
     {{{"remote_qpn", 2, 0, 32}, {"path_mtu", 2, 32, 32}, {"receive_psn", 3}}},
     [](const Numbers& n) {
       return verbena::format("peer: QP {:#08x} at {}, path MTU {}; expects {}", n[2] & 0xffffff, gid_text(n),
                              n[2] >> 32, psn_text(n[3]));
     }},
    {Kind::kReadyToSend,
     "ready_to_send",
     4,
     {{{"send_psn", 0}, {"timeout", 1, 0, 8}, {"retry_cnt", 1, 8, 8}, {"rnr_retry", 1, 16, 8}}},
     [](const Numbers& n) {
       return verbena::format("sends from {} on; ACK timeout {} (code {}), retry_cnt {}, rnr_retry {}",
                              psn_text(n[0]), ack_timeout_text(n[1]), n[1] & 0xff, n[1] >> 8 & 0xff,
                              n[1] >> 16 & 0xff);
     }},
    {Kind::kRoute,
     "route",
     1,
     {{{"way", 0}}},
     [](const Numbers& n) { return verbena::format("route: {}", way_name(n[0])); }},
    {Kind::kTimeout,
     "timeout",
     4,
     {{{"psn", 0}, {"sent_before", 1}, {"tries_left", 2}, {"timeout_ns", 3}}},
     [](const Numbers& n) {
       return verbena::format("timeout: no acknowledgement from {} on ({} sent), {} left", psn_text(n[0]),
                              count_text(psns_between(n[0], n[1]), "packet"),
                              n[2] == 1 ? "1 try" : verbena::format("{} tries", n[2]));
     }},
    {Kind::kProbe,
     "probe",
     1,
     {{{"psn", 0}}},
     [](const Numbers& n) { return verbena::format("tail-loss probe, {}", psn_text(n[0])); }},
    {Kind::kLost,
     "lost",
     2,
     {{{"psn", 0}, {"packets", 1}}},
     [](const Numbers& n) {
       return verbena::format("retransmits {} from {} (selective)", count_text(n[1], "packet"),
                              psn_text(n[0]));
     }},
    {Kind::kGoesBack,
     "goes_back",
     2,
     {{{"psn", 0}, {"sent_before", 1}}},
     [](const Numbers& n) {
       return verbena::format("retransmits {} from {} (go-back-N)",
                              count_text(psns_between(n[0], n[1]), "packet"), psn_text(n[0]));
     }},
    {Kind::kImpliedLoss,
     "implied_loss",
     1,
     {{{"psn", 0}}},
     [](const Numbers& n) {
       return verbena::format("implied NAK: the response to {} is missing, a later one came", psn_text(n[0]));
     }},
    {Kind::kNakSent,
     "nak_sent",
     2,
     {{{"psn", 0}, {"syndrome", 1}}},
     [](const Numbers& n) { return verbena::format("sent: {}, {}", syndrome_text(n[1]), psn_text(n[0])); }},
    {Kind::kNakReceived,
     "nak_received",
     3,
     {{{"psn", 0}, {"syndrome", 1}, {"tries_left", 2}}},
     [](const Numbers& n) {
       const bool is_rnr = roce::aeth_kind(static_cast<uint8_t>(n[1])) == roce::AethKind::kRnrNak;
       const std::string tries = n[2] == 7   ? ", tries without end"
                                 : n[2] == 1 ? ", 1 try left"
                                             : verbena::format(", {} tries left", n[2]);
       return verbena::format("received: {}, {}{}", syndrome_text(n[1]), psn_text(n[0]), is_rnr ? tries : "");
     }},
    {Kind::kRefused,
     "refused",
     6,
     {{{"opcode", 0, 0, 8},
       {"nak_code", 0, 8, 8},
       {"psn", 1},
       {"address", 2},
       {"key", 3, 0, 32},
       {"bytes", 3, 32, 32}}},
     [](const Numbers& n) {
       std::string text = verbena::format("refuses the peer's {}, {}: {}", packet_name(n[0] & 0xff),
                                          psn_text(n[1]), nak_name(n[0] >> 8 & 0xff));
       const roce::OpcodeInfo& info = roce::kOpcodes[n[0] & 0xff];
       if (info.has(roce::kReth) || info.has(roce::kAtomicEth)) {
         text += verbena::format(" (key {:#x}, address {:#x}, {})", n[3] & 0xffffffff, n[2],
                                 count_text(n[3] >> 32, "byte"));
       }
       return text;
     }},
    {Kind::kOutOfSequence,
     "out_of_sequence",
     2,
     {{{"psn", 0}, {"expected_psn", 1}}},
     [](const Numbers& n) {
       return verbena::format("out of sequence: received {}, expected {} ({} missing or late)",
                              psn_text(n[0]), psn_text(n[1]), count_text(psns_between(n[1], n[0]), "packet"));
     }},
    {Kind::kDuplicate,
     "duplicate",
     3,
     {{{"psn", 0}, {"expected_psn", 1}, {"opcode", 2}}},
     [](const Numbers& n) {
       return verbena::format("duplicate {}, {}; expected {}", packet_name(n[2]), psn_text(n[0]),
                              psn_text(n[1]));
     }},
    {Kind::kSendFailed,
     "send_failed",
     5,
     {{{"status", 0, 0, 32}, {"wr_opcode", 0, 32, 32}, {"wr_id", 1}, {"psn", 2}, {"bytes", 3}}},
     [](const Numbers& n) {
       return verbena::format("{} of {} failed: {} (wr_id {:#x}, first {})", request_name(n[0] >> 32),
                              count_text(n[3], "byte"), status_name(n[0] & 0xffffffff), n[1], psn_text(n[2]));
     }},
    {Kind::kReceiveFailed,
     "receive_failed",
     2,
     {{{"status", 0}, {"wr_id", 1}}},
     [](const Numbers& n) {
       return verbena::format("receive request failed: {} (wr_id {:#x})", status_name(n[0]), n[1]);
     }},
    {Kind::kFlushed,
     "flushed",
     2,
     {{{"sends", 0}, {"receives", 1}}},
     [](const Numbers& n) {
       return verbena::format("flushed: {}, {}", count_text(n[0], "send request"),
                              count_text(n[1], "receive request"));
     }},
    {Kind::kCqOverrun,
     "cq_overrun",
     1,
     {{{"of_receives", 0}}},
     [](const Numbers& n) {
       return verbena::format("its completion queue for {} is in error: a completion was lost",
                              n[0] == 0 ? "sends" : "receives");
     }},
    {Kind::kAsyncEvent,
     "async_event",
     1,
     {{{"event_type", 0}}},
     [](const Numbers& n) { return verbena::format("asynchronous event: {}", event_name(n[0])); }},
    {Kind::kDropped,
     "dropped",
     3,
     {{{"reason", 0}, {"opcode", 1}, {"psn", 2}}},
     [](const Numbers& n) {
       return verbena::format("{} {} dropped: {}", packet_name(n[1]), psn_text(n[2]), drop_name(n[0]));
     }},
    {Kind::kPortFull,
     "port_full",
     1,
     {{{"way", 0}}},
     [](const Numbers& n) {
       return verbena::format("send buffer full: waits for room in {}", way_name(n[0]));
     }},
    {Kind::kLeftOut,
     "left_out",
     2,
     {{{"kind", 0}, {"count", 1}}},
     [](const Numbers& n) {
       return verbena::format("{} more of '{}', of all queue pairs, left out since", n[1],
                              name_of(static_cast<Kind>(n[0] & 0xff)));
     }},
    {Kind::kCmCall, "cm_call", kMaxFields, connection_fields("call"),
     [](const Numbers& n) { return connection_text(Kind::kCmCall, n); }},
    {Kind::kCmSent, "cm_sent", kMaxFields, connection_fields("message"),
     [](const Numbers& n) { return connection_text(Kind::kCmSent, n); }},
    {Kind::kCmReceived, "cm_received", kMaxFields, connection_fields("message"),
     [](const Numbers& n) { return connection_text(Kind::kCmReceived, n); }},
    {Kind::kCmEvent, "cm_event", kMaxFields, connection_fields("event_type"),
     [](const Numbers& n) { return connection_text(Kind::kCmEvent, n); }},
    {Kind::kPosted,
     "posted",
     3,
     {{{"wr_opcode", 0}, {"wr_id", 1}, {"bytes", 2}}},
     [](const Numbers& n) {
       return verbena::format("posted: {} of {} (wr_id {:#x})", request_name(n[0]), count_text(n[2], "byte"),
                              n[1]);
     }},
    {Kind::kPacketSent,
     "packet_sent",
     6,
     {{{"opcode", 0, 0, 8},
       {"joined", 0, 8, 8},
       {"ack_request", 0, 16, 1},
       {"psn", 1},
       {"bytes", 2},
       {"syndrome", 3}}},
     [](const Numbers& n) { return "-> " + packet_text(n); }},
    {Kind::kPacketReceived,
     "packet_received",
     6,
     {{{"opcode", 0, 0, 8},
       {"joined", 0, 8, 8},
       {"ack_request", 0, 16, 1},
       {"psn", 1},
       {"bytes", 2},
       {"syndrome", 3}}},
     [](const Numbers& n) { return "<- " + packet_text(n); }},
    {Kind::kCompletion,
     "completion",
     4,
     {{{"status", 0, 0, 32}, {"wc_opcode", 0, 32, 32}, {"wr_id", 1}, {"bytes", 2}}},
     [](const Numbers& n) {
       const bool is_receive = (n[0] >> 32 & IBV_WC_RECV) != 0;
       return verbena::format("completion of a {} request: {} (wr_id {:#x}, {})",
                              is_receive ? "receive" : "send", status_name(n[0] & 0xffffffff), n[1],
                              count_text(n[2], "byte"));
     }},
};

const KindInfo* find(Kind kind) {
  const auto* found = std::ranges::find(kKinds, kind, &KindInfo::kind);
  return found != std::end(kKinds) ? found : nullptr;
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

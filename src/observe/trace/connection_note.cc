// SPDX-License-Identifier: Apache-2.0
#include "observe/trace/connection_note.h"

#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>

#include "base/format.h"
#include "management/cm/event_names.h"
#include "management/cm/messages.h"
#include "wire/roce/prefix.h"

namespace verbena::trace {
namespace {

using Numbers = Recorder::Numbers;

// Indexed by protocol::TraceCall.
constexpr std::string_view kCalls[] = {"",
                                       "rdma_bind_addr",
                                       "rdma_resolve_addr",
                                       "rdma_resolve_route",
                                       "rdma_listen",
                                       "rdma_connect",
                                       "rdma_accept",
                                       "rdma_reject",
                                       "rdma_notify",
                                       "rdma_disconnect",
                                       "rdma_destroy_id",
                                       "rdma_join_multicast",
                                       "rdma_leave_multicast",
                                       "known to a new agent"};
static_assert(std::size(kCalls) == static_cast<size_t>(protocol::TraceCall::kRestore) + 1);

// "192.0.2.2 port 7471"; empty if the peer is unknown.
std::string peer_text(const ConnectionNote& note) {
  if (note.peer.is_zero()) return {};
  const std::string address = roce::text_of(note.peer);
  return note.port != 0 ? verbena::format("{} port {}", address, note.port) : address;
}

// ", its QP 0x000012"; empty if unknown.
std::string qp_text(const ConnectionNote& note) {
  return note.remote_qpn != 0 ? verbena::format(", its QP {:#08x}", note.remote_qpn) : std::string();
}

std::string call_text(const ConnectionNote& note, const std::string& subject) {
  if (note.status == 0) {
    const std::string peer = peer_text(note);
    return peer.empty() ? subject : verbena::format("{}, peer {}", subject, peer);
  }
  const char* const name = ::strerrorname_np(note.status);
  return verbena::format("{} failed: {}", subject,
                         name != nullptr ? name : verbena::format("errno {}", note.status));
}

std::string message_text(const ConnectionNote& note, const std::string& subject, bool is_sent) {
  const bool is_rejection = note.what == static_cast<uint8_t>(cm::MessageType::kRej);
  const bool is_resolution = note.what == static_cast<uint8_t>(cm::MessageType::kSidrRep);
  std::string text = verbena::format("{} {}", is_sent ? "sent" : "received", subject);
  const std::string peer = peer_text(note);
  if (!peer.empty()) text += verbena::format(" {} {}", is_sent ? "to" : "from", peer);
  text += qp_text(note);
  if (is_rejection) {
    const auto reason = static_cast<uint16_t>(note.status);
    text += verbena::format(", reason {} ({})", reason, cm::reason_name(reason));
  }
  if (is_resolution) text += verbena::format(", status {}", note.status);
  if (!is_sent && note.repetitions != 0) text += ", once more";
  if (is_sent && note.repetitions != 0) text += verbena::format(", repetition {}", note.repetitions);
  return text;
}

std::string event_text(const ConnectionNote& note, const std::string& subject) {
  std::string text = subject;
  const std::string peer = peer_text(note);
  if (!peer.empty()) text += verbena::format(", peer {}", peer);
  text += qp_text(note);
  const bool is_failure = cm::is_failure(note.what);
  if (note.status != 0 || is_failure) text += ", status " + cm::status_text(note.what, note.status);
  const std::string_view cause = is_failure ? cm::cause_of(note.what, note.status) : std::string_view();
  return cause.empty() ? text : verbena::format("{}: {}", text, cause);
}

}  // namespace

Numbers packed(const ConnectionNote& note) {
  Numbers numbers{};
  static_assert(sizeof note.peer.bytes == 2 * sizeof numbers[0]);
  std::memcpy(numbers.data(), note.peer.bytes.data(), sizeof note.peer.bytes);
  numbers[2] = note.id | uint64_t{note.port} << 32 | uint64_t{note.repetitions} << 48;
  numbers[3] = note.what | uint64_t{note.remote_qpn & 0xffffff} << 8 |
               uint64_t{static_cast<uint32_t>(note.status)} << 32;
  return numbers;
}

ConnectionNote unpacked(const Numbers& numbers) {
  ConnectionNote note;
  std::memcpy(note.peer.bytes.data(), numbers.data(), sizeof note.peer.bytes);
  note.id = static_cast<uint32_t>(numbers[2]);
  note.port = static_cast<uint16_t>(numbers[2] >> 32);
  note.repetitions = static_cast<uint16_t>(numbers[2] >> 48);
  note.what = static_cast<uint8_t>(numbers[3]);
  note.remote_qpn = static_cast<uint32_t>(numbers[3] >> 8) & 0xffffff;
  note.status = static_cast<int32_t>(numbers[3] >> 32);
  return note;
}

std::string connection_subject(Kind kind, const Numbers& numbers) {
  const uint8_t what = unpacked(numbers).what;
  if (kind == Kind::kCmEvent) return cm::event_name(what);
  if (kind == Kind::kCmCall) {
    return what != 0 && what < std::size(kCalls) ? std::string(kCalls[what])
                                                 : verbena::format("call {}", what);
  }
  return what < cm::kMessageTypes ? cm::message_name(static_cast<cm::MessageType>(what))
                                  : verbena::format("message {}", what);
}

std::string connection_text(Kind kind, const Numbers& numbers) {
  const ConnectionNote note = unpacked(numbers);
  const std::string subject = connection_subject(kind, numbers);
  const std::string text = kind == Kind::kCmEvent  ? event_text(note, subject)
                           : kind == Kind::kCmCall ? call_text(note, subject)
                                                   : message_text(note, subject, kind == Kind::kCmSent);
  return verbena::format("cm_id {}: {}", note.id, text);
}

bool is_connection_failure(Kind kind, const Numbers& numbers) {
  return kind == Kind::kCmEvent && cm::is_failure(unpacked(numbers).what);
}

}  // namespace verbena::trace

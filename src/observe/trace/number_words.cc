// SPDX-License-Identifier: Apache-2.0
#include "observe/trace/number_words.h"

#include <cstring>
#include <iterator>

#include <infiniband/verbs.h>

#include "adapter/queues/status_words.h"
#include "base/format.h"
#include "wire/roce/aeth.h"
#include "wire/roce/opcode.h"
#include "wire/roce/path.h"
#include "wire/roce/prefix.h"

namespace verbena::trace {
namespace {

using Numbers = Recorder::Numbers;

template <class Names>
std::string name_in(const Names& names, uint64_t number, std::string_view what) {
  const bool is_known = number < std::size(names) && !std::string_view(names[number]).empty();
  return is_known ? std::string(names[number]) : verbena::format("{} {}", what, number);
}

constexpr std::string_view kTypes[] = {"", "", "RC",         "UC",       "UD",      "",
                                       "", "", "RAW_PACKET", "XRC_SEND", "XRC_RECV"};
constexpr std::string_view kCauses[] = {"by the program", "because of an error", "as its device is gone"};
constexpr std::string_view kWays[] = {"none: UDP port 4791 is not available", "the wire", "shared memory"};
constexpr std::string_view kDrops[] = {
    "the queue pair is in no state to receive it",
    "it is of another transport service",
    "its partition key is not ours",
    "it does not come from the peer",
    "its Q_Key is wrong",
    "no receive request is posted",
    "the message cannot be placed whole",
};
constexpr std::string_view kNaks[] = {"sequence error", "invalid request", "remote access error",
                                      "remote operational error", "invalid RD request"};
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

std::string duration_text(uint64_t nanoseconds) {
  return nanoseconds >= 1'000'000'000 ? verbena::format("{:.3g} s", static_cast<double>(nanoseconds) / 1e9)
         : nanoseconds >= 1'000'000   ? verbena::format("{:.3g} ms", static_cast<double>(nanoseconds) / 1e6)
                                      : verbena::format("{:.3g} us", static_cast<double>(nanoseconds) / 1e3);
}

}  // namespace

std::string type_name(uint64_t type) {
  return name_in(kTypes, type, "type");
}
std::string state_name(uint64_t state) {
  return name_in(queues::kQpStates, state, "state");
}
std::string cause_name(uint64_t cause) {
  return name_in(kCauses, cause, "cause");
}
std::string way_name(uint64_t way) {
  return name_in(kWays, way, "way");
}
std::string drop_name(uint64_t reason) {
  return name_in(kDrops, reason, "reason");
}
std::string nak_name(uint64_t code) {
  return name_in(kNaks, code, "code");
}
std::string status_name(uint64_t status) {
  return name_in(queues::kCompletionStatuses, status, "status");
}
std::string event_name(uint64_t type) {
  return name_in(queues::kEventTypes, type, "type");
}
std::string request_name(uint64_t opcode) {
  return name_in(kRequests, opcode, "request");
}

std::string packet_name(uint64_t opcode) {
  switch (opcode) {
    case roce::kSackOpcode:
      return "word of what has arrived";
    case roce::kSackConfirmationOpcode:
      return "word that it was heard";
    case roce::kReceiverReportOpcode:
    case roce::kReportRequestOpcode:
      return "receipt";
    case roce::kRefusalOpcode:
      return "words of a refusal";
    case roce::kRepeatedReadsOpcode:
      return "word of READs that were sent";
    case roce::kStoppedOpcode:
      return "word that the peer's process is stopped";
    case roce::kCnpOpcode:
      return "congestion notification";
    default:
      break;
  }
  const roce::OpcodeInfo& info = roce::kOpcodes[opcode & 0xff];
  return info.exists() ? info.name : verbena::format("opcode {:#04x}", opcode & 0xff);
}

std::string psn_text(uint64_t psn) {
  return verbena::format("PSN {:#08x}", psn & 0xffffff);
}
uint64_t psns_between(uint64_t from, uint64_t past) {
  return (past - from) & 0xffffff;
}
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

}  // namespace verbena::trace

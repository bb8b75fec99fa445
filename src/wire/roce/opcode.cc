// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/opcode.h"

#include <cstddef>
#include <string_view>

#include "wire/roce/packet.h"

namespace verbena::roce {
namespace {

// The services in which an operation exists (IBTA volume 1, table 38).
enum Services : uint8_t { kInRc = 1, kInUc = 2, kInUd = 4, kInXrc = 8 };
constexpr uint8_t kReliable = kInRc | kInXrc;
constexpr uint8_t kConnected = kReliable | kInUc;

enum Flags : uint8_t { kPayload = 1, kStart = 2, kEnd = 4, kResponse = 8, kOnly = kStart | kEnd };

// One operation as in RC; kServices has the headers that other services add.
struct Shape {
  Operation operation;
  uint8_t services;
  uint8_t flags;
  uint16_t extensions;
  std::string_view name;
};

constexpr Shape kShapes[] = {
    {Operation::kSendFirst, kConnected, kPayload | kStart, 0, "SEND First"},
    {Operation::kSendMiddle, kConnected, kPayload, 0, "SEND Middle"},
    {Operation::kSendLast, kConnected, kPayload | kEnd, 0, "SEND Last"},
    {Operation::kSendLastImmediate, kConnected, kPayload | kEnd, kImmediate, "SEND Last with Immediate"},
    {Operation::kSendOnly, kConnected | kInUd, kPayload | kOnly, 0, "SEND Only"},
    {Operation::kSendOnlyImmediate, kConnected | kInUd, kPayload | kOnly, kImmediate,
     "SEND Only with Immediate"},
    {Operation::kWriteFirst, kConnected, kPayload | kStart, kReth, "RDMA WRITE First"},
    {Operation::kWriteMiddle, kConnected, kPayload, 0, "RDMA WRITE Middle"},
    {Operation::kWriteLast, kConnected, kPayload | kEnd, 0, "RDMA WRITE Last"},
    {Operation::kWriteLastImmediate, kConnected, kPayload | kEnd, kImmediate,
     "RDMA WRITE Last with Immediate"},
    {Operation::kWriteOnly, kConnected, kPayload | kOnly, kReth, "RDMA WRITE Only"},
    {Operation::kWriteOnlyImmediate, kConnected, kPayload | kOnly, kReth | kImmediate,
     "RDMA WRITE Only with Immediate"},
    {Operation::kReadRequest, kReliable, kOnly, kReth, "RDMA READ Request"},
    {Operation::kReadResponseFirst, kReliable, kResponse | kPayload | kStart, kAeth,
     "RDMA READ Response First"},
    {Operation::kReadResponseMiddle, kReliable, kResponse | kPayload, 0, "RDMA READ Response Middle"},
    {Operation::kReadResponseLast, kReliable, kResponse | kPayload | kEnd, kAeth, "RDMA READ Response Last"},
    {Operation::kReadResponseOnly, kReliable, kResponse | kPayload | kOnly, kAeth, "RDMA READ Response Only"},
    {Operation::kAcknowledge, kReliable, kResponse | kOnly, kAeth, "Acknowledge"},
    {Operation::kAtomicAcknowledge, kReliable, kResponse | kOnly, kAeth | kAtomicAckEth,
     "ATOMIC Acknowledge"},
    {Operation::kCompareSwap, kReliable, kOnly, kAtomicEth, "Compare & Swap"},
    {Operation::kFetchAdd, kReliable, kOnly, kAtomicEth, "Fetch & Add"},
    {Operation::kSendLastInvalidate, kReliable, kPayload | kEnd, kIeth, "SEND Last with Invalidate"},
    {Operation::kSendOnlyInvalidate, kReliable, kPayload | kOnly, kIeth, "SEND Only with Invalidate"},
    {Operation::kFlush, kReliable, kOnly, kFeth | kReth, "FLUSH"},
    {Operation::kAtomicWrite, kReliable, kPayload | kOnly, kReth, "ATOMIC WRITE"},
};
constexpr size_t kShapeCount = std::size(kShapes);

struct ServiceRow {
  Service service;
  Services bit;
  std::string_view name;
  uint16_t request_extensions;  // extension headers that the service adds to each request
};
constexpr ServiceRow kServices[] = {
    {Service::kRc, kInRc, "RC ", 0},
    {Service::kUc, kInUc, "UC ", 0},
    {Service::kUd, kInUd, "UD ", kDeth},
    {Service::kXrc, kInXrc, "XRC ", kXrceth},
};
constexpr size_t kServiceCount = std::size(kServices);

using Name = std::array<char, 40>;
using Names = std::array<std::array<Name, kShapeCount>, kServiceCount>;
constexpr Names kNames = [] {
  Names names{};
  for (size_t s = 0; s < kServiceCount; ++s) {
    for (size_t o = 0; o < kShapeCount; ++o) {
      size_t at = 0;
      for (const char c : kServices[s].name) names[s][o][at++] = c;
      for (const char c : kShapes[o].name) names[s][o][at++] = c;
    }
  }
  return names;
}();

constexpr OpcodeInfo make_info(size_t service, size_t shape) {
  const Shape& s = kShapes[shape];
  OpcodeInfo info;
  info.name = kNames[service][shape].data();
  info.extensions = s.extensions;
  info.carries_payload = (s.flags & kPayload) != 0;
  info.starts_message = (s.flags & kStart) != 0;
  info.ends_message = (s.flags & kEnd) != 0;
  info.is_request = (s.flags & kResponse) == 0;
  if (info.is_request) info.extensions |= kServices[service].request_extensions;
  return info;
}

constexpr std::array<OpcodeInfo, 256> make_opcodes() {
  std::array<OpcodeInfo, 256> opcodes{};
  for (size_t s = 0; s < kServiceCount; ++s) {
    for (size_t o = 0; o < kShapeCount; ++o) {
      if ((kShapes[o].services & kServices[s].bit) == 0) continue;
      opcodes[make_opcode(kServices[s].service, kShapes[o].operation)] = make_info(s, o);
    }
  }
  // A congestion notification packet: the BTH and sixteen reserved bytes (annex A17, 17.9.3). It is part of
  // no message and not in the PSN sequence.
  opcodes[kCnpOpcode] = OpcodeInfo{.name = "CNP", .carries_payload = true};
  // Verbena's own opcodes, which are not in the PSN sequence either.
  opcodes[kSackOpcode] = OpcodeInfo{.name = "Verbena arrivals", .carries_payload = true};
  opcodes[kSackConfirmationOpcode] = OpcodeInfo{.name = "Verbena arrivals heard"};
  opcodes[kReceiverReportOpcode] = OpcodeInfo{.name = "Verbena receipt", .carries_payload = true};
  opcodes[kReportRequestOpcode] = OpcodeInfo{.name = "Verbena receipt request", .carries_payload = true};
  opcodes[kRefusalOpcode] = OpcodeInfo{.name = "Verbena refusal", .carries_payload = true};
  opcodes[kRepeatedReadsOpcode] = OpcodeInfo{.name = "Verbena repeated READs", .carries_payload = true};
  opcodes[kStoppedOpcode] = OpcodeInfo{.name = "Verbena stopped process"};
  return opcodes;
}

struct ExtensionRow {
  ExtensionHeader header;
  uint32_t bytes;
};
constexpr ExtensionRow kExtensions[] = {
    {kXrceth, kXrcethBytes},
    {kDeth, kDethBytes},
    {kFeth, kFethBytes},
    {kReth, kRethBytes},
    {kAtomicEth, kAtomicEthBytes},
    {kAeth, kAethBytes},
    {kAtomicAckEth, kAtomicAckEthBytes},
    {kImmediate, kImmediateBytes},
    {kIeth, kIethBytes},
};

constexpr uint32_t sum_of_extensions(uint16_t extensions) {
  uint32_t bytes = 0;
  for (const ExtensionRow& row : kExtensions) {
    if ((extensions & row.header) != 0) bytes += row.bytes;
  }
  return bytes;
}

constexpr std::array<uint8_t, 256> make_header_bytes() {
  std::array<uint8_t, 256> bytes{};
  const auto opcodes = make_opcodes();
  for (size_t i = 0; i < opcodes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(kBthBytes + sum_of_extensions(opcodes[i].extensions));
    if (bytes[i] > kMaxHeaderBytes) throw "kMaxHeaderBytes is too small";
  }
  return bytes;
}

}  // namespace

constexpr std::array<OpcodeInfo, 256> kOpcodes = make_opcodes();
constexpr std::array<uint8_t, 256> kHeaderBytes = make_header_bytes();

}  // namespace verbena::roce

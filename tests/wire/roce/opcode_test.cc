// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/opcode.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "wire/roce/packet.h"

namespace verbena::roce {
namespace {

const OpcodeInfo& info(Service service, Operation operation) {
  return kOpcodes[make_opcode(service, operation)];
}

// IBTA volume 1, table 38, with annex A19's FLUSH and ATOMIC WRITE and annex A17's CNP.
TEST(Opcodes, ExistPerService) {
  std::set<int> expected;
  for (int operation = 0x00; operation <= 0x17; ++operation) {
    if (operation == 0x15) continue;  // RESYNC belongs to RD
    expected.insert(0x00 | operation);
    expected.insert(0xa0 | operation);
  }
  for (const int extended : {0x1c, 0x1d, 0xbc, 0xbd}) expected.insert(extended);
  for (int operation = 0x00; operation <= 0x0b; ++operation) expected.insert(0x20 | operation);
  expected.insert({0x64, 0x65, 0x81});
  expected.insert({kSackOpcode, kSackConfirmationOpcode, kReceiverReportOpcode, kReportRequestOpcode,
                   kRefusalOpcode, kRepeatedReadsOpcode, kStoppedOpcode});  // ours
  for (int opcode = 0; opcode < 256; ++opcode) {
    EXPECT_EQ(kOpcodes[static_cast<size_t>(opcode)].exists(), expected.contains(opcode))
        << std::hex << opcode;
  }
}

TEST(Opcodes, NamesAreUnique) {
  std::set<std::string> names;
  for (const OpcodeInfo& opcode : kOpcodes) {
    if (!opcode.exists()) continue;
    EXPECT_TRUE(names.insert(opcode.name).second) << opcode.name;
  }
  EXPECT_STREQ(info(Service::kRc, Operation::kSendOnlyImmediate).name, "RC SEND Only with Immediate");
  EXPECT_STREQ(info(Service::kXrc, Operation::kReadResponseLast).name, "XRC RDMA READ Response Last");
  EXPECT_STREQ(kOpcodes[kCnpOpcode].name, "CNP");
}

TEST(Opcodes, HeaderLengths) {
  const struct {
    uint8_t opcode;
    uint32_t bytes;
  } cases[] = {
      {0x00, 12}, {0x03, 16}, {0x04, 12}, {0x05, 16}, {0x06, 28}, {0x07, 12}, {0x0a, 28}, {0x0b, 32},
      {0x0c, 28}, {0x0d, 16}, {0x0e, 12}, {0x10, 16}, {0x11, 16}, {0x12, 24}, {0x13, 40}, {0x14, 40},
      {0x16, 16}, {0x17, 16}, {0x1c, 32}, {0x1d, 28}, {0x24, 12}, {0x2b, 32}, {0x64, 20}, {0x65, 24},
      {0x81, 12}, {0xa1, 16}, {0xab, 36}, {0xb1, 16}, {0xb3, 44}, {0xbc, 36},
  };
  for (const auto& c : cases) EXPECT_EQ(header_bytes(c.opcode), c.bytes) << kOpcodes[c.opcode].name;
}

TEST(Opcodes, XrcRequestsAndNoResponsesCarryXrceth) {
  for (unsigned opcode = 0xa0; opcode < 0xc0; ++opcode) {
    const OpcodeInfo& xrc = kOpcodes[opcode];
    const OpcodeInfo& rc = kOpcodes[opcode - 0xa0];
    if (!xrc.exists()) continue;
    EXPECT_EQ(xrc.has(kXrceth), xrc.is_request) << xrc.name;
    EXPECT_EQ(xrc.extensions & ~kXrceth, rc.extensions) << xrc.name;
    EXPECT_EQ(xrc.carries_payload, rc.carries_payload) << xrc.name;
  }
}

TEST(Opcodes, DatagramsCarryDeth) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    EXPECT_EQ(kOpcodes[opcode].has(kDeth), kOpcodes[opcode].exists() && opcode >> 5 == 3);
  }
}

TEST(Opcodes, MessageBoundariesFollowTheNames) {
  for (const OpcodeInfo& opcode : kOpcodes) {
    if (!opcode.exists() || &opcode >= &kOpcodes[kSackOpcode] || &opcode == &kOpcodes[kCnpOpcode]) continue;
    const std::string name = opcode.name;
    const bool middle = name.find("Middle") != name.npos;
    EXPECT_EQ(opcode.starts_message, !middle && name.find("Last") == name.npos) << name;
    EXPECT_EQ(opcode.ends_message, !middle && name.find("First") == name.npos) << name;
    const bool response = name.find("Response") != name.npos || name.find("Acknowledge") != name.npos;
    EXPECT_EQ(opcode.is_request, !response) << name;
  }
}

}  // namespace
}  // namespace verbena::roce

// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/packet.h"

#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace verbena::roce {
namespace {

std::vector<uint8_t> existing_opcodes() {
  std::vector<uint8_t> opcodes;
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    if (kOpcodes[opcode].exists()) opcodes.push_back(static_cast<uint8_t>(opcode));
  }
  return opcodes;
}

// A packet of `opcode` with `payload_bytes` of payload. Fields that the opcode has are drawn at random.
Headers arbitrary_headers(uint8_t opcode, size_t payload_bytes) {
  Headers h;
  h.opcode = opcode;
  h.solicited = *rc::gen::arbitrary<bool>();
  h.migrated = *rc::gen::arbitrary<bool>();
  h.pad = padding_of(static_cast<uint32_t>(payload_bytes));
  h.pkey = *rc::gen::arbitrary<uint16_t>();
  h.fecn = *rc::gen::arbitrary<bool>();
  h.becn = *rc::gen::arbitrary<bool>();
  h.destination = Qpn(*rc::gen::arbitrary<uint32_t>());
  h.ack_request = *rc::gen::arbitrary<bool>();
  h.psn = Psn(*rc::gen::arbitrary<uint32_t>());
  const OpcodeInfo& info = h.info();
  if (info.has(kXrceth)) h.xrc_srq = *rc::gen::inRange<uint32_t>(0, 1 << 24);
  if (info.has(kDeth)) {
    h.qkey = *rc::gen::arbitrary<uint32_t>();
    h.source = Qpn(*rc::gen::arbitrary<uint32_t>());
  }
  if (info.has(kFeth)) {
    h.flush_type = *rc::gen::inRange<uint8_t>(0, 16);
    h.flush_selectivity = *rc::gen::inRange<uint8_t>(0, 4);
  }
  if (info.has(kReth) || info.has(kAtomicEth)) {
    h.address = *rc::gen::arbitrary<uint64_t>();
    h.rkey = *rc::gen::arbitrary<uint32_t>();
  }
  if (info.has(kReth)) h.dma_length = *rc::gen::arbitrary<uint32_t>();
  if (info.has(kAtomicEth)) {
    h.swap_add = *rc::gen::arbitrary<uint64_t>();
    h.compare = *rc::gen::arbitrary<uint64_t>();
  }
  if (info.has(kAeth)) {
    h.syndrome = *rc::gen::arbitrary<uint8_t>();
    h.msn = *rc::gen::inRange<uint32_t>(0, 1 << 24);
  }
  if (info.has(kAtomicAckEth)) h.atomic_original = *rc::gen::arbitrary<uint64_t>();
  if (info.has(kImmediate)) h.immediate = *rc::gen::arbitrary<uint32_t>();
  if (info.has(kIeth)) h.invalidate_rkey = *rc::gen::arbitrary<uint32_t>();
  return h;
}

std::vector<std::byte> write_packet(const Headers& headers, ConstBytes payload) {
  std::vector<std::byte> bytes(kMaxHeaderBytes);
  bytes.resize(encode(headers, bytes));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.resize(bytes.size() + headers.pad + kIcrcBytes);
  return bytes;
}

void expect_same(const Headers& a, const Headers& b) {
  const auto fields = [](const Headers& h) {
    return std::tie(h.opcode, h.solicited, h.migrated, h.pad, h.header_version, h.pkey, h.fecn, h.becn,
                    h.destination, h.ack_request, h.psn, h.xrc_srq, h.qkey, h.source, h.flush_type,
                    h.flush_selectivity, h.address, h.rkey, h.dma_length, h.swap_add, h.compare, h.syndrome,
                    h.msn, h.atomic_original, h.immediate, h.invalidate_rkey);
  };
  RC_ASSERT((fields(a) == fields(b)));
}

RC_GTEST_PROP(Packet, EveryOpcodeSurvivesEncodingAndParsing, ()) {
  for (const uint8_t opcode : existing_opcodes()) {
    auto payload = *rc::gen::container<std::vector<std::byte>>(
        rc::gen::map(rc::gen::arbitrary<uint8_t>(), [](uint8_t b) { return std::byte{b}; }));
    if (!kOpcodes[opcode].carries_payload) payload.clear();
    const Headers headers = arbitrary_headers(opcode, payload.size());
    const auto bytes = write_packet(headers, payload);
    RC_ASSERT(bytes.size() == header_bytes(opcode) + payload.size() + headers.pad + kIcrcBytes);
    const auto packet = parse(bytes);
    RC_ASSERT(packet.has_value());
    expect_same(packet->headers, headers);
    RC_ASSERT(std::ranges::equal(packet->payload, payload));
  }
}

// Fields that the opcode does not have must not reach the wire.
RC_GTEST_PROP(Packet, EncodingIgnoresFieldsTheOpcodeLacks, ()) {
  for (const uint8_t opcode : existing_opcodes()) {
    const Headers clean = arbitrary_headers(opcode, 0);
    Headers dirty = clean;
    const OpcodeInfo& info = clean.info();
    if (!info.has(kXrceth)) dirty.xrc_srq = ~0u;
    if (!info.has(kDeth)) dirty.qkey = ~0u;
    if (!info.has(kReth) && !info.has(kAtomicEth)) dirty.address = ~uint64_t{0};
    if (!info.has(kAtomicEth)) dirty.compare = ~uint64_t{0};
    if (!info.has(kAeth)) dirty.syndrome = 0xff;
    if (!info.has(kImmediate)) dirty.immediate = ~0u;
    RC_ASSERT(write_packet(dirty, {}) == write_packet(clean, {}));
  }
}

// encode_plain() writes the same bytes as encode() with all headers.
RC_GTEST_PROP(PlainHeaders, AreEncodedAsAllHeadersAre, ()) {
  const PlainHeaders plain{.opcode = make_opcode(Service::kRc, Operation::kSendOnly),
                           .pad = *rc::gen::inRange<uint8_t>(0, 4),
                           .solicited = *rc::gen::arbitrary<bool>(),
                           .ack_request = *rc::gen::arbitrary<bool>(),
                           .destination = Qpn(*rc::gen::arbitrary<uint32_t>()),
                           .psn = Psn(*rc::gen::arbitrary<uint32_t>())};
  std::array<std::byte, kBthBytes> written, expected;
  encode_plain(plain, written.data());
  RC_ASSERT(encode(headers_of(plain), expected) == kBthBytes);
  RC_ASSERT(written == expected);
}

// parse_plain() either reads a packet as parse_headers() does, or leaves it to parse_headers().
RC_GTEST_PROP(PlainHeaders, AreReadAsAllHeadersAre, ()) {
  std::array<std::byte, kBthBytes> bytes;
  if (*rc::gen::arbitrary<bool>()) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(*rc::gen::arbitrary<uint8_t>());
    if (*rc::gen::arbitrary<bool>()) bytes[2] = bytes[3] = std::byte{0xff};
    if (*rc::gen::arbitrary<bool>()) bytes[4] = std::byte{0};
    if (*rc::gen::arbitrary<bool>()) bytes[1] &= std::byte{0xb0};
    bytes[0] = static_cast<std::byte>(make_opcode(Service::kRc, Operation::kSendOnly));
  } else {
    encode(arbitrary_headers(make_opcode(Service::kRc, Operation::kSendOnly), 1), bytes);
  }
  Headers all;
  const bool is_read = !parse_headers(bytes, all).has_value();
  PlainHeaders plain;
  const bool is_plain = parse_plain(bytes.data(), plain);
  if (!is_plain) {
    RC_ASSERT(!is_read || all.migrated || all.fecn || all.becn || all.pkey != kDefaultPkey ||
              bytes[4] != std::byte{0});
    return;
  }
  RC_ASSERT(is_read);
  const Headers told = headers_of(plain);
  RC_ASSERT(told.opcode == all.opcode && told.pad == all.pad && told.solicited == all.solicited);
  RC_ASSERT(told.ack_request == all.ack_request && told.psn == all.psn &&
            told.destination == all.destination);
  RC_ASSERT(told.pkey == all.pkey && told.migrated == all.migrated && told.fecn == all.fecn);
}

// parse() answers any bytes, and reads none outside them. The buffer has their exact size, so that
// AddressSanitizer would report such a read.
RC_GTEST_PROP(Packet, ParsingArbitraryBytesIsSafe, (const std::vector<uint8_t>& input)) {
  std::vector<std::byte> bytes(input.size());
  for (size_t i = 0; i < input.size(); ++i) bytes[i] = std::byte{input[i]};
  bytes.shrink_to_fit();
  if (const auto packet = parse(bytes)) {
    RC_ASSERT(packet->payload.data() >= bytes.data());
    RC_ASSERT(packet->payload.data() + packet->payload.size() + packet->headers.pad + kIcrcBytes ==
              bytes.data() + bytes.size());
  }
}

TEST(Packet, EveryLengthOfEveryOpcodeIsParsedOrRefused) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    for (size_t size = 0; size < 80; ++size) {
      std::vector<std::byte> bytes(size);
      if (size > 0) bytes[0] = static_cast<std::byte>(opcode);
      const auto packet = parse(bytes);
      const OpcodeInfo& info = kOpcodes[opcode];
      const size_t headers = info.exists() ? header_bytes(static_cast<uint8_t>(opcode)) : 0;
      SCOPED_TRACE(testing::Message() << "opcode " << opcode << " size " << size);
      if (size < kBthBytes + kIcrcBytes) {
        ASSERT_EQ(packet.error(), ParseError::kTruncated);
      } else if (!info.exists()) {
        ASSERT_EQ(packet.error(), ParseError::kUnknownOpcode);
      } else if (size < headers + kIcrcBytes) {
        ASSERT_EQ(packet.error(), ParseError::kTruncated);
      } else if (!info.carries_payload && size > headers + kIcrcBytes) {
        ASSERT_EQ(packet.error(), ParseError::kUnexpectedPayload);
      } else if (size % 4 != 0) {
        ASSERT_EQ(packet.error(), ParseError::kBadPadding);
      } else {
        ASSERT_TRUE(packet.has_value());
        ASSERT_EQ(packet->payload.size(), size - headers - kIcrcBytes);
      }
    }
  }
}

std::vector<std::byte> send_only(size_t payload_bytes, uint8_t second_byte) {
  std::vector<std::byte> bytes(kBthBytes + payload_bytes + kIcrcBytes);
  bytes[0] = static_cast<std::byte>(make_opcode(Service::kRc, Operation::kSendOnly));
  bytes[1] = static_cast<std::byte>(second_byte);
  return bytes;
}

TEST(Packet, PaddingMustFit) {
  EXPECT_EQ(parse(send_only(0, 0x10)).error(), ParseError::kBadPadding);
  EXPECT_EQ(parse(send_only(6, 0x20)).error(), ParseError::kBadPadding) << "6 bytes are no whole words";
  EXPECT_EQ(parse(send_only(8, 0x30))->payload.size(), 5u);
  EXPECT_EQ(parse(send_only(4, 0x30))->payload.size(), 1u);
  EXPECT_EQ(parse(send_only(0, 0x00))->payload.size(), 0u);
}

TEST(Packet, AcknowledgesHaveNoPadding) {
  std::vector<std::byte> bytes(kBthBytes + kAethBytes + kIcrcBytes);
  bytes[0] = static_cast<std::byte>(make_opcode(Service::kRc, Operation::kAcknowledge));
  ASSERT_TRUE(parse(bytes).has_value());
  bytes[1] = std::byte{0x10};
  EXPECT_EQ(parse(bytes).error(), ParseError::kBadPadding);
}

TEST(Packet, HeaderVersionMustBeZero) {
  for (uint8_t version = 1; version < 16; ++version) {
    EXPECT_EQ(parse(send_only(4, version)).error(), ParseError::kBadVersion);
  }
}

// IBTA volume 1, 9.2: reserved bits are ignored on receipt.
TEST(Packet, ReservedBitsAreIgnored) {
  auto bytes = send_only(4, 0);
  bytes[4] = std::byte{0x3f};
  bytes[8] = std::byte{0x7f};
  const auto packet = parse(bytes);
  ASSERT_TRUE(packet.has_value());
  EXPECT_FALSE(packet->headers.fecn || packet->headers.becn || packet->headers.ack_request);
  EXPECT_EQ(packet->headers.psn, Psn(0));
}

// A packet written by hand, with each field where the specification puts it.
TEST(Packet, AtomicRequestOverXrcByteForByte) {
  Headers h;
  h.opcode = make_opcode(Service::kXrc, Operation::kCompareSwap);
  h.solicited = true;
  h.migrated = true;
  h.pkey = 0x8001;
  h.fecn = true;
  h.destination = Qpn(0x123456);
  h.ack_request = true;
  h.psn = Psn(0xabcdef);
  h.xrc_srq = 0x0a0b0c;
  h.address = 0x1122334455667788;
  h.rkey = 0x99aabbcc;
  h.swap_add = 0x0102030405060708;
  h.compare = 0xf1f2f3f4f5f6f7f8;
  std::vector<std::byte> encoded(kMaxHeaderBytes);
  encoded.resize(encode(h, encoded));
  const std::array<uint8_t, 44> expected{
      0xb3, 0xc0, 0x80, 0x01, 0x80, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef,  // BTH
      0x00, 0x0a, 0x0b, 0x0c,                                                  // XRCETH
      0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc,  // AtomicETH
      0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8};
  EXPECT_TRUE(std::ranges::equal(encoded, std::as_bytes(std::span(expected))));
}

TEST(Packet, FlushByteForByte) {
  Headers h;
  h.opcode = make_opcode(Service::kRc, Operation::kFlush);
  h.flush_type = 2;         // persistence
  h.flush_selectivity = 1;  // memory region
  h.address = 0x10;
  h.rkey = 0x20;
  h.dma_length = 0x30;
  std::vector<std::byte> encoded(kMaxHeaderBytes);
  encoded.resize(encode(h, encoded));
  const std::array<uint8_t, 32> expected{0x1c, 0, 0xff, 0xff, 0, 0, 0, 0,    0, 0, 0, 0,  // BTH
                                         0,    0, 0,    0x12,                             // FETH
                                         0,    0, 0,    0,    0, 0, 0, 0x10,              // RETH
                                         0,    0, 0,    0x20, 0, 0, 0, 0x30};
  EXPECT_TRUE(std::ranges::equal(encoded, std::as_bytes(std::span(expected))));
}

}  // namespace
}  // namespace verbena::roce

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "adapter/memory/guarded.h"
#include "observe/capture/ring_file.h"
#include "observe/capture/ring_reader.h"
#include "observe/capture/ring_writer.h"

namespace verbena::capture {

// A fixture with a capture ring, its writer and its reader.
class RingTest : public testing::Test {
 protected:
  explicit RingTest(uint32_t snap_bytes = roce::kMaxPathMtu)
      : file(make_ring_file(snap_bytes)),
        mapping(RingMapping::map(file ? file->get() : -1)),
        snap(snap_bytes) {
    memory::install_fault_guard();
    path.source = roce::Address::from_ipv4(kSource);
    path.destination = roce::Address::from_ipv4(kDestination);
  }
  void SetUp() override {
    ASSERT_TRUE(file);
    ASSERT_TRUE(mapping);
    writer = std::make_unique<RingWriter>(ring());
    reader = std::make_unique<RingReader>(ring(), snap);
  }
  RingMemory& ring() { return mapping->memory(); }

  // Writes a packet, or a super-packet of `count`, with a payload of counting bytes.
  void put(roce::Operation operation, uint32_t bytes, uint32_t count = 1, int64_t time = 1) {
    payload.resize(bytes);
    for (uint32_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>(i * 7 + i / 256);
    headers.opcode = roce::make_opcode(roce::Service::kRc, operation);
    headers.pad = roce::padding_of(bytes);
    const ConstBytes piece = payload;
    writer->put({.time = TimePoint(Duration(time)),
                 .path = path,
                 .headers = headers,
                 .payload = {&piece, 1},
                 .payload_bytes = bytes,
                 .count = count});
  }

  static constexpr uint8_t kSource[] = {192, 0, 2, 1};
  static constexpr uint8_t kDestination[] = {192, 0, 2, 2};

  Result<UniqueFd> file;
  Result<RingMapping> mapping;
  const uint32_t snap;
  std::unique_ptr<RingWriter> writer;
  std::unique_ptr<RingReader> reader;
  roce::Path path;
  roce::Headers headers;
  std::vector<std::byte> payload;
};

}  // namespace verbena::capture

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "adapter/transport/packet_io.h"
#include "adapter/transport/route.h"
#include "base/result.h"
#include "base/time.h"
#include "observe/capture/ring_file.h"
#include "observe/capture/ring_writer.h"

namespace verbena::engine {

// While `verbena capture` runs, writes the packets that a shard sends by shared memory to the ring of the
// capture. The process that reads the ring cannot delay the shard or change what it does: if the ring is
// full, packets are not recorded. For the shard's lock holder.
class CaptureTap {
 public:
  // Maps the ring file of a capture. Errors: EPROTO: the file is no such ring.
  static Result<std::unique_ptr<CaptureTap>> open(int ring);

  void sent(const transport::OutgoingPacket& packet, TimePoint time);
  // have_read(), have_written() and have_changed() record a direct access to the peer's memory as the packets
  // that it replaces: request and response. `asked` and `answered` are the times of the two. The packets
  // carry the next PSN, which a direct access does not use up: the next real packet has the same PSN.
  void have_read(const transport::PeerRange& range, uint32_t offset, uint32_t bytes,
                 std::span<const ConstBytes> to, TimePoint asked, TimePoint answered);
  void have_written(const transport::PeerRange& range, uint32_t offset, uint32_t bytes,
                    std::span<const ConstBytes> from, TimePoint asked, TimePoint answered);
  void have_changed(const transport::PeerRange& range, const transport::AtomicChange& change, uint64_t before,
                    TimePoint asked, TimePoint answered);

 private:
  explicit CaptureTap(capture::RingMapping ring) : ring_(std::move(ring)), writer_(ring_.memory()) {}

  // The packets of one message. As many as fit share a record.
  struct Message {
    TimePoint time;
    const roce::Path& path;
    roce::Headers headers;
    roce::Qpn source;
    uint8_t flags;
    roce::Operation only, first, middle, last;
  };
  // Writes a record of one packet without payload.
  void put(TimePoint time, const roce::Path& path, const roce::Headers& headers, roce::Qpn source,
           uint8_t flags);
  void put(Message& message, std::span<const ConstBytes> payload, uint32_t bytes, uint32_t mtu);

  capture::RingMapping ring_;
  capture::RingWriter writer_;
};

}  // namespace verbena::engine

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

// Where a shard puts what it sends by memory while `verbena capture` looks. Who reads it can neither hold
// the shard up nor make it do anything: what finds no room is left out. For the shard's lock holder.
class CaptureTap {
 public:
  // EPROTO: the file is no ring.
  static Result<std::unique_ptr<CaptureTap>> open(int ring);

  void sent(const transport::OutgoingPacket& packet, TimePoint time);
  // What we did in the peer's memory by ourselves, as the packets that it stands for: the request and the
  // answer. They have the PSN that is next in turn, and take none.
  void have_read(const transport::PeerRange& range, uint32_t offset, uint32_t bytes,
                 std::span<const ConstBytes> to, TimePoint asked, TimePoint answered);
  void have_written(const transport::PeerRange& range, uint32_t offset, uint32_t bytes,
                    std::span<const ConstBytes> from, TimePoint asked, TimePoint answered);
  void have_changed(const transport::PeerRange& range, const transport::AtomicChange& change, uint64_t before,
                    TimePoint asked, TimePoint answered);

 private:
  explicit CaptureTap(capture::RingMapping ring) : ring_(std::move(ring)), writer_(ring_.memory()) {}

  // Packets of one message, joined as far as a record has room for them.
  struct Message {
    TimePoint time;
    const roce::Path& path;
    roce::Headers headers;
    roce::Qpn source;
    uint8_t flags;
    roce::Operation only, first, middle, last;
  };
  // One without payload.
  void put(TimePoint time, const roce::Path& path, const roce::Headers& headers, roce::Qpn source,
           uint8_t flags);
  void put(Message& message, std::span<const ConstBytes> payload, uint32_t bytes, uint32_t mtu);

  capture::RingMapping ring_;
  capture::RingWriter writer_;
};

}  // namespace verbena::engine

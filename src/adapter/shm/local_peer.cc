// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/local_peer.h"

#include <algorithm>
#include <utility>

#include <infiniband/verbs.h>
#include <sys/prctl.h>

#include "adapter/shm/capture_tap.h"

namespace verbena::engine {

using transport::SendStatus;

namespace {

shm::AccessRequest request_for(const transport::PeerRange& range, memory::Access wanted) {
  return {.qpn = range.connection->to.value(),
          .from = range.connection->from.value(),
          .first_psn = range.connection->first_psn.value(),
          .rkey = range.rkey,
          .address = range.address,
          .bytes = range.length,
          .wanted = wanted};
}

}  // namespace

LocalPeer::LocalPeer(uint32_t slot, net::PortCounters& counters)
    : slot_(slot),
      counters_(counters),
      route_{.traits = kLocalTraits, .sink = this, .direct = this, .port = LocalWays::kFirst + slot} {}

void LocalPeer::set_line(Side side, std::unique_ptr<LocalLine> line) {
  lines_[side] = std::move(line);
  lines_changed();
}

// Not to another while the one is open: what went by one must not be overtaken by the other.
void LocalPeer::lines_changed() {
  const auto is_open = [](const auto& line) { return line != nullptr && line->is_open(); };
  const auto is_used = [this](const auto& line) { return line.get() == sends_by_; };
  if (std::ranges::any_of(lines_, [&](const auto& line) { return is_used(line) && is_open(line); })) return;
  const auto found = std::ranges::find_if(lines_, is_open);
  sends_by_ = found != lines_.end() ? found->get() : nullptr;
}

void LocalPeer::abandon() {
  for (const auto& line : lines_) {
    if (line != nullptr) line->abandon();
  }
  put_off.abandon();
  tap_ = nullptr;
}

SendStatus LocalPeer::put(const transport::OutgoingPacket& packet) {
  if (sends_by_ == nullptr) return SendStatus::kSent;
  const SendStatus status = sends_by_->writer().send(packet);
  if (status != SendStatus::kSent) return note_unsent(status);
  note_sent(packet.count + (packet.acknowledgement != nullptr ? 1 : 0), packet.payload_bytes);
  return status;
}

inline void LocalPeer::note_sent(uint32_t packets, uint32_t bytes) {
  counters_.sent_packets += packets;
  counters_.sent_bytes += bytes;
  if (bytes >= StreamWays::kLong) [[unlikely]]
    follow_stream(bytes);
  if (!staged_hook.is_linked()) staged_in->push_back(*this);
}

SendStatus LocalPeer::note_unsent(SendStatus status) {
  if (!sends_by_->writer().lane().is_broken()) return status;
  sends_by_->lose();
  return SendStatus::kSent;
}

SendStatus LocalPeer::send_plain(const roce::Path& path, const transport::PlainSend& message) {
  if (tap_ != nullptr || sends_by_ == nullptr) [[unlikely]]
    return PacketSink::send_plain(path, message);
  const SendStatus status = sends_by_->writer().send_plain(path, message);
  if (status != SendStatus::kSent) [[unlikely]]
    return note_unsent(status);
  note_sent(message.count + (message.acknowledgement != nullptr ? 1 : 0),
            static_cast<uint32_t>(message.payload.size()));
  return status;
}

SendStatus LocalPeer::send(const transport::OutgoingPacket& packet) {
  if (tap_ == nullptr) [[likely]]
    return put(packet);
  return put_and_capture(packet);
}

uint32_t LocalPeer::put_so_far() const {
  return sends_by_ != nullptr ? sends_by_->writer().lane().put_so_far() : 0;
}

// What went to a process that is gone lies nowhere.
bool LocalPeer::is_taken(uint32_t so_far) const {
  return sends_by_ == nullptr || sends_by_->writer().lane().is_given_back(so_far);
}

// The time is taken first: the other may answer before we have noted what we sent.
SendStatus LocalPeer::put_and_capture(const transport::OutgoingPacket& packet) {
  const TimePoint time = MonotonicClock::now();
  const bool leaves = is_open();
  const SendStatus status = put(packet);
  if (status != SendStatus::kSent || !leaves) return status;
  if (packet.acknowledgement != nullptr) {
    tap_->sent({packet.path, headers_of(*packet.acknowledgement, packet.headers.destination), {}, 0}, time);
  }
  if (packet.messages.empty()) {
    tap_->sent(packet, time);
    return status;
  }
  for (size_t i = 0; i < packet.messages.size(); ++i) {
    const roce::Headers headers = transport::headers_of_message(packet.headers, packet.messages, i);
    tap_->sent({packet.path, headers, packet.payload.subspan(i, 1), packet.messages[i]}, time);
  }
  return status;
}

void LocalPeer::send_copy(const transport::OutgoingPacket& packet) {
  if (sends_by_ == nullptr) return;
  if (sends_by_->writer().send(packet) == SendStatus::kSent) {
    if (!staged_hook.is_linked()) staged_in->push_back(*this);
  } else if (sends_by_->writer().lane().is_broken()) {
    sends_by_->lose();
  }
}

// A lane through which nothing much goes uses little of its ring, whatever is faster (WideRings).
void LocalPeer::follow_stream(uint32_t bytes) {
  constexpr uint64_t kLook = 256 * 1024;
  streamed_ += bytes;
  if (streamed_ - stream_looked_at_ < kLook) return;
  stream_looked_at_ = streamed_;
  shm::LaneWriter& lane = sends_by_->writer().lane();
  if (!lane.is_wide()) return;
  const auto way = stream_ways_.follow(streamed_, MonotonicClock::now(), may_lend());
  if (way == StreamWays::Way::kWideRing) WideRings::use_ring(lane, shm::RingWidth::kWide);
  if (way == StreamWays::Way::kWidestRing) WideRings::use_ring(lane, shm::RingWidth::kWidest);
}

// A capture sees what goes through the ring. A process of another user does not learn where our memory lies,
// whatever its lane says.
bool LocalPeer::may_lend() const {
  return sends_by_ != nullptr && tap_ == nullptr && sends_by_->is_shown() &&
         sends_by_->writer().lane().may_lend();
}

bool LocalPeer::lends() const {
  return stream_ways_.way() == StreamWays::Way::kLent && may_lend();
}

// Mapped memory is to be looked after.
void LocalPeer::used(const PeerMemory& memory) {
  if (memory.has_mappings() == has_mappings_) [[likely]]
    return;
  has_mappings_ = memory.has_mappings();
  if (has_mappings_ && on_mapping) on_mapping();
}

// The kernel has said whose the peer is before anything else was found out. An undumpable process tells its
// user's other processes nothing.
bool LocalPeer::is_of_our_user() const {
  using protocol::QpWay;
  if (::prctl(PR_GET_DUMPABLE) != 1) return false;
  const QpWay now = way();
  return now == QpWay::kAllReached || now == QpWay::kOnlyShared || now == QpWay::kForbidden;
}

bool LocalPeer::is_best_for(const Run& run) {
  PeerMemory* const theirs = memory();
  if (theirs == nullptr) return false;
  const bool best = theirs->is_best_for(run);
  used(*theirs);
  return best;
}

bool LocalPeer::read(const transport::PeerRange& range, uint32_t offset, uint32_t bytes,
                     std::span<const ConstBytes> to) {
  PeerMemory* const theirs = memory();
  if (theirs == nullptr) return false;
  const TimePoint asked = tap_ == nullptr ? TimePoint() : MonotonicClock::now();
  const bool done = theirs->read(request_for(range, IBV_ACCESS_REMOTE_READ), offset, bytes, to);
  if (done) counters_.received_bytes += bytes;
  if (done && tap_ != nullptr) [[unlikely]]
    tap_->have_read(range, offset, bytes, to, asked, MonotonicClock::now());
  used(*theirs);
  return done;
}

bool LocalPeer::write(const transport::PeerRange& range, uint32_t offset, uint32_t bytes,
                      std::span<const ConstBytes> from) {
  PeerMemory* const theirs = memory();
  if (theirs == nullptr) return false;
  const TimePoint asked = tap_ == nullptr ? TimePoint() : MonotonicClock::now();
  const bool done = theirs->write(request_for(range, IBV_ACCESS_REMOTE_WRITE), offset, bytes, from);
  if (done) counters_.sent_bytes += bytes;
  if (done && tap_ != nullptr) [[unlikely]]
    tap_->have_written(range, offset, bytes, from, asked, MonotonicClock::now());
  used(*theirs);
  return done;
}

std::optional<uint64_t> LocalPeer::change(const transport::PeerRange& range,
                                          const transport::AtomicChange& change) {
  PeerMemory* const theirs = memory();
  if (theirs == nullptr) return std::nullopt;
  const TimePoint asked = tap_ == nullptr ? TimePoint() : MonotonicClock::now();
  const auto before = theirs->change(request_for(range, IBV_ACCESS_REMOTE_ATOMIC), change);
  if (before && tap_ != nullptr) [[unlikely]]
    tap_->have_changed(range, change, *before, asked, MonotonicClock::now());
  used(*theirs);
  return before;
}

bool LocalPeer::push() {
  if (sends_by_ == nullptr) return true;
  const bool all_out = sends_by_->writer().flush();
  if (sends_by_->writer().lane().must_ring()) sends_by_->ring();
  return all_out;
}

bool LocalPeer::has_room() {
  return sends_by_ == nullptr || sends_by_->writer().has_room();
}

bool LocalPeer::wait_for_room() {
  if (sends_by_ == nullptr) return false;
  sends_by_->expect_ring();
  return sends_by_->writer().wait_for_room();
}

}  // namespace verbena::engine

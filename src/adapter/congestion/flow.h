// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "adapter/congestion/algorithm.h"
#include "adapter/congestion/pacer.h"
#include "adapter/congestion/packet_trains.h"
#include "adapter/congestion/rtt_estimator.h"
#include "wire/roce/psn.h"

namespace verbena::congestion {

// The packets in flight of one requester, or of one UC or UD flow, as seen by congestion control. Remembers
// when packets left, turns their acknowledgements into samples, and passes these to an Algorithm. Bytes are
// as charged in flight (with Traits::charge_per_packet).
//
// For the shard's lock holder.
class Flow {
 public:
  // Returns nullptr if memory has run out.
  static std::unique_ptr<Flow> make(Kind kind, const Sizes& sizes) noexcept;
  Flow(Kind kind, const Sizes& sizes);
  // Starts another algorithm, if `kind` differs from the present one. The RTT estimate and the packet trains
  // are kept. If memory has run out, the old algorithm goes on.
  void use(Kind kind) noexcept;

  // ---- sending

  // Notes that packets have left: new ones, or, with `repeated`, packets that are sent again in sequence
  // after starts_over(). `in_flight` is the number of bytes in flight before them.
  void sent(roce::Psn first, uint32_t packets, uint32_t bytes, bool repeated, uint64_t in_flight,
            TimePoint now);
  // Notes that packets were retransmitted out of sequence. They count for the pacing only.
  void repaired(uint32_t bytes, TimePoint now) { pacer_.sent(bytes, now); }
  // Ends the current train: packets sent from now on leave at another time.
  void end_run() { run_is_open_ = false; }
  // Call when the sender has run out of data, though the window has room: the next samples are
  // application-limited.
  void ran_dry(uint64_t in_flight) { limited_until_ = delivered_ + in_flight + 1; }
  // Forgets the packets from `from` on: the sender goes back and sends them again in sequence.
  void starts_over(roce::Psn from);
  // Whether the pacing allows a packet now.
  bool may_send(TimePoint now) const { return pacer_.allows(now); }
  // Whether the pacing would still allow a packet now if `bytes` more bytes had left.
  bool may_send_after(uint32_t bytes, TimePoint now) const { return pacer_.allows_after(bytes, now); }
  // Like may_send_after(), but always true for a packet train that is longer than the pacer's burst.
  bool may_send_after_run(uint32_t bytes, TimePoint now) const { return pacer_.allows_after_run(bytes, now); }
  // When to send again, after may_send() was false.
  TimePoint may_send_at() const { return pacer_.next(); }

  // ---- acknowledgements

  // `bytes` more bytes are known to have arrived.
  void arrived(uint64_t bytes) { delivered_ += bytes; }
  // Takes an RTT sample from packets [first, limit), which have arrived and were sent only once. REQUIRES:
  // first is before limit
  void took_time(roce::Psn first, roce::Psn limit);
  // Ends the handling of an acknowledgement: makes a sample of the arrived() and took_time() calls since the
  // last answered(), and gives it to the algorithm.
  void answered(uint64_t in_flight, TimePoint now);
  // Forgets the packet trains that end at or before `limit`. Call when all packets before `limit` are
  // acknowledged.
  void settled(roce::Psn limit) { trains_.drop_before(limit); }
  // Pass events on to the algorithm: a loss, a retransmission timeout, a CNP, a receiver's report on its
  // senders.
  void lost(uint64_t bytes);
  void timed_out();
  void marked();
  void told(const Incast& incast);

  // ---- results

  uint64_t window() const { return allowance_.window; }
  uint64_t rate() const { return allowance_.rate; }
  const RttEstimator& round_trip() const { return round_trip_; }
  // Send time of the latest packet that was sent only once and has arrived.
  TimePoint latest_sent() const { return delivered_sent_; }
  // Send time of the train with this packet; kNever if it is no longer known.
  TimePoint sent_at(roce::Psn psn) const {
    const PacketTrain* run = trains_.find(psn);
    return run != nullptr ? run->sent : kNever;
  }

 private:
  void obey();

  const Sizes sizes_;
  Kind kind_;
  std::unique_ptr<Algorithm> algorithm_;
  Allowance allowance_;
  Pacer pacer_;
  RttEstimator round_trip_;
  PacketTrains trains_;
  bool run_is_open_ = false;
  uint64_t delivered_ = 0;
  uint64_t answered_ = 0;  // part of delivered_ that the algorithm has seen
  // took_time() calls since the last answered().
  struct Timed {
    uint64_t packets = 0;
    std::optional<roce::Psn> latest;  // in PSN order
    TimePoint first_sent{};           // send time of the first train counted
    Duration after{0};                // sum of the packets' send times after first_sent
    TimePoint sent_on_average() const { return first_sent + after / static_cast<int64_t>(packets); }
  };
  Timed timed_;
  TimePoint delivered_at_{};    // when the latest bytes arrived
  TimePoint delivered_sent_{};  // latest send time of bytes that have arrived
  uint64_t limited_until_ = 0;  // samples of packets sent before `delivered_` reaches this are
                                // application-limited
};

}  // namespace verbena::congestion

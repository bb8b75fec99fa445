// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "adapter/congestion/algorithm.h"
#include "adapter/congestion/kind.h"
#include "adapter/congestion/pacer.h"
#include "adapter/congestion/packet_trains.h"
#include "adapter/congestion/rtt_estimator.h"
#include "wire/roce/psn.h"

namespace verbena::congestion {

// What one requester has in flight, as congestion control sees it: remembers when packets left, makes samples
// of their acknowledgements and tells an Algorithm of them. Bytes are what packets cost in flight.
//
// For the shard's lock holder, as the requester itself.
class Flow {
 public:
  // nullptr: there is no memory for it.
  static std::unique_ptr<Flow> make(Kind kind, const Sizes& sizes) noexcept;
  Flow(Kind kind, const Sizes& sizes);
  // From now on another algorithm decides, if it is another; what is known of the path stays.
  void use(Kind kind) noexcept;

  // ---- what leaves

  // Packets that were not sent before, or that are sent again one behind the other after starts_over().
  // `in_flight`: before them.
  void sent(roce::Psn first, uint32_t packets, uint32_t bytes, bool repeated, uint64_t in_flight,
            TimePoint now);
  // Packets sent again out of their row.
  void repaired(uint32_t bytes, TimePoint now) { pacer_.sent(bytes, now); }
  // What is sent next leaves at another time.
  void end_run() { run_is_open_ = false; }
  // There is nothing to send, though more might be in flight.
  void ran_dry(uint64_t in_flight) { limited_until_ = delivered_ + in_flight + 1; }
  void starts_over(roce::Psn from);
  bool may_send(TimePoint now) const { return pacer_.allows(now); }
  // The same when another packet of so many bytes has left.
  bool may_send_after(uint32_t bytes, TimePoint now) const { return pacer_.allows_after(bytes, now); }
  // The same, where so many bytes leave together at this pace.
  bool may_send_after_run(uint32_t bytes, TimePoint now) const { return pacer_.allows_after_run(bytes, now); }
  TimePoint may_send_at() const { return pacer_.next(); }

  // ---- what arrives

  void arrived(uint64_t bytes) { delivered_ += bytes; }
  // These packets have, and were sent once: they show how long it takes. REQUIRES: first is before limit
  void took_time(roce::Psn first, roce::Psn limit);
  // The peer has told what these were told of since the last such call.
  void answered(uint64_t in_flight, TimePoint now);
  // Everything before is done with.
  void settled(roce::Psn limit) { trains_.drop_before(limit); }
  void lost(uint64_t bytes);
  void timed_out();
  void marked();
  void told(const Incast& incast);

  // ---- what is known

  uint64_t window() const { return allowance_.window; }
  uint64_t rate() const { return allowance_.rate; }
  const RttEstimator& round_trip() const { return round_trip_; }
  // When what has arrived last of all that was sent once had left.
  TimePoint latest_sent() const { return delivered_sent_; }
  // When the packet left for the first time; kNever if that is not known any more.
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
  uint64_t answered_ = 0;  // of these, the algorithm has been told of
  // What took_time() was told of since then.
  struct Timed {
    uint64_t packets = 0;
    std::optional<roce::Psn> latest;  // in PSN order
    TimePoint first_sent{};           // of those that it was told of first,
    Duration after{0};                // and in all so much after that
    TimePoint sent_on_average() const { return first_sent + after / static_cast<int64_t>(packets); }
  };
  Timed timed_;
  TimePoint delivered_at_{};    // the latest of them
  TimePoint delivered_sent_{};  // when those left
  uint64_t limited_until_ = 0;  // what is sent before so many bytes have arrived tells no rate
};

}  // namespace verbena::congestion

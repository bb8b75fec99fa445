// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/raw_forward.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/format.h"
#include "commands/perf/clock.h"
#include "commands/perf/completions.h"
#include "commands/perf/patience.h"
#include "commands/perf/phases.h"
#include "commands/perf/raw_frame.h"

namespace verbena::perf {
namespace {

class ForwardRun {
 public:
  ForwardRun(Endpoint& endpoint, const Parameters& parameters)
      : endpoint_(endpoint),
        parameters_(parameters),
        phases_(parameters.duration, parameters.margin),
        total_(parameters.iterations * endpoint.count()),
        received_(endpoint.count()) {}

  BandwidthTimes run() {
    while (parameters_.is_timed() ? !phases_.is_over() : sent_ < total_) {
      const std::size_t received = take_receives();
      if (received + take_sends() != 0 || !has_begun_ || parameters_.is_timed()) continue;
      if (patience_.is_over(sent_)) {
        throw std::runtime_error(verbena::format("no frame has come for {} seconds: {} of {} have",
                                                 Patience::kLimit.count(), sent_, total_));
      }
    }
    times_.ended = ticks();
    times_.messages = parameters_.is_timed() ? counted_ : sent_;
    if (parameters_.is_timed()) {
      times_.began = phases_.began();
      times_.ended = phases_.ended();
    }
    return std::move(times_);
  }

 private:
  // A queue pair's receives complete in their order, so a number says where its frame lies.
  std::size_t take_receives() {
    return take_completions<kBatch>(endpoint_.receives(), [&](const verbena::completion& one) {
      begin();
      const std::size_t index = one.id();
      const std::uint64_t place = received_[index]++ % parameters_.receive_depth;
      const std::uint64_t step = endpoint_.layout().step(parameters_.size);
      const verbena::slice frame = endpoint_.receive_buffer(index).part(place * step, one.bytes());
      constexpr std::size_t kAddress = sizeof(MacAddress);
      std::swap_ranges(frame.data(), frame.data() + kAddress, frame.data() + kAddress);
      endpoint_.pair(index).post(verbena::send(frame).signaled(index)).value();
    });
  }

  // Sends complete in their order, too: the place of the oldest is free again.
  std::size_t take_sends() {
    return take_completions<kBatch>(endpoint_.sends(), [&](const verbena::completion& one) {
      endpoint_.post_receives_of(one.id());
      ++sent_;
      if (phases_.counts()) ++counted_;
    });
  }

  void begin() {
    if (std::exchange(has_begun_, true)) return;
    times_.began = ticks();
    phases_.start();
  }

  Endpoint& endpoint_;
  const Parameters& parameters_;
  Phases phases_;
  const std::uint64_t total_;
  std::vector<std::uint64_t> received_;  // frames of each queue pair
  std::uint64_t sent_ = 0;
  std::uint64_t counted_ = 0;  // frames of the part of a duration that counts
  bool has_begun_ = false;
  Patience patience_;
  BandwidthTimes times_;
};

}  // namespace

BandwidthTimes forward_frames(Endpoint& endpoint, const Parameters& parameters) {
  return ForwardRun(endpoint, parameters).run();
}

}  // namespace verbena::perf

// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/bandwidth.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/format.h"
#include "commands/perf/clock.h"
#include "commands/perf/completions.h"
#include "commands/perf/patience.h"
#include "commands/perf/phases.h"
#include "commands/perf/rate_limit.h"
#include "commands/perf/requests.h"

namespace verbena::perf {
namespace {

// `Make` returns the request with a number of a queue pair.
template <class Make>
class BandwidthRun {
 public:
  BandwidthRun(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size, Make make,
               const std::function<void(const BandwidthTimes&)>& show)
      : endpoint_(endpoint),
        parameters_(parameters),
        make_(std::move(make)),
        show_(show),
        phases_(parameters.duration, parameters.margin),
        limit_(parameters, size),
        total_(parameters.is_timed() ? 0 : parameters.iterations * parameters.queue_pairs),
        sends_(parameters.queue_pairs),
        receives_(parameters.queue_pairs) {
    for (Received& each : receives_) each.posted = parameters.receives_of_pair();
    if (parameters.has_peak) {
      times_.posted.resize(total_);
      times_.completed.resize(total_);
    }
  }

  BandwidthTimes run() {
    const bool sends = parameters_.sends(), receives = parameters_.receives();
    // The end that does not initiate begins with the first message that it receives.
    if (parameters_.initiates() || !receives) begin();
    while (sends ? wants_sends() || (receives && wants_receives()) : wants_receives()) {
      bool is_busy = false;
      if (sends && has_begun_) is_busy = post();
      if (receives) is_busy |= take_receives();
      if (sends) is_busy |= take_sends();
      if (!is_busy && !wait(receives)) break;
    }
    finish();
    return std::move(times_);
  }

 private:
  struct Sent {
    std::uint64_t posted = 0;
    std::uint64_t completed = 0;
  };
  struct Received {
    std::uint64_t posted = 0;
    std::uint64_t used = 0;  // since the last list
  };

  bool wants(std::uint64_t count) { return parameters_.is_timed() ? !is_over() : count < total_; }
  bool wants_sends() { return wants(completed_); }
  bool wants_receives() { return wants(received_); }
  // Whether the duration is over. With --run_infinitely, the next one begins then.
  bool is_over() {
    if (!phases_.is_over()) return false;
    if (!parameters_.is_endless()) return true;
    finish();
    show_(times_);
    counted_ = 0;
    phases_.restart();
    return false;
  }

  void begin() {
    if (has_begun_) return;
    has_begun_ = true;
    times_.began = ticks();
    phases_.start();
  }

  void finish() {
    times_.ended = ticks();
    if (parameters_.is_timed()) {
      times_.began = phases_.began();
      times_.ended = phases_.ended();
      times_.messages = counted_;
    } else {
      // The end of a one-sided test that does nothing counts all.
      times_.messages = parameters_.sends() ? completed_ : parameters_.receives() ? received_ : total_;
    }
  }

  // Posts what the queues take. Returns whether it has posted anything.
  bool post() {
    const std::uint64_t before = posted_;
    const std::uint32_t list = parameters_.list_length;
    for (std::size_t i = 0; i < sends_.size(); ++i) {
      Sent& pair = sends_[i];
      if (!limit_.may_send()) continue;
      while (wants_more(pair) && pair.posted - pair.completed + list <= parameters_.send_depth &&
             limit_.may_send()) {
        if (parameters_.has_peak) times_.posted[posted_] = ticks();
        if (list == 1) {
          endpoint_.pair(i).post(request(i, pair.posted)).value();
        } else {
          post_list(i, pair.posted);
        }
        pair.posted += list;
        posted_ += list;
        limit_.count(list);
      }
    }
    return posted_ != before;
  }
  bool wants_more(const Sent& pair) const {
    return parameters_.is_timed() ? !phases_.is_over() : pair.posted < parameters_.iterations;
  }
  auto request(std::size_t index, std::uint64_t number) const {
    const auto made = make_(index, number).numbered(index);
    const bool is_last = !parameters_.is_timed() && number + 1 == parameters_.iterations;
    return number % parameters_.moderation == parameters_.moderation - 1 || is_last ? made.signaled(index)
                                                                                    : made;
  }
  void post_list(std::size_t index, std::uint64_t number) {
    list_.clear();
    for (std::uint32_t k = 0; k < parameters_.list_length; ++k) list_.push_back(request(index, number + k));
    endpoint_.pair(index).post_all(std::span(list_)).value();
  }

  bool take_sends() {
    return take_completions<kBatch>(endpoint_.sends(), [&](const verbena::completion& one) {
             Sent& pair = sends_[one.id()];
             const std::uint64_t count =
                 std::min<std::uint64_t>(parameters_.moderation, pair.posted - pair.completed);
             pair.completed += count;
             completed_ += count;
             if (parameters_.has_peak) times_.completed[completed_ - 1] = ticks();
             if (parameters_.is_timed() && phases_.counts()) counted_ += count;
           }) != 0;
  }

  bool take_receives() {
    return take_completions<kBatch>(endpoint_.receives(), [&](const verbena::completion& one) {
             begin();
             ++received_;
             if (parameters_.is_timed() && phases_.counts()) ++counted_;
             if (parameters_.verifies) endpoint_.verify_receive(one.id());
             Received& pair = receives_[one.id()];
             const std::uint32_t list = parameters_.receive_list_length;
             if (++pair.used < list) return;
             if (!parameters_.is_timed() && pair.posted + list > parameters_.iterations) return;
             endpoint_.post_receives_of(one.id());
             pair.posted += list;
             pair.used = 0;
           }) != 0;
  }

  // Nothing has happened: sleeps if the program should. Returns false if nothing has come for too long, as
  // happens to UC and UD when messages were lost.
  bool wait(bool receives) {
    if (parameters_.sleeps) {
      if (std::exchange(is_armed_, !is_armed_)) {
        endpoint_.channel().wait().value();
      } else {
        endpoint_.sends().arm().value();
        if (receives) endpoint_.receives().arm().value();
      }
      return true;
    }
    if (parameters_.is_timed() || !patience_.is_over(completed_ + received_) || !has_begun_) return true;
    verbena::print(stderr, " no message has come for {} seconds: {} of {} have\n", Patience::kLimit.count(),
                   receives ? received_ : completed_, total_);
    return false;
  }

  Endpoint& endpoint_;
  const Parameters& parameters_;
  const Make make_;
  const std::function<void(const BandwidthTimes&)>& show_;
  Phases phases_;
  RateLimit limit_;
  const std::uint64_t total_;  // messages of all queue pairs; 0 if the duration is fixed
  std::vector<Sent> sends_;
  std::vector<Received> receives_;
  std::vector<decltype(std::declval<Make>()(0, 0))> list_;
  std::uint64_t posted_ = 0, completed_ = 0, received_ = 0;
  std::uint64_t counted_ = 0;  // messages of the part of a duration that counts
  bool has_begun_ = false;
  bool is_armed_ = false;
  Patience patience_;
  BandwidthTimes times_;
};

// Calls `use` with a function that makes the requests of the test.
template <class Use>
auto with_requests(const Endpoint& endpoint, const Parameters& parameters, std::uint64_t size,
                   const Use& use) {
  const Requests requests(endpoint, parameters, size);
  switch (parameters.test.verb) {
    case Verb::kWrite:
      return use([&](std::size_t i, std::uint64_t n) { return requests.write(i, n); });
    case Verb::kRead:
      return use([&](std::size_t i, std::uint64_t n) { return requests.read(i, n); });
    case Verb::kAtomic:
      return use([&](std::size_t i, std::uint64_t n) { return requests.atomic(i, n); });
    default:
      return use([&](std::size_t i, std::uint64_t n) { return requests.send(i, n); });
  }
}

}  // namespace

BandwidthTimes measure_bandwidth(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size,
                                 const std::function<void(const BandwidthTimes&)>& show) {
  return with_requests(endpoint, parameters, size, [&](auto make) {
    return BandwidthRun<decltype(make)>(endpoint, parameters, size, make, show).run();
  });
}

void warm_up(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size) {
  with_requests(endpoint, parameters, size, [&](auto make) {
    for (std::size_t i = 0; i < parameters.queue_pairs; ++i) {
      for (std::uint32_t k = 0; k < parameters.send_depth; ++k)
        endpoint.pair(i).post(make(i, k).signaled(i)).value();
      std::size_t done = 0;
      while (done < parameters.send_depth)
        done += take_completions<kBatch>(endpoint.sends(), [](const verbena::completion&) {});
    }
  });
}

}  // namespace verbena::perf

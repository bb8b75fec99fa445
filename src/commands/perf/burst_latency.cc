// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/burst_latency.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "base/format.h"
#include "commands/perf/clock.h"
#include "commands/perf/completions.h"
#include "commands/perf/patience.h"
#include "commands/perf/rate_limit.h"
#include "commands/perf/requests.h"

namespace verbena::perf {
namespace {

class BurstRun {
 public:
  BurstRun(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size)
      : endpoint_(endpoint),
        parameters_(parameters),
        requests_(endpoint, parameters, size),
        limit_(parameters, size),
        groups_(parameters.iterations / parameters.raw->reply_every) {}

  LatencyTimes send() {
    times_.posted.reserve(groups_);
    times_.completed.reserve(groups_);
    while (completed_ < parameters_.iterations || answered_ < groups_) {
      while (sent_ < parameters_.iterations && has_room() && limit_.may_send()) {
        post(sent_ + 1 == parameters_.iterations);
        limit_.count(1);
        if (sent_ % parameters_.raw->reply_every == 0) times_.posted.push_back(ticks());
      }
      const std::size_t answers = take_completions<kBatch>(endpoint_.receives(), [&](const auto&) {
        // A frame of a stranger that reached the server first has an answer, too, and is one of those that
        // the server counts. Nothing was sent from which to measure it.
        ++answered_;
        if (times_.completed.size() < times_.posted.size()) times_.completed.push_back(ticks());
        endpoint_.post_receives_of(0);
      });
      if (answers + take_sends() == 0) wait(answered_, groups_);
    }
    return std::move(times_);
  }

  // Answers that find the send queue full wait until it has room.
  void answer() {
    std::uint64_t received = 0;
    while (received < parameters_.iterations || completed_ < groups_) {
      const std::size_t frames = take_completions<kBatch>(endpoint_.receives(), [&](const auto&) {
        ++received;
        endpoint_.post_receives_of(0);
      });
      while (sent_ < std::min(groups_, received / parameters_.raw->reply_every) && has_room())
        post(sent_ + 1 == groups_);
      if (frames + take_sends() == 0 && received != 0) wait(received, parameters_.iterations);
    }
  }

 private:
  bool has_room() const { return sent_ - completed_ < parameters_.send_depth; }

  void post(bool is_last) {
    const auto request = requests_.send(0, sent_++);
    const bool is_signaled = is_last || sent_ % parameters_.moderation == 0;
    endpoint_.pair(0).post(is_signaled ? request.signaled() : request).value();
  }

  std::size_t take_sends() {
    return take_completions<kBatch>(endpoint_.sends(), [&](const auto&) {
      completed_ += std::min<std::uint64_t>(parameters_.moderation, sent_ - completed_);
    });
  }

  // Nothing has happened. Gives up after a while, as nothing repeats lost frames.
  void wait(std::uint64_t done, std::uint64_t wanted) {
    if (!patience_.is_over(done + completed_)) return;
    throw std::runtime_error(
        verbena::format("no frame has come for {} seconds: {} of {} have, others were lost",
                        Patience::kLimit.count(), done, wanted));
  }

  Endpoint& endpoint_;
  const Parameters& parameters_;
  const Requests requests_;
  RateLimit limit_;
  const std::uint64_t groups_;  // of frames with one answer
  std::uint64_t sent_ = 0, completed_ = 0;
  std::uint64_t answered_ = 0;  // groups of the client
  Patience patience_;
  LatencyTimes times_;
};

}  // namespace

LatencyTimes measure_burst_latency(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size) {
  BurstRun run(endpoint, parameters, size);
  if (parameters.initiates()) return run.send();
  run.answer();
  return {};
}

}  // namespace verbena::perf

// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/latency.h"

#include <cstddef>
#include <stdexcept>

#include "base/format.h"
#include "commands/perf/clock.h"
#include "commands/perf/completions.h"
#include "commands/perf/patience.h"
#include "commands/perf/phases.h"
#include "commands/perf/requests.h"

namespace verbena::perf {
namespace {

class LatencyRun {
 public:
  LatencyRun(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size)
      : endpoint_(endpoint),
        parameters_(parameters),
        phases_(parameters.duration, parameters.margin),
        requests_(endpoint, parameters, size),
        size_(size),
        gap_(parameters.latency_gap == 0
                 ? 0
                 : static_cast<std::uint64_t>(Clock().ticks_per_microsecond() * parameters.latency_gap)) {
    if (!parameters.is_timed()) times_.posted.resize(parameters.iterations);
  }

  LatencyTimes run() {
    switch (parameters_.test.verb) {
      case Verb::kSend:
        send();
        break;
      case Verb::kWrite:
        write();
        break;
      case Verb::kRead:
        initiate(requests_.read(0, 0).signaled());
        break;
      case Verb::kAtomic:
        initiate(requests_.atomic(0, 0).signaled());
        break;
    }
    if (parameters_.is_timed()) {
      times_.began = phases_.began();
      times_.ended = phases_.ended();
    }
    return std::move(times_);
  }

 private:
  // Whether one more message than `count` belongs to the test.
  bool wants(std::uint64_t count) const {
    return parameters_.is_timed() ? !phases_.is_over() : count < parameters_.iterations;
  }

  // Waits between messages (--latency_gap), and notes the time of the next.
  void begin_message(std::uint64_t count) {
    if (gap_ != 0) {
      const std::uint64_t end = ticks() + gap_;
      while (ticks() < end) continue;
    }
    if (!parameters_.is_timed()) {
      times_.posted[count] = ticks();
    } else if (parameters_.wants_details()) {
      const std::uint64_t now = ticks();
      if (last_ != 0 && phases_.counts()) times_.histogram.add(now - last_);
      last_ = now;
    }
  }

  // Waits for the next completion, which is passed to `take`. Returns false if the test is over before.
  template <class Take>
  bool wait_for(const verbena::cq& queue, const Take& take) {
    while (take_completions<1>(queue, take) == 0) {
      if (phases_.is_over()) return false;
      if (parameters_.raw) check_patience();
      if (!parameters_.sleeps) continue;
      queue.arm().value();
      if (take_completions<1>(queue, take) != 0) return true;
      endpoint_.channel().wait().value();
    }
    return true;
  }
  bool wait_for(const verbena::cq& queue) {
    return wait_for(queue, [](const verbena::completion&) {});
  }

  // Nothing repeats a lost frame. The end that begins expects its peer to be there.
  void check_patience() {
    if (received_ == 0 && !parameters_.initiates()) return;
    if (parameters_.is_timed() || !patience_.is_over(received_)) return;
    throw std::runtime_error(verbena::format("no frame has come for {} seconds: {} of {} have, one was lost",
                                             Patience::kLimit.count(), received_, parameters_.iterations));
  }

  void count_one() {
    if (parameters_.is_timed() && phases_.counts()) ++times_.messages;
  }

  void send() {
    const auto request = requests_.send(0, 0);
    const auto signaled = request.signaled();

    const verbena::qp& pair = endpoint_.pair(0);
    const std::uint64_t different = parameters_.raw ? parameters_.raw->frames() : 1;
    const std::uint64_t spare = parameters_.receives_of_pair();
    std::uint64_t sent = 0;
    const auto on_receive = [&](const verbena::completion&) {
      phases_.start();
      ++received_;
      count_one();
      if (parameters_.verifies) endpoint_.verify_receive(0);
      if (parameters_.is_timed() || received_ + spare <= parameters_.iterations)
        endpoint_.post_receives_of(0);
    };
    while (wants(sent) || wants(received_)) {
      const bool is_first = sent == 0 && parameters_.initiates();
      if (wants(received_) && !is_first && !wait_for(endpoint_.receives(), on_receive)) return;
      if (!wants(sent)) continue;
      begin_message(sent);
      ++sent;
      const bool is_signaled =
          sent % parameters_.moderation == 0 || (!parameters_.is_timed() && sent == parameters_.iterations);
      if (different == 1) {
        pair.post(is_signaled ? signaled : request).value();
      } else {
        const auto varied = requests_.send(0, (sent - 1) % different);
        pair.post(is_signaled ? varied.signaled() : varied).value();
      }
      if (is_signaled && !wait_for(endpoint_.sends())) return;
    }
  }

  // The last byte of a message counts the messages: memory shows no completion to the target of a WRITE. As
  // in perftest, the end that does not initiate writes first.
  void write() {
    const auto request = requests_.write(0, 0).signaled();
    const auto arrived =
        reinterpret_cast<volatile unsigned char*>(endpoint_.receive_buffer(0).data() + size_ - 1);
    const auto leaving =
        reinterpret_cast<volatile unsigned char*>(endpoint_.send_buffer(0).data() + size_ - 1);
    const verbena::qp& pair = endpoint_.pair(0);

    const unsigned char kept = *leaving;
    std::uint64_t sent = 0, received = 0;
    phases_.start();
    while (wants(sent) || wants(received)) {
      if (wants(received) && (sent != 0 || parameters_.initiates())) {
        ++received;
        while (*arrived != static_cast<unsigned char>(received)) {
          if (phases_.is_over()) return;
        }
      }
      if (!wants(sent)) continue;
      begin_message(sent);
      *leaving = static_cast<unsigned char>(++sent);
      pair.post(request).value();
      if (!wait_for(endpoint_.sends())) return;
      count_one();
    }
    *leaving = kept;  // what --verify expects there
  }

  template <class Request>
  void initiate(const Request& request) {
    const verbena::qp& pair = endpoint_.pair(0);
    phases_.start();
    for (std::uint64_t sent = 0; wants(sent); ++sent) {
      begin_message(sent);
      pair.post(request).value();
      if (!wait_for(endpoint_.sends())) return;
      count_one();
    }
  }

  Endpoint& endpoint_;
  const Parameters& parameters_;
  Phases phases_;
  const Requests requests_;
  const std::uint64_t size_;
  const std::uint64_t gap_;
  std::uint64_t last_ = 0;      // when the last message was posted
  std::uint64_t received_ = 0;  // messages of SEND
  Patience patience_;
  LatencyTimes times_;
};

}  // namespace

LatencyTimes measure_latency(Endpoint& endpoint, const Parameters& parameters, std::uint64_t size) {
  return LatencyRun(endpoint, parameters, size).run();
}

}  // namespace verbena::perf

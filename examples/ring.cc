// SPDX-License-Identifier: Apache-2.0
// A pipe whose ring buffer is in the consumer's memory. The producer WRITEs into it; counters in both
// memories tell how much was written and taken.
//
//   verbena run ring atomic 7471 > COPY              # in one shell: the consumer
//   verbena run ring atomic 7471 localhost < FILE    # in another shell: the producer
//
// The rule of order (IBTA 9.5): that a part of a WRITE is visible says nothing about the rest of it, nor
// about earlier WRITEs. So the consumer must not poll the data itself. Earlier data is complete when
//   atomic:     a later atomic of the same queue pair has changed its target, which the consumer polls;
//   immediate:  the receive has completed that a WRITE with immediate data takes.
// Polling memory leaves the consumer's adapter idle, but does not notice the peer's death: that is left out.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <unistd.h>
#include <verbena/verbs.hpp>

#include "exchange.hpp"

namespace {

using namespace verbena;

constexpr std::size_t kSlots = 64;
constexpr std::size_t kCredits = kSlots / 4;  // the consumer announces this many free slots together
struct slot {
  std::uint32_t size;  // 0: the end
  std::array<char, 1020> bytes;
};
struct layout {
  std::uint64_t peers_count;  // number of slots that the other end has written, or has taken
  std::uint64_t old_value;    // which an atomic returns, and nobody needs
  std::array<slot, kSlots> ring;
};
struct address {
  endpoint pair;
  remote_slice memory;
};

// The consumer or the producer.
class ring_end {
 public:
  explicit ring_end(example::exchange& peer) {
    const auto there = peer.swap(address{pair_.local_endpoint().value(), memory_.remote()});
    pair_.connect(there.pair).value();
    peers_memory_ = there.memory;
    for (std::size_t i = 0; i < kSlots; ++i) pair_.post(recv()).value();
    peer.swap('r');  // ready
  }

  slot& at(std::uint64_t number) const { return memory_.as<layout>()[0].ring[number % kSlots]; }
  std::uint64_t peers_count() const {
    return std::atomic_ref(memory_.as<layout>()[0].peers_count).load(std::memory_order_acquire);
  }
  std::uint64_t received() const { return received_; }
  std::uint64_t completed() const { return completed_; }

  template <class Condition>
  void wait(Condition is_met) {
    while (!is_met()) {
      for (const completion& each : queue_.poll()) {
        if (!each) throw verbena::exception(each.error());
        if (each.is_receive()) pair_.post(recv()).value();
        ++(each.is_receive() ? received_ : completed_);
      }
    }
  }
  // WRITEs a slot and announces it, as one chain. Chains complete in order.
  void send(std::uint64_t number, bool by_atomic) const {
    const std::size_t begin = offsetof(layout, ring) + number % kSlots * sizeof(slot);
    const std::size_t size = offsetof(slot, bytes) + at(number).size;
    const auto data = write(memory_.part(begin, size), peers_memory_.part(begin, size));
    (by_atomic ? pair_.post(data, counted(1)) : pair_.post(data.immediate(0).signaled())).value();
  }
  void free_slots(std::uint64_t count) const { pair_.post(counted(count)).value(); }

 private:
  // A request that adds to the count in the peer's memory.
  decltype(fetch_add(slice(), remote_slice(), 0)) counted(std::uint64_t addend) const {
    const slice old_value = memory_.part(offsetof(layout, old_value), sizeof(std::uint64_t));
    return fetch_add(old_value, peers_memory_.first(sizeof(std::uint64_t)), addend).signaled();
  }

  context device_ = open().value();
  pd domain_ = device_.make_pd().value();
  cq queue_ = device_.make_cq(4 * kSlots).value();
  qp pair_ = domain_.make_qp(rc, {.send_cq = queue_, .max_send_wr = 2 * kSlots}).value();
  region memory_ = domain_.allocate(sizeof(layout), access::remote_write | access::remote_atomic).value();
  remote_slice peers_memory_;
  std::uint64_t received_ = 0, completed_ = 0;
};

void produce(ring_end& own, bool by_atomic) {
  std::uint64_t number = 0;
  for (bool is_end = false; !is_end; ++number) {
    own.wait([&] { return number < own.peers_count() + kSlots && number < own.completed() + kSlots; });
    slot& next = own.at(number);
    const ssize_t size = ::read(STDIN_FILENO, next.bytes.data(), next.bytes.size());
    if (size < 0) throw std::system_error(errno, std::generic_category(), "read the input");
    next.size = static_cast<std::uint32_t>(size);
    own.send(number, by_atomic);
    is_end = size == 0;
  }
  own.wait([&] { return own.completed() == number; });
}

void consume(ring_end& own, bool by_atomic) {
  for (std::uint64_t number = 0;; ++number) {
    own.wait([&] { return number < (by_atomic ? own.peers_count() : own.received()); });
    const slot& next = own.at(number);
    const std::uint32_t size = next.size;  // read once: the producer could change it
    if (size == 0) return;
    if (size > next.bytes.size()) throw std::runtime_error("the producer has written a malformed slot");
    std::fwrite(next.bytes.data(), 1, size, stdout);
    if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category(), "write the output");
    if ((number + 1) % kCredits == 0) own.free_slots(kCredits);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc == 3 || argc == 4 ? argv[1] : "";
  if (how != "atomic" && how != "immediate") {
    std::fputs("usage: ring atomic|immediate PORT [HOST]\n", stderr);
    return 1;
  }
  try {
    auto peer =
        argc == 4 ? example::exchange::connect(argv[3], argv[2]) : example::exchange::accept_one(argv[2]);
    ring_end own(peer);
    (argc == 4 ? produce : consume)(own, how == "atomic");
    peer.swap('e');  // end: both queue pairs exist until both ends are done
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "ring: %s\n", failed.what());
    return 1;
  }
}

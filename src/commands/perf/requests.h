// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <verbena/verbs.hpp>

#include "commands/perf/endpoint.h"
#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// Makes the requests of a test. `index` is that of the queue pair. `number` counts the messages of the queue
// pair from 0, and determines where a message lies in its buffer (Layout).
class Requests {
 public:
  Requests(const Endpoint& endpoint, const Parameters& parameters, std::uint64_t size)
      : endpoint_(endpoint),
        size_(size - parameters.added_bytes()),
        length_(endpoint.layout().length(size)),
        step_(endpoint.layout().step(size)),
        is_inline_(endpoint.inlines(size) && (parameters.is(Verb::kSend) || parameters.is(Verb::kWrite))),
        compares_(parameters.compares) {}

  auto send(std::size_t index, std::uint64_t number) const {
    auto request = verbena::send(from(index, number));
    const Endpoint::Peer& peer = endpoint_.peer(index);
    if (peer.address) request = request.to({*peer.address, peer.qp_num, peer.qkey});
    return to_peer(is_inline_ ? request.inlined() : request, index);
  }
  auto write(std::size_t index, std::uint64_t number) const {
    const auto request = verbena::write(from(index, number), target(index, number));
    return to_peer(is_inline_ ? request.inlined() : request, index);
  }
  auto read(std::size_t index, std::uint64_t number) const {
    return to_peer(verbena::read(from(index, number), target(index, number)), index);
  }
  auto atomic(std::size_t index, std::uint64_t number) const {
    const verbena::slice before = from(index, number);
    return to_peer(compares_ ? verbena::compare_swap(before, target(index, number), 0, kSwap)
                             : verbena::fetch_add(before, target(index, number), kAddend),
                   index);
  }

 private:
  static constexpr std::uint64_t kAddend = 1, kSwap = 0;  // as in perftest

  // Names the shared receive queue of the peer. Only XRC uses it.
  template <class Request>
  Request to_peer(const Request& request, std::size_t index) const {
    return request.to_srq(endpoint_.peer(index).keys.srq_num);
  }
  std::uint64_t offset(std::uint64_t number) const { return length_ == 1 ? 0 : number % length_ * step_; }
  verbena::slice from(std::size_t index, std::uint64_t number) const {
    return endpoint_.send_buffer(index).part(offset(number), size_);
  }
  verbena::remote_slice target(std::size_t index, std::uint64_t number) const {
    const Keys& peer = endpoint_.peer(index).keys;
    return {peer.address + offset(number), size_, peer.rkey, 0};
  }

  const Endpoint& endpoint_;
  const std::uint64_t size_;
  const std::uint64_t length_;
  const std::uint64_t step_;
  const bool is_inline_;
  const bool compares_;
};

}  // namespace verbena::perf

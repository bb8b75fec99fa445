// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <verbena/verbs.hpp>

#include "commands/perf/device.h"
#include "commands/perf/exchange.h"
#include "commands/perf/parameters.h"

namespace verbena::perf {

// How the buffers of queue pairs lie in memory. Both ends agree on it, since each reads and writes the
// other's. A message of at most half a cycle begins at the next cache line after the one before, until the
// end of the cycle; a larger one always begins at the start of its buffer.
struct Layout {
  std::uint32_t cycle;
  std::uint32_t cache_line;

  std::uint64_t step(std::uint64_t size) const { return (size + cache_line - 1) / cache_line * cache_line; }
  // The size of a queue pair's buffer for one direction.
  std::uint64_t buffer(std::uint64_t largest) const { return step(largest < cycle ? cycle : largest); }
  bool cycles(std::uint64_t size) const { return size <= cycle / 2; }
  // The number of messages after which the cycle begins again.
  std::uint64_t length(std::uint64_t size) const { return cycles(size) ? cycle / step(size) : 1; }
};

inline constexpr std::size_t kRouteHeader = 40;  // bytes before each datagram

// The buffers, queues and queue pairs of one end of a test.
class Endpoint {
 public:
  Endpoint(const Device& device, const Parameters& parameters, const Layout& layout);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Adds a queue pair, which connect() connects.
  void make_pair();
  // Adds a queue pair that librdmacm has made with queue_options() and connects.
  void add_pair(verbena::qp made, std::optional<verbena::address_handle> peer, std::uint32_t peer_qp_num,
                std::uint32_t peer_qkey);
  verbena::qp_options queue_options() const;
  const verbena::pd& domain() const { return domain_; }

  Keys keys(std::size_t index) const;
  // Returns the index of the queue pair of the peer to which one of ours is connected.
  std::size_t peer_of(std::size_t index) const;
  // Connects a queue pair, or for UD stores the address of its peer, and joins the multicast group.
  void connect(std::size_t index, const Keys& peer, ibv_mtu mtu);

  // Posts receives for messages of this size to all queue pairs.
  void post_receives(std::uint64_t size);
  // Posts another receive, or a list of them (--recv_post_list), to a queue pair.
  void post_receives_of(std::size_t index);

  // Checks the message that has completed the next receive of a queue pair (--verify).
  void verify_receive(std::size_t index);

  // The peer of a queue pair, to which it sends.
  struct Peer {
    Keys keys;
    std::optional<verbena::address_handle> address;  // for UD, as the next two
    std::uint32_t qp_num = 0;
    std::uint32_t qkey = 0;
  };

  const verbena::qp& pair(std::size_t index) const { return pairs_[index]; }
  std::size_t count() const { return pairs_.size(); }
  const Peer& peer(std::size_t index) const { return peers_[index]; }
  const verbena::cq& sends() const { return *send_cq_; }
  const verbena::cq& receives() const { return receive_cq_ ? *receive_cq_ : *send_cq_; }
  const verbena::completion_channel& channel() const { return *channel_; }
  const Layout& layout() const { return layout_; }
  // Whether messages of this size are sent inline.
  bool inlines(std::uint64_t size) const { return size <= inline_size_; }

  // The buffer from which a queue pair sends, and the one into which its peer's messages come. Queue pairs of
  // XRC that receive have the buffers of those that send.
  verbena::slice send_buffer(std::size_t index) const;
  verbena::slice receive_buffer(std::size_t index) const;

 private:
  void fill_buffers();
  verbena::slice next_receive(std::size_t index);
  // Messages of a latency test come one at a time, so all are received in one place, as perftest does. Then
  // the list of receives never changes. Making it for each message would add about 0.02 us to the latency.
  bool has_one_receive_place() const { return parameters_.test.measure == Measure::kLatency; }
  // The place of the message with a number of a queue pair within its buffer.
  std::uint64_t place(std::uint64_t number) const {
    if (has_one_receive_place()) return 0;
    return number % layout_.length(receive_size_) * layout_.step(receive_size_);
  }
  verbena::region allocate(std::uint64_t size) const;
  // The memory of a queue pair, and the place of its buffers there.
  const verbena::region& memory(std::size_t index) const;

  const Device& device_;
  const Parameters& parameters_;
  const Layout layout_;
  const std::uint64_t buffer_;
  std::uint64_t inline_size_;
  verbena::pd domain_;
  std::optional<verbena::completion_channel> channel_;
  std::optional<verbena::cq> send_cq_;
  std::optional<verbena::cq> receive_cq_;
  std::optional<verbena::xrc_domain> xrc_domain_;
  std::optional<verbena::srq> srq_;
  std::vector<verbena::region> regions_;
  std::vector<verbena::qp> pairs_;
  std::vector<Peer> peers_;
  std::uint64_t receive_size_ = 0;
  std::vector<std::uint64_t> receives_posted_;  // of each queue pair
  std::vector<std::uint64_t> receives_checked_;
  std::vector<verbena::recv_request<1>> receive_list_;
};

}  // namespace verbena::perf

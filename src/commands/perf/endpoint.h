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

// How messages lie in the buffer of a queue pair. Both ends use the same layout, because each reads and
// writes the buffers of the other end. Each message begins at a cache line. Messages of at most half a cycle
// lie one behind the other. At the end of the cycle, the next message lies at the start of the buffer again.
// Larger messages always lie at the start of the buffer. `cycle` and `cache_line` are in bytes.
struct Layout {
  std::uint32_t cycle;
  std::uint32_t cache_line;

  // Returns the bytes from the start of a message to the start of the next.
  std::uint64_t step(std::uint64_t size) const { return (size + cache_line - 1) / cache_line * cache_line; }
  // Returns the bytes of a queue pair's buffer for one direction. `largest`: the bytes of the largest
  // message.
  std::uint64_t buffer(std::uint64_t largest) const { return step(largest < cycle ? cycle : largest); }
  // Returns whether messages of this size lie one behind the other.
  bool cycles(std::uint64_t size) const { return size <= cycle / 2; }
  // Returns the number of messages after which the cycle begins again.
  std::uint64_t length(std::uint64_t size) const { return cycles(size) ? cycle / step(size) : 1; }
};

inline constexpr std::size_t kRouteHeader = 40;  // bytes before each received datagram (IBTA: GRH)

// The buffers, queues and queue pairs of one end of a test.
class Endpoint {
 public:
  Endpoint(const Device& device, const Parameters& parameters, const Layout& layout);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // Makes a queue pair, which connect() connects later.
  void make_pair();
  // Adds a queue pair that was made with queue_options() and that librdmacm connects. For UD, the other
  // arguments say where its datagrams go. Else they are nullopt, 0 and 0.
  void add_pair(verbena::qp made, std::optional<verbena::address_handle> peer, std::uint32_t peer_qp_num,
                std::uint32_t peer_qkey);
  verbena::qp_options queue_options() const;
  const verbena::pd& domain() const { return domain_; }

  // Returns what the peer must know about a queue pair and its memory.
  Keys keys(std::size_t index) const;
  // Returns the index of the peer's queue pair to which our queue pair with this index is connected.
  std::size_t peer_of(std::size_t index) const;
  // Connects a queue pair to the peer's queue pair with these keys. For UD, stores the address of the peer
  // instead, and joins the multicast group if the test has one. With -R, only stores the keys, because
  // librdmacm has connected the queue pair.
  void connect(std::size_t index, const Keys& peer, ibv_mtu mtu);

  // Posts receives for messages of this size to all queue pairs.
  void post_receives(std::uint64_t size);
  // Posts another receive, or a list of them (--recv_post_list), to a queue pair.
  void post_receives_of(std::size_t index);

  // Checks the message that has completed the next receive of a queue pair (--verify). Throws
  // std::runtime_error if a byte is wrong.
  void verify_receive(std::size_t index);

  // The peer of a queue pair, to which it sends.
  struct Peer {
    Keys keys;
    std::optional<verbena::address_handle> address;  // nullopt except for UD; qp_num and qkey are for UD, too
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

  // Return the buffer from which a queue pair sends, and the buffer into which messages of its peer come.
  // With XRC, queue pair queue_pairs + i, which only receives, has the receive buffer of queue pair i.
  verbena::slice send_buffer(std::size_t index) const;
  verbena::slice receive_buffer(std::size_t index) const;

 private:
  void fill_buffers();
  verbena::slice next_receive(std::size_t index);
  // Returns whether all messages are received in the same place of the buffer. Latency tests do so, as in
  // perftest, because their messages come one at a time. All receive requests are then equal and are made
  // only once. Making them for each message would add about 0.02 us to the latency.
  bool has_one_receive_place() const { return parameters_.test.measure == Measure::kLatency; }
  // Returns the offset in bytes at which a queue pair's message with this number lies in the receive buffer.
  // Numbers begin at 0.
  std::uint64_t place(std::uint64_t number) const {
    if (has_one_receive_place()) return 0;
    return number % layout_.length(receive_size_) * layout_.step(receive_size_);
  }
  verbena::region allocate(std::uint64_t size) const;
  // Returns the region that has the buffers of a queue pair.
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <infiniband/verbs.h>

#include "base/unique_fd.h"
#include "commands/perf/parameters.h"

// The exchange between the two ends of a test, as perftest 4.5 does it (its protocol version is 6.06): both
// ends exchange fields of fixed size, and the client writes each of them first.
namespace verbena::perf {

inline constexpr const char* kProtocolVersion = "6.06";

// An end tells the other this about a queue pair and its memory.
struct Keys {
  std::uint32_t lid = 0;
  std::uint32_t reads = 1;  // READs and atomics under way that this end allows
  std::uint32_t qp_num = 0;
  std::uint32_t psn = 0;
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;
  ibv_gid gid{};
  std::uint32_t srq_num = 0;
};

// The form of Keys in the exchange: hexadecimal numbers between colons, and a zero. Returns nullopt for other
// bytes.
inline constexpr std::size_t kKeysLength = 108;
std::array<char, kKeysLength> write_keys(const Keys& keys);
std::optional<Keys> read_keys(std::span<const char, kKeysLength> text);

// The figures of a bandwidth test that both ends exchange.
struct BandwidthFigures {
  std::uint64_t size = 0;
  std::uint64_t iterations = 0;
  double peak = 0;     // in the unit of the test per second
  double average = 0;  // likewise
  double rate = 0;     // millions of messages per second
  // Not exchanged: this process's processor time per message in microseconds, and the average of each part of
  // the test.
  double processor_time = 0;
  std::vector<double> parts;
};

// Carries the fields. Functions throw std::runtime_error if the peer has gone or talks nonsense.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual void write(std::span<const char> bytes) = 0;
  virtual void read(std::span<char> bytes) = 0;
  // Exchanges Keys: the two kinds of channels write them in different forms.
  virtual void write(const Keys& keys) = 0;
  virtual Keys read_keys() = 0;
  // Says that this end is done.
  virtual void end() = 0;
  // Says that this end sends no more, and waits until the peer does so or has gone, for five seconds at most.
  virtual void part() {}
  // The connection's descriptor, which shows that the peer has gone; -1 if there is none.
  virtual int descriptor() const { return -1; }
};

// Returns a channel for one of several tests: its end does not end the `lender`.
std::unique_ptr<Channel> borrow(Channel& lender);

// The kinds of peers: perftest's programs run one test; ours can take orders (commands/perf/orders.h).
enum class PeerKind : std::uint8_t { kOneTest, kTakesOrders };

// Connects to the server, or waits for a client.
std::unique_ptr<Channel> connect_by_tcp(const Parameters& parameters);
// Returns a channel over a connected socket.
std::unique_ptr<Channel> channel_over(UniqueFd connection);
// Listens for clients at the port.
UniqueFd listen_by_tcp(const Parameters& parameters);
// Waits for a client. Throws std::system_error if the process cannot have another connection.
UniqueFd accept_client(const UniqueFd& listener);
std::unique_ptr<Channel> connect_by_cm(const Parameters& parameters);

class Exchange {
 public:
  Exchange(std::unique_ptr<Channel> channel, bool is_client)
      : channel_(std::move(channel)), is_client_(is_client) {}

  // Exchanges versions, and checks that the peer's is one that has the same protocol. A client says with
  // `gives_orders` that it has more than one test, and its server says whether it takes them.
  PeerKind versions(bool gives_orders = false);
  // Exchanges the size of the buffer through which small messages cycle, and the size of cache lines. Sets
  // both to the larger ones of the two ends.
  void layout(std::uint32_t& cycle, std::uint32_t& cache_line);
  // Returns the smaller one of the two ends' path MTUs.
  ibv_mtu mtu(ibv_mtu own);

  Keys keys(const Keys& own);
  // Waits until the peer has come here, too.
  void meet() { keys(own_); }
  BandwidthFigures figures(const BandwidthFigures& own);
  void close();
  // Keeps this end's queue pairs until the peer has ended its test. perftest's ends of a WRITE latency test
  // exchange nothing after it. With -D, one ends earlier, and the other's last WRITE fails without an answer.
  void part() { channel_->part(); }
  int descriptor() const { return channel_->descriptor(); }

 private:
  template <class Write, class Read>
  void in_order(const Write& write, const Read& read);
  // Exchange bytes, an integer in network byte order, and a floating-point number as such an integer.
  template <std::size_t N>
  std::array<char, N> bytes(const std::array<char, N>& own);
  template <class Integer>
  Integer number(Integer own);
  double fraction(double own);

  std::unique_ptr<Channel> channel_;
  bool is_client_;
  Keys own_;
};

}  // namespace verbena::perf

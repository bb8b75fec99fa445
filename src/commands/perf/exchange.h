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

// The exchange between the two ends of a test, as in perftest 4.5, whose protocol has version 6.06. Both ends
// exchange fields of fixed size, and the client writes each field first.
namespace verbena::perf {

inline constexpr const char* kProtocolVersion = "6.06";

// The facts about a queue pair and its memory that one end tells the other end. `address` and `rkey` are
// those of the buffer that the peer reads or writes. `lid` is 0 on Ethernet. `srq_num` is 0 except for XRC.
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

// write_keys() and read_keys() convert Keys to and from their form in the exchange by TCP: hexadecimal
// numbers, each with a colon behind it, and a zero byte. read_keys() returns nullopt for other text.
inline constexpr std::size_t kKeysLength = 108;
std::array<char, kKeysLength> write_keys(const Keys& keys);
std::optional<Keys> read_keys(std::span<const char, kKeysLength> text);

// The figures of a bandwidth test that both ends exchange.
struct BandwidthFigures {
  std::uint64_t size = 0;
  std::uint64_t iterations = 0;
  double peak = 0;     // in MiB/s or Gbit/s, as Parameters::unit says; 0 if the test has no peak
  double average = 0;  // likewise
  double rate = 0;     // millions of messages per second
  // The ends do not exchange these two: this process's processor time per message in microseconds, and the
  // average bandwidth of each of up to 20 equal parts of the test. `parts` is empty if the test has no peak.
  double processor_time = 0;
  std::vector<double> parts;
};

// Carries the fields of the exchange to the peer and back. Functions wait until they are done. They throw
// std::runtime_error if the peer has gone or has sent something malformed.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual void write(std::span<const char> bytes) = 0;
  virtual void read(std::span<char> bytes) = 0;
  // Exchanges Keys: the two kinds of channels write them in different forms.
  virtual void write(const Keys& keys) = 0;
  virtual Keys read_keys() = 0;
  // Tells the peer that this end is done.
  virtual void end() = 0;
  // Tells the peer that this end sends no more. Waits until the peer says the same or has gone, for five
  // seconds at most. Channels of librdmacm do nothing here.
  virtual void part() {}
  // The connection's descriptor, which shows that the peer has gone; -1 if there is none.
  virtual int descriptor() const { return -1; }
};

// Returns a channel that uses `lender` for one of several tests. Its end() does nothing, and its part()
// leaves the connection open. REQUIRES: `lender` outlives the result
std::unique_ptr<Channel> borrow(Channel& lender);

// The kinds of peers: perftest's programs run one test; ours can take orders (commands/perf/orders.h).
enum class PeerKind : std::uint8_t { kOneTest, kTakesOrders };

// Connects to the server by TCP, or waits for a client. Throws std::runtime_error.
std::unique_ptr<Channel> connect_by_tcp(const Parameters& parameters);
// Returns a channel over a connected socket.
std::unique_ptr<Channel> channel_over(UniqueFd connection);
// Listens for clients at the port of the test. Throws std::runtime_error if no address can have the port.
UniqueFd listen_by_tcp(const Parameters& parameters);
// Waits for a client. Throws std::system_error, for example if the process cannot have another connection.
UniqueFd accept_client(const UniqueFd& listener);
// Connects to the server by librdmacm, or waits for a client (-R, -z). Throws std::runtime_error.
std::unique_ptr<Channel> connect_by_cm(const Parameters& parameters);

// The steps of the exchange, over a channel. Both ends must take the same steps in the same order. Functions
// throw std::runtime_error, as those of Channel do.
class Exchange {
 public:
  Exchange(std::unique_ptr<Channel> channel, bool is_client)
      : channel_(std::move(channel)), is_client_(is_client) {}

  // Exchanges the versions of the protocol. Throws std::runtime_error if the peer's version is older than
  // 5.70. A client passes `gives_orders` if it has more than one test. Returns kTakesOrders if the peer has
  // said that it takes orders or, at the server, that it gives orders.
  PeerKind versions(bool gives_orders = false);
  // Exchanges the fields of Layout. Sets each argument to the larger value of the two ends. Throws
  // std::runtime_error if a value of the peer is impossible.
  void layout(std::uint32_t& cycle, std::uint32_t& cache_line);
  // Returns the smaller one of the two ends' path MTUs.
  ibv_mtu mtu(ibv_mtu own);

  // Sends the keys of this end, and returns those of the peer.
  Keys keys(const Keys& own);
  // Waits until the peer has reached this step, too.
  void meet() { keys(own_); }
  BandwidthFigures figures(const BandwidthFigures& own);
  void close();
  // Waits for the end of the peer's test as Channel::part() does. So this end's queue pairs stay until then.
  // perftest's ends exchange nothing after a WRITE latency test, and with -D one end ends earlier. Without
  // this step, the last WRITE of the other end would get no answer and would fail.
  void part() { channel_->part(); }
  int descriptor() const { return channel_->descriptor(); }

 private:
  template <class Write, class Read>
  void in_order(const Write& write, const Read& read);
  // These functions send a value to the peer and return the peer's value. bytes() exchanges bytes, and
  // number() an integer in network byte order. fraction() exchanges a floating-point number as the integer
  // with the same bits.
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

// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/exchange.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "base/bytes.h"
#include "base/format.h"

namespace verbena::perf {
namespace {

constexpr std::size_t kVersionLength = 16;
// perftest itself refuses older ones, and ours knows no form of the protocol before this one.
constexpr double kOldestVersion = 5.70;

// An end that gives or takes orders has this text in the version's field after the version, where perftest's
// programs do not look. Its last character is the version of the orders.
constexpr std::size_t kMarkPlace = 6;
constexpr std::string_view kMark = "verbena-1";
static_assert(kMarkPlace + kMark.size() < kVersionLength);

// Takes hexadecimal fields, which end with a colon, from a text.
class Fields {
 public:
  explicit Fields(std::string_view text) : rest_(text) {}

  // Sets is_good() to false if the field is no number or is larger than `most`.
  std::uint64_t next(std::uint64_t most) {
    const std::size_t end = rest_.find(':');
    std::uint64_t value = 0;
    const char* const first = rest_.data();
    const char* const last = first + (end == rest_.npos ? 0 : end);
    const auto [stopped, error] = std::from_chars(first, last, value, 16);
    if (error != std::errc() || stopped != last || first == last || value > most) {
      is_good_ = false;
      return 0;
    }
    rest_.remove_prefix(end + 1);
    return value;
  }
  bool is_good() const { return is_good_; }

 private:
  std::string_view rest_;
  bool is_good_ = true;
};

class BorrowedChannel final : public Channel {
 public:
  explicit BorrowedChannel(Channel& lender) : lender_(lender) {}
  void write(std::span<const char> bytes) override { lender_.write(bytes); }
  void read(std::span<char> bytes) override { lender_.read(bytes); }
  void write(const Keys& keys) override { lender_.write(keys); }
  Keys read_keys() override { return lender_.read_keys(); }
  void end() override {}
  // The connection stays for the next test, so the ends exchange a byte: each takes orders or gives them.
  void part() override {
    std::array<char, 1> byte{};
    lender_.write(byte);
    lender_.read(byte);
  }

 private:
  Channel& lender_;
};

}  // namespace

std::unique_ptr<Channel> borrow(Channel& lender) {
  return std::make_unique<BorrowedChannel>(lender);
}

std::array<char, kKeysLength> write_keys(const Keys& keys) {
  std::string text = verbena::format("{:04x}:{:04x}:{:06x}:{:06x}:{:08x}:{:016x}:", keys.lid, keys.reads,
                                     keys.qp_num, keys.psn, keys.rkey, keys.address);
  for (const std::uint8_t byte : keys.gid.raw) text += verbena::format("{:02x}:", byte);
  text += verbena::format("{:08x}:", keys.srq_num);
  std::array<char, kKeysLength> bytes{};
  std::copy_n(text.begin(), std::min(text.size(), kKeysLength - 1), bytes.begin());
  return bytes;
}

std::optional<Keys> read_keys(std::span<const char, kKeysLength> text) {
  constexpr std::uint64_t kWord = 0xffffffff, kMask24 = 0xffffff, kHalf = 0xffff;
  Fields fields(std::string_view(text.data(), text.size()));
  Keys keys;
  keys.lid = static_cast<std::uint32_t>(fields.next(kHalf));
  keys.reads = static_cast<std::uint32_t>(fields.next(kHalf));
  keys.qp_num = static_cast<std::uint32_t>(fields.next(kMask24));
  keys.psn = static_cast<std::uint32_t>(fields.next(kMask24));
  keys.rkey = static_cast<std::uint32_t>(fields.next(kWord));
  keys.address = fields.next(~std::uint64_t{0});
  for (std::uint8_t& byte : keys.gid.raw) byte = static_cast<std::uint8_t>(fields.next(0xff));
  keys.srq_num = static_cast<std::uint32_t>(fields.next(kWord));
  if (!fields.is_good()) return std::nullopt;
  return keys;
}

// The client writes first, so that only one end at a time writes.
template <class Write, class Read>
void Exchange::in_order(const Write& write, const Read& read) {
  if (is_client_) write();
  read();
  if (!is_client_) write();
}

template <std::size_t N>
std::array<char, N> Exchange::bytes(const std::array<char, N>& own) {
  std::array<char, N> peer{};
  in_order([&] { channel_->write(own); }, [&] { channel_->read(peer); });
  return peer;
}

template <class Integer>
Integer Exchange::number(Integer own) {
  std::array<char, sizeof own> sent{};
  store_be(sent.data(), own);
  return load_be<Integer>(bytes(sent).data());
}

PeerKind Exchange::versions(bool gives_orders) {
  std::array<char, kVersionLength> own{}, peer{};
  std::snprintf(own.data(), own.size(), "%s", kProtocolVersion);
  const auto is_marked = [&] { return std::string_view(peer.data() + kMarkPlace, kMark.size()) == kMark; };
  const auto write = [&] {
    if (gives_orders || (!is_client_ && is_marked()))
      std::copy(kMark.begin(), kMark.end(), own.begin() + kMarkPlace);
    channel_->write(own);
  };
  in_order(write, [&] { channel_->read(peer); });
  peer.back() = 0;
  if (std::atof(peer.data()) < kOldestVersion) {
    throw std::runtime_error(
        "the peer is no perftest of version 5.70 or later; is another program's port given (-p)?");
  }
  return is_marked() ? PeerKind::kTakesOrders : PeerKind::kOneTest;
}

void Exchange::layout(std::uint32_t& cycle, std::uint32_t& cache_line) {
  constexpr std::uint32_t kMaxPage = 1 << 16, kMaxLine = 1 << 12;
  cycle = std::max(cycle, number(cycle));
  cache_line = std::max(cache_line, number(cache_line));
  if (cycle > kMaxPage || cache_line > std::min(cycle, kMaxLine))
    throw std::runtime_error("the peer has an impossible page size");
}

ibv_mtu Exchange::mtu(ibv_mtu own) {
  const int theirs = bytes(std::array{static_cast<char>('0' + own), '\0'})[0] - '0';
  if (theirs < IBV_MTU_256 || theirs > IBV_MTU_4096) return own;
  return std::min(own, static_cast<ibv_mtu>(theirs));
}

Keys Exchange::keys(const Keys& own) {
  own_ = own;
  Keys peer;
  in_order([&] { channel_->write(own); }, [&] { peer = channel_->read_keys(); });
  return peer;
}

double Exchange::fraction(double own) {
  return std::bit_cast<double>(number(std::bit_cast<std::uint64_t>(own)));
}

BandwidthFigures Exchange::figures(const BandwidthFigures& own) {
  BandwidthFigures peer;
  peer.size = number(own.size);
  peer.iterations = number(own.iterations);
  peer.peak = fraction(own.peak);
  peer.average = fraction(own.average);
  peer.rate = fraction(own.rate);
  return peer;
}

void Exchange::close() {
  meet();
  channel_->end();
}

}  // namespace verbena::perf

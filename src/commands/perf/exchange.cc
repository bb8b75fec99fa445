// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/exchange.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <endian.h>

#include "base/format.h"

namespace verbena::perf {
namespace {

constexpr std::size_t kVersionLength = 16;
// perftest itself refuses older ones, and ours knows no form of the protocol before this one.
constexpr double kOldestVersion = 5.70;

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

}  // namespace

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

void Exchange::versions() {
  std::array<char, kVersionLength> own{}, peer{};
  std::snprintf(own.data(), own.size(), "%s", kProtocolVersion);
  in_order([&] { channel_->write(own); }, [&] { channel_->read(peer); });
  peer.back() = 0;
  if (std::atof(peer.data()) < kOldestVersion) {
    throw std::runtime_error(
        "the peer is no perftest of version 5.70 or later; is another program's port given (-p)?");
  }
}

void Exchange::layout(std::uint32_t& cycle, std::uint32_t& cache_line) {
  constexpr std::uint32_t kMax = 1 << 20;
  cycle = std::max(cycle, number(cycle));
  cache_line = std::max(cache_line, number(cache_line));
  if (cycle > kMax || cache_line > cycle) throw std::runtime_error("the peer has an impossible page size");
}

ibv_mtu Exchange::mtu(ibv_mtu own) {
  std::array<char, 2> mine{static_cast<char>('0' + own), 0}, peer{};
  in_order([&] { channel_->write(mine); }, [&] { channel_->read(peer); });
  const int theirs = peer[0] - '0';
  if (theirs < IBV_MTU_256 || theirs > IBV_MTU_4096) return own;
  return std::min(own, static_cast<ibv_mtu>(theirs));
}

Keys Exchange::keys(const Keys& own) {
  own_ = own;
  Keys peer;
  in_order([&] { channel_->write(own); }, [&] { peer = channel_->read_keys(); });
  return peer;
}

std::uint64_t Exchange::word(std::uint64_t own) {
  const std::uint64_t sent = htobe64(own);
  std::uint64_t peer = 0;
  in_order(
      [&] {
        channel_->write({reinterpret_cast<const char*>(&sent), sizeof sent});
      },
      [&] {
        channel_->read({reinterpret_cast<char*>(&peer), sizeof peer});
      });
  return be64toh(peer);
}

std::uint32_t Exchange::number(std::uint32_t own) {
  const std::uint32_t sent = htobe32(own);
  std::uint32_t peer = 0;
  in_order(
      [&] {
        channel_->write({reinterpret_cast<const char*>(&sent), sizeof sent});
      },
      [&] {
        channel_->read({reinterpret_cast<char*>(&peer), sizeof peer});
      });
  return be32toh(peer);
}

double Exchange::fraction(double own) {
  return std::bit_cast<double>(word(std::bit_cast<std::uint64_t>(own)));
}

BandwidthFigures Exchange::figures(const BandwidthFigures& own) {
  BandwidthFigures peer;
  peer.size = word(own.size);
  peer.iterations = word(own.iterations);
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

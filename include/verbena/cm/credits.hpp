// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include <endian.h>

// The credits of a connection: an end sends no more messages than its peer has room for. This file knows
// nothing of verbs, so that a simulation can use it.
namespace verbena::detail {

// The first facts that each end tells the peer, in the private data of connection management. They say which
// messages the peer may send. 16 bytes in network byte order.
struct hello {
  static constexpr std::uint32_t kMagic = 0x76726231;  // "vrb1"
  static constexpr std::size_t kBytes = 16;
  std::uint32_t credits = 0;       // messages that the peer may send at first
  std::uint32_t message_size = 0;  // bytes of the longest message
  std::uint32_t max_credits = 0;   // most credits that the peer may have at any time

  std::array<std::uint32_t, 4> encoded() const {
    return {htobe32(kMagic), htobe32(credits), htobe32(message_size), htobe32(max_credits)};
  }
  // Returns nothing if the peer does not speak this protocol.
  static std::optional<hello> decoded(std::span<const std::byte> data) {
    std::array<std::uint32_t, 4> words{};
    if (data.size() < kBytes) return std::nullopt;
    std::memcpy(words.data(), data.data(), kBytes);
    if (be32toh(words[0]) != kMagic) return std::nullopt;
    return hello{be32toh(words[1]), be32toh(words[2]), be32toh(words[3])};
  }
};

// The credits of one end. A credit allows the sending of one message, for which the peer has a free receive.
// So no SEND meets a missing receive. When a receive is free again, its owner returns a credit to the sender.
// The credit travels in the immediate data of the owner's next message. If there is none, it travels in a
// message without data, called an update. The last credit is kept for an update: otherwise both ends could
// wait for each other.
class credits {
 public:
  // The least number of receives of a connection: one for a message, one for an update.
  static constexpr std::uint32_t kLeast = 2;

  // Begins with the peer's hello. Without a hello, the peer does not speak this protocol. Then credits are
  // not counted, and the peer is expected to have enough receives.
  void meet(const std::optional<hello>& told) {
    are_counted_ = told.has_value();
    peer_ = {kNoLimit, kNoLimit, kNoLimit};
    if (told) peer_ = *told;
    left_ = peer_.credits;
  }
  // Counts the receives of which the peer learns by this end's hello.
  void begin(std::uint32_t receives) { given_ = receives; }
  bool are_counted() const { return are_counted_; }
  const hello& peer() const { return peer_; }

  // Returns whether enough credits are left for a message, or for an update.
  bool may_send(bool is_update) const { return left_ >= (is_update ? 1 : kLeast); }
  // Spends a credit for a message, and returns the message's immediate data. REQUIRES: are_counted()
  std::uint32_t spend(bool is_update) {
    --left_;
    const std::uint32_t returned = std::min(freed_, kCountMask);
    freed_ -= returned;
    given_ += returned;
    return returned | (is_update ? kOnlyCredits : 0);
  }
  // Counts a message of the peer, and takes the credits that it returns. `immediate`: its immediate data.
  // Returns false if the peer had no credit for the message, or has returned too many credits.
  bool take_in(std::uint32_t immediate) {
    const std::uint32_t returned = immediate & kCountMask;
    if (!are_counted_) return true;
    if (given_ == 0) return false;
    --given_;
    if (returned > peer_.max_credits || left_ > peer_.max_credits - returned) return false;
    left_ += returned;
    return true;
  }
  static bool is_update(std::uint32_t immediate) { return (immediate & kOnlyCredits) != 0; }

  // Counts receives that are free again, of which the peer does not know yet.
  void add_freed(std::uint32_t receives) { freed_ += receives; }
  // Returns whether an update is due: the peer may be waiting for credits, and this end can send an update.
  // `share`: the number of receives of this end. An update is due when at least half of them, rounded up, are
  // free again without the peer's knowledge. If fewer were enough, two idle ends could answer each update by
  // another update without end.
  bool are_due(std::uint32_t share) const {
    return are_counted_ && left_ >= 1 && freed_ >= std::max((share + 1) / 2, std::uint32_t{1});
  }

 private:
  static constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};
  // Immediate data of a message: the credits that it returns, and whether it is an update.
  static constexpr std::uint32_t kCountMask = 0xffff;
  static constexpr std::uint32_t kOnlyCredits = 1U << 16;

  bool are_counted_ = true;
  hello peer_;
  std::uint32_t left_ = 0;   // messages that the peer has room for
  std::uint32_t given_ = 0;  // messages that the peer may send
  std::uint32_t freed_ = 0;  // receives that are free again, of which the peer does not know yet
};

}  // namespace verbena::detail

// SPDX-License-Identifier: Apache-2.0
// A peer that sends arbitrary datagrams to a connection manager with connections in every state. The manager
// answers at most one datagram for each, terminates, and stays within its limits. When the owner has released
// everything and the peer is silent, nothing is left. Run with the address and undefined-behavior sanitizers.
#include <algorithm>
#include <cstring>

#include "fuzz/choices.h"
#include "fuzz/require.h"
#include "management/cm/support/endpoint.h"

namespace verbena::cm {
namespace {

using fuzz::Choices;

constexpr size_t kMaxHalfOpen = 8;
constexpr size_t kMaxWaiting = 8;
constexpr size_t kMaxIds = 32;
// Limit of timer calls after the owner has released everything: each connection repeats its messages to the
// end.
constexpr int kMaxTimers = 10'000;

ManagerConfig config() {
  ManagerConfig config;
  config.max_half_open = kMaxHalfOpen;
  config.max_waiting = kMaxWaiting;
  return config;
}

// Requires that a decoded datagram, encoded again, is the same message.
template <class Message>
void require_round_trip(ConstBytes mad) {
  const auto message = decode<Message>(mad);
  if (!message) return;
  const auto again = decode<Message>(encode(*message, 1).bytes);
  VERBENA_REQUIRE(again && *again == *message);
}

void require_round_trips(ConstBytes mad) {
  if (!decode_header(mad)) return;
  require_round_trip<Req>(mad), require_round_trip<Mra>(mad), require_round_trip<Rej>(mad);
  require_round_trip<Rep>(mad), require_round_trip<Rtu>(mad), require_round_trip<Dreq>(mad);
  require_round_trip<Drep>(mad), require_round_trip<Lap>(mad), require_round_trip<Apr>(mad);
  require_round_trip<SidrReq>(mad), require_round_trip<SidrRep>(mad);
}

// The input is a list of turns: an action of the owner, the time that passes, and a message with its fields.
// All inputs use the same manager, which each leaves empty.
class Conversation {
 public:
  void run(Choices choices) {
    while (!choices.empty()) turn(choices);
    end();
  }

 private:
  void turn(Choices& choices) {
    const uint8_t what = choices.byte();
    operate(what, choices.byte());
    const uint8_t factor = choices.byte();
    now_ += std::chrono::milliseconds(factor * choices.byte());
    host_.manager.on_timer(now_);
    host_.sent.clear();
    receive(choices);
    VERBENA_REQUIRE(host_.sent.size() <= 2);  // an answer, and a DREQ for a stale connection
    host_.sent.clear();
    VERBENA_REQUIRE(host_.manager.half_open() <= kMaxHalfOpen);
    VERBENA_REQUIRE(host_.manager.waiting() <= kMaxWaiting);
    for (const Event& event : host_.heard) remember(event.id);
    host_.heard.clear();
  }

  void end() {
    for (const LocalId id : ids_) std::ignore = host_.manager.destroy(id, now_);
    ids_.clear();
    for (int i = 0; host_.manager.deadline() != kNever; ++i) {
      VERBENA_REQUIRE(i < kMaxTimers);
      now_ = std::max(now_, host_.manager.deadline());
      host_.manager.on_timer(now_);
      host_.sent.clear();
      for (const Event& event : host_.heard) std::ignore = host_.manager.destroy(event.id, now_);
      host_.heard.clear();
    }
    VERBENA_REQUIRE(host_.manager.size() == 0);
    now_ += KnownPeers::kMemory;
  }

  void remember(LocalId id) {
    if (std::ranges::find(ids_, id) == ids_.end()) ids_.push_back(id);
    if (ids_.size() > kMaxIds) {
      std::ignore = host_.manager.destroy(ids_.front(), now_);
      ids_.erase(ids_.begin());
    }
  }

  LocalId pick(uint8_t which) const { return ids_.empty() ? 0 : ids_[which % ids_.size()]; }

  void operate(uint8_t what, uint8_t which) {
    Manager& manager = host_.manager;
    const LocalId id = pick(which);
    switch (what % 10) {
      case 0:
        return remember(*manager.connect(host_.parameters_to(peer_, 100u + which), 0, now_));
      case 1:
        return void(manager.reply(id, host_.reply_parameters(200u + which), now_));
      case 2:
        return void(manager.ready(id, {}, now_));
      case 3:
        return void(manager.reject(id, {}, now_));
      case 4:
        return void(manager.delay(id, which, Manager::MraTime::kOnDuplicate, {}, now_));
      case 5:
        return void(manager.disconnect(id, {}, now_));
      case 6:
        return void(manager.confirm_disconnect(id, {}, now_));
      case 7:
        return void(manager.destroy(id, now_));
      case 8:
        return void(manager.sidr_reply(id, {}, now_));
      default:
        return void(manager.establish(id, now_));
    }
  }

  // Receives a message with random fields. IDs and addresses fit where the input says so.
  void receive(Choices& choices) {
    Mad mad = encode(Rtu{}, 1);
    const uint8_t type = choices.byte(), help = choices.byte(), which = choices.byte();
    mad.bytes[17] = static_cast<std::byte>(0x10 + type % kMessageTypes);
    const ConstBytes fields = choices.bytes(std::min<size_t>(choices.byte(), kMadBytes - kMadHeaderBytes));
    std::ranges::copy(fields, mad.bytes.begin() + kMadHeaderBytes);
    const auto info = host_.manager.info(pick(which));
    if (info && (help & 1) != 0) {
      store_be(&mad.bytes[24], (help & 2) != 0 ? info->remote_id : 7u);
      store_be(&mad.bytes[28], info->local_id);
    }
    if (type % kMessageTypes == 0 && (help & 4) != 0) {
      const roce::Address peer = address(2), own = address(1);
      std::memcpy(&mad.bytes[24 + 56], peer.bytes.data(), peer.bytes.size());
      std::memcpy(&mad.bytes[24 + 72], own.bytes.data(), own.bytes.size());
      mad.bytes[24 + 50] = std::byte{0x30};
    }
    require_round_trips(mad.bytes);
    host_.receive({mad, (help & 8) != 0 ? stranger_.path_to(host_) : peer_.path_to(host_)}, now_);
  }

  Endpoint host_{1, config()};
  Endpoint peer_{2};
  Endpoint stranger_{3};
  std::vector<LocalId> ids_;
  TimePoint now_{};
};

}  // namespace
}  // namespace verbena::cm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static verbena::cm::Conversation conversation;
  conversation.run(verbena::fuzz::Choices(data, size));
  return 0;
}

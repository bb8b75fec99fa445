// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/long_messages.h"

namespace verbena::agent {
namespace {

using mad::Mad;
using mad::RmppKey;
using mad::RmppSender;

constexpr size_t kBlock = size_t{64} << 10;
constexpr size_t kMaxOfPort = mad::kMaxRmppBytes;
constexpr size_t kMaxSendingsOfPort = 256;
// Maximum number of datagrams of one message per piece of its user's turn.
constexpr int kAtOnce = 32;

constexpr size_t blocks_of(size_t bytes) {
  return (bytes + kBlock - 1) / kBlock;
}

}  // namespace

// ---- sending

LongMessages::Entry::Entry(LongMessages& all, const RmppKey& key, Sending from,
                           std::vector<std::byte> message)
    : sending(std::move(from)),
      sender(std::move(message), std::chrono::milliseconds(sending.header.timeout_ms),
             std::min(sending.header.retries, kMaxRetries), MonotonicClock::now()),
      timer(all.loop_, sending.user, [&all, key] { all.on_deadline(key); }) {}

bool LongMessages::has_room(uint64_t port, uid_t user) const {
  if (!quota_->allows(user, blocks_of(mad::kMaxRmppBytes))) return false;
  const auto found = load_of_port_.find(port);
  return found == load_of_port_.end() ||
         (found->second.bytes < kMaxOfPort && found->second.messages < kMaxSendingsOfPort);
}

QuotaShare LongMessages::reserve(uid_t user, size_t bytes) {
  return take_share(quota_, user, blocks_of(bytes));
}

void LongMessages::send(Sending sending, std::vector<std::byte> message) {
  Mad first;
  std::copy_n(message.begin(), std::min(message.size(), first.bytes.size()), first.bytes.begin());
  const roce::Address other = sending.to ? sending.to->path.destination : roce::Address();
  const RmppKey key = mad::rmpp_key(sending.device_index, other, first);
  if (sendings_.contains(key)) return;
  quota_->take(sending.user, blocks_of(message.size()));
  Load& load = load_of_port_[sending.port];
  load.bytes += message.size();
  ++load.messages;
  Entry& entry = sendings_.try_emplace(key, *this, key, std::move(sending), std::move(message)).first->second;
  pump_later(key, entry);
  entry.timer.arm(entry.sender.deadline());
}

void LongMessages::pump_later(const RmppKey& key, Entry& entry) {
  if (entry.is_pumped) return;
  loop_.in_turn_of(entry.sending.user, [this, key] {
    pump(key);
    return false;
  });
  entry.is_pumped = true;
}

// Sends some segments. Makes them all first: a segment may be for this link itself, and the reply to it may
// end the message.
void LongMessages::pump(const RmppKey& key) {
  const auto found = sendings_.find(key);
  if (found == sendings_.end()) return;
  Entry& entry = found->second;
  entry.is_pumped = false;
  std::vector<Mad> segments;
  for (int i = 0; i < kAtOnce; ++i) {
    const auto segment = entry.sender.next();
    if (!segment) break;
    segments.push_back(*segment);
  }
  if (entry.sender.has_next()) pump_later(key, entry);
  const Sending sending = entry.sending;
  for (const Mad& each : segments) host_.send_segment(sending, each);
}

// Replies last, when no entry is in use: where the other end is on this link, it takes the reply at once, and
// its answer may end this message or another.
bool LongMessages::on_control(uint32_t device_index, const Mad& mad, const Correspondent& from) {
  const RmppKey key = mad::rmpp_key_answered_by(device_index, from.path.destination, mad);
  const auto found = sendings_.find(key);
  if (found == sendings_.end()) return false;
  Entry& entry = found->second;
  std::optional<Mad> reply = entry.sender.on_control(mad, MonotonicClock::now());
  // The sender of a request acknowledges the last ACK, so that the answer may begin (13.6.6.3).
  const bool wants_answer = entry.sending.header.timeout_ms != 0;
  if (wants_answer && entry.sender.state() == RmppSender::State::kDone) reply = mad::rmpp_ack(mad, 0, 1);
  entry.timer.arm(entry.sender.deadline());
  settle(found);
  if (reply) host_.reply(device_index, *reply, from);
  return true;
}

void LongMessages::settle(Map::iterator entry) {
  const RmppSender& sender = entry->second.sender;
  const RmppSender::State state = sender.state();
  if (state == RmppSender::State::kGoing) {
    if (sender.has_next()) pump_later(entry->first, entry->second);
    return;
  }
  // The sender of a refused message is not told, as in the kernel.
  if (state != RmppSender::State::kRefused) {
    host_.on_sent(entry->second.sending, sender.first(), state == RmppSender::State::kDone);
  }
  erase(entry);
  host_.resume_all();
}

LongMessages::Map::iterator LongMessages::erase(Map::const_iterator entry) {
  const size_t bytes = entry->second.sender.bytes();
  quota_->give_back(entry->second.sending.user, blocks_of(bytes));
  const auto load = load_of_port_.find(entry->second.sending.port);
  load->second.bytes -= bytes;
  if (--load->second.messages == 0) load_of_port_.erase(load);
  return sendings_.erase(entry);
}

LongMessages::Map::const_iterator LongMessages::find(uint32_t device_index, const Mad& answer,
                                                     const Correspondent& from) const {
  const auto found = sendings_.find(mad::rmpp_key_answered_by(device_index, from.path.destination, answer));
  if (found == sendings_.end()) return found;
  const Sending& sending = found->second.sending;
  const bool is_it = sending.header.timeout_ms != 0 && sending.to && from.is_at(*sending.to);
  return is_it ? found : sendings_.end();
}

std::optional<LongMessages::Sending> LongMessages::answered(uint32_t device_index, const Mad& answer,
                                                            const Correspondent& from) {
  const auto found = find(device_index, answer, from);
  if (found == sendings_.end()) return std::nullopt;
  Sending sending = found->second.sending;
  erase(found);
  host_.resume_all();
  return sending;
}

template <class IsIt>
void LongMessages::remove_if(IsIt is_it) {
  const size_t before = sendings_.size();
  for (auto entry = sendings_.begin(); entry != sendings_.end();) {
    entry = is_it(entry->second.sending) ? erase(entry) : std::next(entry);
  }
  if (sendings_.size() != before) host_.resume_all();  // for other ports of the user
}

void LongMessages::remove_port(uint64_t port) {
  remove_if([&](const Sending& each) { return each.port == port; });
}

void LongMessages::remove_agent(uint64_t port, uint32_t agent) {
  remove_if([&](const Sending& each) { return each.port == port && each.header.agent == agent; });
}

// ---- receiving

std::vector<std::byte> LongMessages::on_segment(const MadAgent& agent, const Mad& mad,
                                                const Correspondent& from) {
  auto outcome = receiver_.on_data(agent.transaction, from.path.destination, mad, MonotonicClock::now());
  if (outcome.reply) host_.reply(agent.device_index, *outcome.reply, from);
  receiver_timer_.arm(receiver_.deadline());
  return std::move(outcome.message);
}

bool LongMessages::knows(const MadAgent& agent, const Mad& mad, const Correspondent& from) const {
  return receiver_.knows(mad::rmpp_key(agent.transaction, from.path.destination, mad));
}

void LongMessages::forget(const MadAgent& agent, const Mad& abort, const Correspondent& from) {
  receiver_.forget(mad::rmpp_key(agent.transaction, from.path.destination, abort));
}

// ---- timeouts

void LongMessages::on_deadline(const RmppKey& key) {
  const auto found = sendings_.find(key);
  Entry& entry = found->second;
  const TimePoint now = MonotonicClock::now();
  if (entry.sender.deadline() <= now) entry.sender.on_deadline(now);
  entry.timer.arm(entry.sender.deadline());
  settle(found);
}

void LongMessages::abort_overdue() {
  const auto due = receiver_.take_due(MonotonicClock::now());
  receiver_timer_.arm(receiver_.deadline());
  if (due) host_.abort(static_cast<uint32_t>(due->key.owner), due->key.other, due->reply);
}

}  // namespace verbena::agent

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <verbena/cm.hpp>
#include <verbena/rpc/record.hpp>
#include <verbena/rpc/replies.hpp>

namespace verbena::rpc::detail {

using verbena::detail::list;
using verbena::detail::wait_in;
using verbena::detail::waiter;

// How a client and a server reach each other: by connections of verbs. A simulation has another class for the
// template parameter Network.
struct verbs_network {
  using connection = verbena::connection;
  using listener = verbena::listener;
  static task<connection> connect(loop& io, std::string where, const connection_options& options) {
    return verbena::connect(io, std::move(where), options);
  }
};

// Memory of this end that the peer of a connection may READ.
template <class Connection>
using memory_of = decltype(std::declval<Connection&>().share(std::size_t{}, access{}));

// A connection that carries records (rpc/record.hpp). Joins the records of one turn of the loop into
// messages, and keeps the messages for which the peer has no receive yet. Belongs to the loop's thread; its
// own coroutines share it.
//
// The link of a server limits what a client can make it keep: see serve(). The link of a client always takes
// replies, also while its own calls wait. If both ends took no messages while they have much to send, each
// would wait for the other.
template <class Connection>
class link : public std::enable_shared_from_this<link<Connection>> {
 public:
  link(loop& io, Connection peer) : io_(io), connection_(std::move(peer)) {}

  // Makes this the link of a server. Messages that the client has not received count in `account` until
  // end(). If a message waits for longer than `patience`, ends the connection, at the latest after twice that
  // time. REQUIRES: nothing has been sent, and the account lives until end()
  void serve(reply_line& account, duration patience) {
    account_ = &account;
    patience_ = patience;
  }
  // Begins to send records. Call this function once.
  void start() {
    io_.spawn([self = this->shared_from_this()](loop&) { return self->transmit(); });
    io_.spawn([self = this->shared_from_this()](loop&) { return self->count_arrivals(); });
  }
  // Adds a record to the next message. If there is no memory for it, ends the connection. REQUIRES:
  // size_of(record) <= max_record()
  void send(const record& one) try {
    if (has_ended_) return;
    const std::size_t size = size_of(one);
    if (filled_ + size > capacity()) close_message();
    if (!open_) open_message();
    put(one, open_.data() + filled_);
    filled_ += size;
    waiting_bytes_ += size;
    if (!unsent_.empty()) io_.wake(unsent_.front());
  } catch (const std::exception&) {
    end();
  }
  std::size_t max_record() const { return capacity(); }
  // Whether the peer receives messages that are long enough for records.
  bool is_usable() const { return capacity() >= kMinMessage; }
  // Returns the most bytes of a payload that travels in a record, so that a message has room for several
  // records. Longer payloads go by rendezvous: the receiver fetches them by RDMA READ.
  std::size_t max_payload() const { return capacity() / 2 - kRecordHeader; }

  // Whether more than kMaxWaiting bytes wait for the peer. Then the caller should make no more work.
  bool is_congested() const { return waiting_bytes_ > kMaxWaiting && !has_ended_; }
  // Waits until the link is not congested, or has ended. Another coroutine may make it congested again before
  // the caller continues.
  auto room() {
    return wait_in(congested_, [this] { return !is_congested(); });
  }

  // Calls `on_record` for each record, until the connection ends. Returns the reason why it has failed, or
  // nothing if the peer has disconnected. If `on_record` returns false, the record is malformed, and the
  // connection ends. The link of a server takes no records while it is congested: a peer that does not read
  // is not served.
  template <class OnRecord>
  task<std::optional<error>> receive(OnRecord on_record) {
    const auto self = this->shared_from_this();
    std::optional<error> reason;
    try {
      while (!reason) {
        const buffer message = co_await connection_.receive();
        if (!message) break;
        std::span<const std::byte> rest = message.bytes();
        while (!rest.empty() && !reason) {
          while (account_ != nullptr && is_congested()) co_await room();
          if (has_ended_) break;
          const auto next = take(rest);
          if (!next || !on_record(*next)) reason = error("receive", EPROTO, {}, "the peer speaks no RPC");
        }
      }
    } catch (const exception& thrown) {
      reason = thrown.error();
    } catch (const std::exception&) {
      reason = error("receive", ENOMEM);
    }
    end();
    co_return reason;
  }

  // Waits until everything has been sent. Then disconnects.
  task<> finish() {
    const auto self = this->shared_from_this();
    const auto is_done = [this] { return waiting_bytes_ == 0 || has_ended_; };
    while (!is_done()) co_await wait_in(draining_, is_done);
    co_await connection_.close();
    end();
  }
  // Disconnects now.
  void end() {
    if (std::exchange(has_ended_, true)) return;
    account_ = nullptr;
    stalled_.stop();
    io_.wake_all(unsent_);
    io_.wake_all(sending_);
    io_.wake_all(slots_);
    io_.wake_all(congested_);
    io_.wake_all(draining_);
    connection_.disconnect();
  }
  bool has_ended() const { return has_ended_; }
  Connection& peer() { return connection_; }

 private:
  static constexpr std::size_t kMaxWaiting = std::size_t{256} << 10;
  // Messages that are under way, and their bytes.
  static constexpr std::size_t kMaxMessages = 16;
  static constexpr std::size_t kMaxUnderWay = std::size_t{256} << 10;
  static constexpr std::size_t kMinMessage = 256;
  static constexpr std::size_t kMaxMessage = std::size_t{64} << 10;
  using sending = decltype(std::declval<Connection&>().send(buffer()));

  std::size_t capacity() const { return std::min(connection_.max_message_size(), kMaxMessage); }
  void open_message() {
    open_ = connection_.make_buffer(capacity());
    ++made_;
    if (account_ == nullptr) return;
    account_->take(capacity());
    if (!stalled_.is_running()) watch();
  }
  void close_message() {
    if (!open_) return;
    open_.shrink(filled_);
    full_.push_back(std::move(open_));
    open_ = buffer();
    filled_ = 0;
  }

  // Starts a timer. If not all messages made so far have arrived when it ends, the connection ends. One timer
  // serves all messages, so that a single message costs nothing.
  void watch() {
    due_ = made_;
    stalled_.start(io_.timers(), io_.now() + patience_, [this] {
      if (arrived_ < due_) return end();
      if (arrived_ < made_) watch();
    });
  }
  bool has_slot() const { return handed_on_ - arrived_ < std::min(kMaxMessages, kMaxUnderWay / capacity()); }

  // Sends what there is, once for each turn of the loop: calls of the same turn share a message.
  task<> transmit() {
    const auto self = this->shared_from_this();
    try {
      while (!has_ended_) {
        co_await wait_in(unsent_, [this] { return waiting_bytes_ != 0 || has_ended_; });
        co_await io_.yield();
        close_message();
        while (!full_.empty() && !has_ended_) {
          co_await wait_in(slots_, [this] { return has_slot() || has_ended_; });
          if (has_ended_) break;
          buffer next = std::move(full_.front());
          full_.pop_front();
          waiting_bytes_ -= next.size();
          under_way_.push_back(connection_.send(std::move(next)));
          ++handed_on_;
          io_.wake_all(sending_);
          if (!is_congested()) io_.wake_all(congested_);
        }
        if (waiting_bytes_ == 0) io_.wake_all(draining_);
      }
    } catch (const std::exception&) {
      end();  // receive() reports the reason
    }
  }
  // Counts the messages that the peer has received, and frees their memory.
  task<> count_arrivals() {
    const auto self = this->shared_from_this();
    try {
      while (!has_ended_) {
        co_await wait_in(sending_, [this] { return !under_way_.empty() || has_ended_; });
        if (has_ended_) break;
        sending oldest = std::move(under_way_.front());
        under_way_.pop_front();
        co_await oldest;
        ++arrived_;
        if (account_ != nullptr) account_->give_back(capacity());
        io_.wake_all(slots_);
      }
    } catch (const std::exception&) {
      end();  // receive() reports the reason
    }
  }

  loop& io_;
  Connection connection_;
  buffer open_;  // the message that records are added to
  std::size_t filled_ = 0;
  std::deque<buffer> full_;
  std::size_t waiting_bytes_ = 0;                         // of records that the connection does not have yet
  std::deque<sending> under_way_;                         // without the one that count_arrivals() awaits
  std::uint64_t made_ = 0, handed_on_ = 0, arrived_ = 0;  // numbers of messages
  reply_line* account_ = nullptr;                         // of the client; nullptr: this is a client's link
  duration patience_{};
  std::uint64_t due_ = 0;           // as many messages must have arrived when `stalled_` ends
  verbena::detail::timer stalled_;  // runs while messages wait
  list<waiter> unsent_;             // transmit(), for records
  list<waiter> slots_;              // transmit(), for room under way
  list<waiter> sending_;            // count_arrivals()
  list<waiter> congested_;          // those who wait for room()
  list<waiter> draining_;           // finish()
  bool has_ended_ = false;
};

}  // namespace verbena::rpc::detail

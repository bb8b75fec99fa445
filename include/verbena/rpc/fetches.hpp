// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <verbena/cm.hpp>

// Limits the memory of large arguments and replies that an end READs. A READ has a place in the line of its
// connection: it waits there for its turn, then it has memory until its place ends. Connections wait for the
// memory that they share in order.
namespace verbena::rpc::detail {

// Bytes that are in use, and their limit. One use may be larger than the limit: then it has all for itself.
class byte_budget {
 public:
  explicit byte_budget(std::size_t limit) : limit_(limit) {}
  bool has_room(std::size_t bytes) const { return used_ == 0 || (used_ < limit_ && bytes <= limit_ - used_); }
  void take(std::size_t bytes) { used_ += bytes; }
  void give_back(std::size_t bytes) { used_ -= bytes; }
  std::size_t used() const { return used_; }

 private:
  const std::size_t limit_;
  std::size_t used_ = 0;
};

// Memory that several lines share, and those of them that wait for it.
template <class Line>
struct shared_memory {
  explicit shared_memory(std::size_t limit) : budget(limit) {}
  byte_budget budget;
  verbena::detail::list<Line> waiting;
};

class fetch_line;
using fetch_memory = shared_memory<fetch_line>;

// The READs of one connection that wait for their turn.
class fetch_line : public verbena::detail::list_node {
 public:
  // A READ, from its request for memory until nobody needs the memory.
  class place : public verbena::detail::list_node {
   public:
    // REQUIRES: the line outlives the place
    place(fetch_line& all, std::size_t bytes) : all_(all), bytes_(bytes) {
      all_.waiting_.push_back(*this);
      all_.advance();
    }
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    ~place() {
      unlink();
      if (has_turn_) all_.give_back(bytes_);
      end_read();
      all_.advance();
      all_.advance_others();
    }
    // Waits until the READ may begin.
    auto turn() {
      return verbena::detail::wait_in(awaiting_, [this] { return has_turn_; });
    }
    // The READ has ended. The place keeps the memory.
    void end_read() {
      if (!is_reading_) return;
      is_reading_ = false;
      --all_.reads_;
      all_.advance();
    }

   private:
    friend class fetch_line;
    fetch_line& all_;
    const std::size_t bytes_;
    bool has_turn_ = false;
    bool is_reading_ = false;
    verbena::detail::list<verbena::detail::waiter> awaiting_;
  };

  fetch_line(loop& io, fetch_memory& shared, std::size_t limit) : io_(io), shared_(shared), budget_(limit) {}
  ~fetch_line() {
    unlink();
    advance_others();
  }

 private:
  // A connection posts no more READs at once (initiator_depth); further ones would wait with their buffers.
  static constexpr std::size_t kMaxReads = 16;

  // Lets READs have their turn while there is room. Returns false if the first waits for the shared memory.
  bool advance() {
    while (!waiting_.empty() && reads_ < kMaxReads && budget_.has_room(waiting_.front().bytes_)) {
      place& first = waiting_.front();
      if (is_behind_others() || !shared_.budget.has_room(first.bytes_)) {
        if (!is_linked()) shared_.waiting.push_back(*this);
        return false;
      }
      first.unlink();
      begin(first);
    }
    unlink();
    return true;
  }
  void begin(place& one) {
    budget_.take(one.bytes_);
    shared_.budget.take(one.bytes_);
    ++reads_;
    one.has_turn_ = one.is_reading_ = true;
    io_.wake_all(one.awaiting_);
  }
  // Whether other lines have waited for longer.
  bool is_behind_others() const { return !shared_.waiting.empty() && &shared_.waiting.front() != this; }
  void give_back(std::size_t bytes) {
    budget_.give_back(bytes);
    shared_.budget.give_back(bytes);
  }
  void advance_others() {
    while (!shared_.waiting.empty() && shared_.waiting.front().advance()) {
    }
  }

  loop& io_;
  fetch_memory& shared_;
  byte_budget budget_;
  std::size_t reads_ = 0;
  verbena::detail::list<place> waiting_;
};

}  // namespace verbena::rpc::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <verbena/cm.hpp>

// Limits the memory of large arguments. A call has a place in the line of its client: it waits there for its
// turn, then it has memory for its arguments until its end. Clients wait for memory of the server in order.
namespace verbena::rpc::detail {

// Bytes that are in use, and their limit. One call may be larger than the limit: then it has all for itself.
class byte_budget {
 public:
  explicit byte_budget(std::size_t limit) : limit_(limit) {}
  bool has_room(std::size_t bytes) const { return used_ == 0 || (used_ < limit_ && bytes <= limit_ - used_); }
  void take(std::size_t bytes) { used_ += bytes; }
  void give_back(std::size_t bytes) { used_ -= bytes; }

 private:
  const std::size_t limit_;
  std::size_t used_ = 0;
};

class argument_line;

// The memory of a server, and the lines whose first call waits for it.
struct argument_memory {
  explicit argument_memory(std::size_t limit) : budget(limit) {}
  byte_budget budget;
  verbena::detail::list<argument_line> waiting;
};

// The calls of one client that wait for their turn to fetch their arguments.
class argument_line : public verbena::detail::list_node {
 public:
  // A call, from its request for memory until its end.
  class place : public verbena::detail::list_node {
   public:
    // REQUIRES: the line outlives the place
    place(argument_line& all, std::size_t bytes) : all_(all), bytes_(bytes) {
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
    // Waits until the call may READ its arguments.
    auto turn() {
      return verbena::detail::wait_in(awaiting_, [this] { return has_turn_; });
    }
    // The READ has ended. The call keeps the memory.
    void end_read() {
      if (!is_reading_) return;
      is_reading_ = false;
      --all_.reads_;
      all_.advance();
    }

   private:
    friend class argument_line;
    argument_line& all_;
    const std::size_t bytes_;
    bool has_turn_ = false;
    bool is_reading_ = false;
    verbena::detail::list<verbena::detail::waiter> awaiting_;
  };

  argument_line(loop& io, argument_memory& of_server, std::size_t limit)
      : io_(io), of_server_(of_server), budget_(limit) {}
  ~argument_line() {
    unlink();
    advance_others();
  }

 private:
  // A connection posts no more READs at once (initiator_depth); further ones would wait with their buffers.
  static constexpr std::size_t kMaxReads = 16;

  // Lets calls have their turn while there is room. Returns false if the first waits for the server's memory.
  bool advance() {
    while (!waiting_.empty() && reads_ < kMaxReads && budget_.has_room(waiting_.front().bytes_)) {
      place& first = waiting_.front();
      if (is_behind_others() || !of_server_.budget.has_room(first.bytes_)) {
        if (!is_linked()) of_server_.waiting.push_back(*this);
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
    of_server_.budget.take(one.bytes_);
    ++reads_;
    one.has_turn_ = one.is_reading_ = true;
    io_.wake_all(one.awaiting_);
  }
  // Whether other lines have waited for longer.
  bool is_behind_others() const { return !of_server_.waiting.empty() && &of_server_.waiting.front() != this; }
  void give_back(std::size_t bytes) {
    budget_.give_back(bytes);
    of_server_.budget.give_back(bytes);
  }
  void advance_others() {
    while (!of_server_.waiting.empty() && of_server_.waiting.front().advance()) {
    }
  }

  loop& io_;
  argument_memory& of_server_;
  byte_budget budget_;
  std::size_t reads_ = 0;
  verbena::detail::list<place> waiting_;
};

}  // namespace verbena::rpc::detail

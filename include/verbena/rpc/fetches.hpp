// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include <verbena/cm.hpp>

// Limits the memory of large arguments and replies that an end fetches by RDMA READ. Each READ has a place in
// the queue of its connection (class fetch_line), and waits there for its turn. From its turn until its place
// is destroyed, it has memory. Connections of one host wait in order for the memory that all connections
// share.
namespace verbena::rpc::detail {

// The number of bytes that are in use, and its limit. A single use may be larger than the limit if no other
// bytes are in use.
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

// A number of bytes that the connections of all hosts share, and the connections that wait for some of them.
// Line is the class of a connection's queue: fetch_line or reply_line.
//
// There is no fixed share for a host. A host may take more if it then has at most twice the bytes that are
// still free. So a single host gets at most two thirds. Two hosts get two fifths each, and a fifth stays
// free. A host without any bytes may always take some, even beyond the limit: others cannot keep it waiting.
template <class Line>
class shared_memory {
 public:
  // The bytes that the connections of one host have, and its connections that wait for more.
  struct share : verbena::detail::list_node {
    std::size_t used = 0;
    verbena::detail::list<Line> waiting;
  };

  explicit shared_memory(std::size_t limit) : limit_(limit) {}

  // Returns the share of a host. The share ends with the last copy of the result. REQUIRES: this object
  // outlives the share
  std::shared_ptr<share> share_of(const std::string& host) {
    std::weak_ptr<share>& known = shares_[host];
    std::shared_ptr<share> found = known.lock();
    if (found == nullptr) {
      found = {new share, [this, host](share* last) {
                 shares_.erase(host);
                 delete last;
               }};
      known = found;
    }
    return found;
  }
  // Returns whether a host may take this many bytes now.
  bool has_room(const share& its, std::size_t bytes) const {
    const std::size_t left = limit_ > used_ ? limit_ - used_ : 0;
    return its.used == 0 || (bytes <= left && (its.used + bytes) / 2 <= left - bytes);
  }
  void take(share& its, std::size_t bytes) {
    its.used += bytes;
    used_ += bytes;
  }
  void give_back(share& its, std::size_t bytes) {
    its.used -= bytes;
    used_ -= bytes;
  }

  // Lets a connection wait for bytes, behind the other connections of its host.
  void wait(share& its, Line& last) {
    its.waiting.push_back(last);
    if (!its.is_linked()) waiting_.push_back(its);
  }
  // Calls `go_on` with the first waiting connection of each host. While `go_on` returns true, calls it with
  // the next connection of the same host. REQUIRES: `go_on` unlinks the connection if it returns true
  template <class GoOn>
  void visit(GoOn go_on) {
    verbena::detail::list<share> all;
    all.take(waiting_);
    while (!all.empty()) {
      share& each = all.front();
      each.unlink();
      while (!each.waiting.empty() && go_on(each.waiting.front())) {
      }
      if (!each.waiting.empty()) waiting_.push_back(each);
    }
  }

 private:
  const std::size_t limit_;
  std::size_t used_ = 0;
  std::map<std::string, std::weak_ptr<share>> shares_;
  verbena::detail::list<share> waiting_;
};

class fetch_line;
using fetch_memory = shared_memory<fetch_line>;

// The queue of one connection: its READs that wait for their turn.
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
    // Notes that the READ has ended. The place keeps the memory.
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

  // `limit`: bytes for this connection. `host`: that of the peer (connection::peer_host()).
  fetch_line(loop& io, fetch_memory& shared, std::size_t limit, const std::string& host)
      : io_(io), shared_(shared), share_(shared.share_of(host)), budget_(limit) {}
  ~fetch_line() {
    unlink();
    advance_others();
  }

 private:
  // The READs that a connection posts at once (initiator_depth). Further ones would wait in the adapter with
  // their buffers.
  static constexpr std::size_t kMaxReads = 16;

  // Gives the waiting READs their turn, in order, while there is memory for them. Returns false if the first
  // waiting READ waits for the shared memory.
  bool advance() {
    while (!waiting_.empty() && reads_ < kMaxReads && budget_.has_room(waiting_.front().bytes_)) {
      place& first = waiting_.front();
      if (is_behind_others() || !shared_.has_room(*share_, first.bytes_)) {
        if (!is_linked()) shared_.wait(*share_, *this);
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
    shared_.take(*share_, one.bytes_);
    ++reads_;
    one.has_turn_ = one.is_reading_ = true;
    io_.wake_all(one.awaiting_);
  }
  // Whether other connections of the host have waited for longer.
  bool is_behind_others() const { return !share_->waiting.empty() && &share_->waiting.front() != this; }
  void give_back(std::size_t bytes) {
    budget_.give_back(bytes);
    shared_.give_back(*share_, bytes);
  }
  void advance_others() {
    shared_.visit([](fetch_line& each) { return each.advance(); });
  }

  loop& io_;
  fetch_memory& shared_;
  const std::shared_ptr<fetch_memory::share> share_;
  byte_budget budget_;
  std::size_t reads_ = 0;
  verbena::detail::list<place> waiting_;
};

}  // namespace verbena::rpc::detail

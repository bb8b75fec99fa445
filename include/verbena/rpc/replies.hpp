// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <verbena/cm.hpp>
#include <verbena/rpc/fetches.hpp>

// Limits the memory of replies that clients have not received: large replies that they do not fetch, and
// messages for which they have no receive. A method begins only when its client may have a further reply. The
// length of the reply is known only when the method ends. So methods that run at the same time may exceed the
// limit together. If a host has received all its replies, its next call runs even when other hosts use much.
namespace verbena::rpc::detail {

class reply_line;
using reply_memory = shared_memory<reply_line>;

// The replies of one client, and the calls that wait until it has received some.
class reply_line : public verbena::detail::list_node {
 public:
  // `limit`: bytes for this client. `host`: that of the client (connection::peer_host()).
  reply_line(loop& io, reply_memory& of_server, std::size_t limit, const std::string& host)
      : io_(io), of_server_(of_server), share_(of_server.share_of(host)), budget_(limit) {}
  ~reply_line() {
    unlink();
    give_back(budget_.used());
  }

  // Returns whether the client may have a further reply now.
  bool has_room() const { return budget_.has_room(1) && of_server_.has_room(*share_, 1); }
  // Waits until has_room(). Each waiting call checks has_room() again when it continues, because another call
  // may have used the room meanwhile.
  task<> room() {
    while (!has_room()) {
      // Where its own budget is full, only its own replies make room.
      if (!is_linked() && budget_.has_room(1)) of_server_.wait(*share_, *this);
      co_await verbena::detail::wait_in(waiting_, [this] { return has_room(); });
    }
  }
  void take(std::size_t bytes) {
    budget_.take(bytes);
    of_server_.take(*share_, bytes);
  }
  void give_back(std::size_t bytes) {
    budget_.give_back(bytes);
    of_server_.give_back(*share_, bytes);
    io_.wake_all(waiting_);
    of_server_.visit([](reply_line& each) {
      if (!each.of_server_.has_room(*each.share_, 1)) return false;
      each.unlink();
      each.io_.wake_all(each.waiting_);
      return true;
    });
  }

 private:
  loop& io_;
  reply_memory& of_server_;
  const std::shared_ptr<reply_memory::share> share_;
  byte_budget budget_;
  verbena::detail::list<verbena::detail::waiter> waiting_;
};

}  // namespace verbena::rpc::detail

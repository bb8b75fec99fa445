// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <verbena/cm.hpp>
#include <verbena/rpc/fetches.hpp>

// Limits the memory of replies that clients have not received: large ones that they do not fetch, and
// messages that wait for their credits. A method waits until its client has room. The length of its reply is
// known only when it ends. So methods that run at the same time may exceed the limit together. A host that
// has received all its replies may run a call whatever others have.
namespace verbena::rpc::detail {

class reply_line;
using reply_memory = shared_memory<reply_line>;

// The replies of one client, and the calls that wait until it has received some.
class reply_line : public verbena::detail::list_node {
 public:
  // `host`: the client's.
  reply_line(loop& io, reply_memory& of_server, std::size_t limit, const std::string& host)
      : io_(io), of_server_(of_server), share_(of_server.share_of(host)), budget_(limit) {}
  ~reply_line() {
    unlink();
    give_back(budget_.used());
  }

  bool has_room() const { return budget_.has_room(1) && of_server_.has_room(*share_, 1); }
  // Waits until there is room. Those that wait go on one after the other, as a reply may take the room.
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <verbena/cm.hpp>
#include <verbena/rpc/fetches.hpp>

// Limits the memory of large replies that clients have not fetched. A method waits until its client has room.
// The length of its reply is known only when it ends. So methods that run at the same time may exceed the
// limit together.
namespace verbena::rpc::detail {

class reply_line;
using reply_memory = shared_memory<reply_line>;

// The replies of one client, and the calls that wait until some are fetched.
class reply_line : public verbena::detail::list_node {
 public:
  reply_line(loop& io, reply_memory& of_server, std::size_t limit)
      : io_(io), of_server_(of_server), budget_(limit) {}
  ~reply_line() { give_back(budget_.used()); }

  bool has_room() const { return budget_.has_room(1) && of_server_.budget.has_room(1); }
  // Waits until there is room. Those that wait go on one after the other, as a reply may take the room.
  task<> room() {
    while (!has_room()) {
      if (!is_linked()) of_server_.waiting.push_back(*this);
      co_await verbena::detail::wait_in(waiting_, [this] { return has_room(); });
    }
  }
  void take(std::size_t bytes) {
    budget_.take(bytes);
    of_server_.budget.take(bytes);
  }
  void give_back(std::size_t bytes) {
    const bool others_wait = !of_server_.budget.has_room(1);
    budget_.give_back(bytes);
    of_server_.budget.give_back(bytes);
    io_.wake_all(waiting_);
    if (!others_wait) return;
    while (!of_server_.waiting.empty()) {
      reply_line& each = of_server_.waiting.front();
      each.unlink();
      io_.wake_all(each.waiting_);
    }
  }

 private:
  loop& io_;
  reply_memory& of_server_;
  byte_budget budget_;
  verbena::detail::list<verbena::detail::waiter> waiting_;
};

}  // namespace verbena::rpc::detail

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <verbena/cm.hpp>
#include <verbena/rpc/fetches.hpp>
#include <verbena/rpc/link.hpp>
#include <verbena/rpc/record.hpp>
#include <verbena/rpc/replies.hpp>
#include <verbena/rpc/service.hpp>

namespace verbena::rpc {

struct server_options {
  std::size_t max_calls = 1024;  // of one client at a time; further calls wait in the client
  // The most bytes of one call's arguments. Calls with longer arguments fail with EMSGSIZE. So do calls with
  // 2 GiB and more, whatever this option says.
  std::size_t max_arguments = std::size_t{16} << 20;
  // The most bytes of large arguments that the calls of one client, and of all clients, have at a time.
  // Further calls wait. A single call may be larger. The hosts of clients share max_all_arguments. A host
  // that has no bytes need not wait. A host that has some may have to wait while others use much.
  std::size_t max_client_arguments = std::size_t{64} << 20;
  std::size_t max_all_arguments = std::size_t{1} << 30;
  // The most bytes of replies that one client, and all clients, have not received yet. Further calls wait.
  // Hosts share max_all_replies in the same way.
  std::size_t max_client_replies = std::size_t{64} << 20;
  std::size_t max_all_replies = std::size_t{1} << 30;
  // How long a client may keep the server waiting. It loses its connection if the READ of a call's arguments
  // takes longer, or if it does not fetch a large reply within this time. If it does not receive a message,
  // it loses its connection after one to two times this time.
  duration patience = std::chrono::seconds(30);
  // All clients of a loop share receives, so that idle ones cost little.
  connection_options connection = {.shared_receives = 2048};
};

namespace detail {

// The calls of one client. The window (kind::window) tells the client how many calls it may have at a time. A
// call beyond the window ends the connection.
template <class Connection>
class session : public std::enable_shared_from_this<session<Connection>> {
 public:
  session(loop& io, const service& methods, const server_options& options, fetch_memory& arguments,
          reply_memory& replies, Connection peer)
      : io_(io),
        methods_(methods),
        options_(options),
        link_(std::make_shared<link<Connection>>(io, std::move(peer))),
        host_(link_->peer().peer_host()),
        arguments_(io, arguments, options.max_client_arguments, host_),
        replies_(io, replies, options.max_client_replies, host_) {
    link_->serve(replies_, options.patience);
  }
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session() { link_->end(); }

  // Serves the client until it disconnects.
  task<> run() {
    const auto self = this->shared_from_this();
    if (!link_->is_usable()) co_return;
    link_->start();
    link_->send({kind::window, 0, options_.max_calls});
    co_await link_->receive([this](const record& one) { return take_in(one); });
    const auto ending = std::exchange(calls_, {});  // the end of a call may call released()
  }
  // Takes no further calls. Disconnects when those that run have ended.
  void stop() {
    is_stopping_ = true;
    link_->send({kind::goodbye});
    finish_if_done();
  }
  // Disconnects now.
  void end() { link_->end(); }

 private:
  // A call, from its arrival until its reply has been given to the link. If the reply is large, the call
  // lasts until the client has fetched the reply.
  struct call final : running_call {
    explicit call(session& owner) : its(owner) {}
    std::shared_ptr<void> hold() override { return its.hold(*this); }

    session& its;
    std::uint64_t number = 0;
    std::string arguments;
    std::unique_ptr<fetch_line::place> large_arguments;
    std::optional<task<>> work;
    std::uint64_t hold_number = 0;  // 0: nobody holds it
    bool is_fetching = false;       // the READ of its arguments is under way
    bool is_cancelled = false;
    bool has_ended = false;      // of `work`
    bool was_suspended = false;  // `work` cannot destroy itself at its end: forget_ended() does
    std::optional<memory_of<Connection>> large_reply;  // until the client has fetched it
    verbena::detail::timer stalled;                    // of a READ that is under way or due
    bool is_over() const { return has_ended && !large_reply; }
  };

  bool take_in(const record& one) {
    switch (one.what) {
      case kind::call:
        return begin(one, [&](call& added, const service::handler& handler) {
          added.arguments = text_of(one.payload);
          return answer(added, handler);
        });
      case kind::large_call: {
        remote_slice there;
        if (one.payload.size() != sizeof there) return false;
        std::memcpy(&there, one.payload.data(), sizeof there);
        return begin(one, [&](call& added, const service::handler& handler) {
          return fetch_and_answer(added, handler, there);
        });
      }
      case kind::cancel:
        return cancel(one.call);
      case kind::fetched:
        return finish_large(one.call);
      default:
        return false;
    }
  }
  template <class Start>
  bool begin(const record& one, Start start) {
    const service::handler* const handler = methods_.find(one.method);
    if (is_stopping_) return fail(one.call, ESHUTDOWN, "the server ends"), true;
    if (handler == nullptr) return fail(one.call, ENOSYS, "the server has no such method"), true;
    if (calls_.size() >= options_.max_calls) return false;
    const auto [place, is_new] = calls_.emplace(one.call, std::make_unique<call>(*this));
    if (!is_new) return false;
    call& added = *place->second;
    added.number = one.call;
    added.work.emplace(start(added, *handler));
    added.work->handle().resume();  // up to its first suspension: most calls are answered then
    added.was_suspended = !added.has_ended;
    if (added.is_over()) calls_.erase(one.call);
    return true;
  }
  // Ends the call where it is suspended. The server answers when the READ of its arguments has ended and
  // nobody holds the call (running_call::hold()). Until then it counts among max_calls, and the client keeps
  // the memory of its arguments. Always returns true: a call that has ended already needs no cancelling.
  bool cancel(std::uint64_t number) {
    const auto found = calls_.find(number);
    if (found == calls_.end() || found->second->has_ended || found->second->is_cancelled) return true;
    call& own = *found->second;
    if (!own.is_fetching) own.work.reset();  // may call released()
    own.is_cancelled = true;
    if (!own.is_fetching && own.hold_number == 0) finish_cancelled(number);
    return true;
  }
  void finish_cancelled(std::uint64_t number) {
    calls_.erase(number);
    fail(number, ECANCELED, {});
    finish_if_done();
  }
  std::shared_ptr<void> hold(call& own) {
    own.hold_number = ++holds_;
    return {this, [self = this->weak_from_this(), number = own.number, hold = holds_](void*) {
              if (const auto there = self.lock()) there->released(number, hold);
            }};
  }
  void released(std::uint64_t number, std::uint64_t hold) {
    const auto found = calls_.find(number);
    if (found == calls_.end() || found->second->hold_number != hold) return;
    found->second->hold_number = 0;
    if (found->second->is_cancelled) finish_cancelled(number);
  }
  bool finish_large(std::uint64_t number) {
    const auto found = calls_.find(number);
    if (found == calls_.end() || !found->second->large_reply) return false;
    const std::size_t bytes = found->second->large_reply->remote().size;
    found->second->large_reply.reset();
    found->second->stalled.stop();
    if (found->second->is_over()) calls_.erase(found);
    replies_.give_back(bytes);
    finish_if_done();
    return true;
  }

  task<> answer(call& own, const service::handler& handler) {
    try {
      if (!has_room()) co_await room();
      send_reply(own, co_await handler(bytes_of(own.arguments), own));
    } catch (const exception& thrown) {
      fail(own.number, thrown.error().code(), thrown.what());
    } catch (const std::exception& thrown) {
      fail(own.number, EIO, thrown.what());
    }
    end(own);
  }
  task<> fetch_and_answer(call& own, const service::handler& handler, remote_slice there) {
    if (there.size > std::min(options_.max_arguments, kMaxData)) {
      fail(own.number, EMSGSIZE, "the arguments are longer than server_options::max_arguments");
      co_return end(own);
    }
    try {
      co_await fetch(own, there);
    } catch (const std::exception& thrown) {
      fail(own.number, ENOMEM, thrown.what());
      co_return end(own);
    }
    if (own.is_cancelled) {
      fail(own.number, ECANCELED, {});
      co_return end(own);
    }
    co_await answer(own, handler);
  }
  // Takes memory for the arguments when it is the call's turn, and READs them.
  task<> fetch(call& own, remote_slice there) {
    own.large_arguments = std::make_unique<fetch_line::place>(arguments_, there.size);
    co_await own.large_arguments->turn();
    auto reading = link_->peer().read(there);
    own.is_fetching = true;
    await_read(own);
    const buffer arrived = co_await reading;
    own.stalled.stop();
    own.is_fetching = false;
    if (!own.is_cancelled) own.arguments = arrived.text();
    own.large_arguments->end_read();
  }
  void end(call& own) {
    own.has_ended = true;
    own.large_arguments.reset();
    if (!own.was_suspended) return;
    ended_.push_back(own.number);
    clean_up_.start(io_.timers(), io_.now(), [this] { forget_ended(); });
  }
  void forget_ended() {
    for (const std::uint64_t number : ended_) {
      const auto found = calls_.find(number);
      if (found != calls_.end() && found->second->is_over()) calls_.erase(found);
    }
    ended_.clear();
    finish_if_done();
  }
  void finish_if_done() {
    if (is_stopping_ && calls_.empty() && !std::exchange(is_done_, true))
      io_.spawn([kept = link_](loop&) { return kept->finish(); });
  }

  // Whether the client has received enough of its replies to get another one.
  bool has_room() const { return replies_.has_room() && !link_->is_congested(); }
  task<> room() {
    while (!has_room()) {
      if (link_->is_congested()) {
        co_await link_->room();
      } else {
        co_await replies_.room();
      }
    }
  }
  void send_reply(call& own, const reply& made) {
    if (made.code() != 0) return fail(own.number, made.code(), made.bytes());
    if (made.bytes().size() <= link_->max_payload())
      return link_->send({kind::reply, 0, own.number, 0, bytes_of(made.bytes())});
    own.large_reply.emplace(link_->peer().share(made.bytes().size(), access::remote_read));
    std::memcpy(own.large_reply->data(), made.bytes().data(), made.bytes().size());
    replies_.take(made.bytes().size());
    await_read(own);
    const remote_slice there = own.large_reply->remote();
    link_->send({kind::large_reply, 0, own.number, 0, std::as_bytes(std::span(&there, 1))});
  }
  // Ends the connection unless a READ ends in time: of arguments by this end, or of a reply by the client.
  void await_read(call& own) {
    own.stalled.start(io_.timers(), io_.now() + options_.patience, [this] { link_->end(); });
  }
  void fail(std::uint64_t number, int code, std::string_view why) {
    link_->send({kind::failure, static_cast<std::uint16_t>(code), number, 0,
                 bytes_of(why.substr(0, link_->max_payload()))});
  }

  loop& io_;
  const service& methods_;
  const server_options& options_;
  const std::shared_ptr<link<Connection>> link_;
  const std::string host_;  // the client's
  fetch_line arguments_;
  reply_line replies_;
  std::uint64_t holds_ = 0;  // number of holds so far
  std::unordered_map<std::uint64_t, std::unique_ptr<call>> calls_;
  std::vector<std::uint64_t> ended_;
  verbena::detail::timer clean_up_;
  bool is_stopping_ = false;
  bool is_done_ = false;
};

}  // namespace detail

// Serves the methods of a service to any number of clients. Belongs to its loop's thread. Its destruction
// disconnects all clients; await stop() to let their calls end first.
//
// The server speaks RDMA only, and never falls back to TCP: a host without an adapter fails with an error.
template <class Network>
class basic_server {
 public:
  // `where`: the address to listen at, such as "[::]:7471" or "10.0.0.1:0". REQUIRES: io and methods outlive
  // the server. Throws exception.
  basic_server(loop& io, std::string_view where, const service& methods, const server_options& options = {})
      : io_(io),
        methods_(methods),
        options_(options),
        arguments_(options.max_all_arguments),
        replies_(options.max_all_replies),
        listener_(io, where, options.connection) {
    accepting_.emplace(accept());
    start_.suspend(accepting_->handle());
    io_.wake(start_);
  }
  basic_server(const basic_server&) = delete;
  basic_server& operator=(const basic_server&) = delete;

  std::uint16_t port() const { return listener_.port(); }
  // Makes a T that the clients may reach by one-sided operations: see listener::share() and client::get().
  template <class T>
  shared<T> share() {
    return listener_.template share<T>();
  }
  // Number of clients that are connected.
  std::size_t clients() const { return clients_.size(); }

  // Accepts no further clients and calls, lets the running calls end, and disconnects. After
  // server_options::patience, disconnects the clients whose calls have not ended, or that have not received
  // their replies.
  task<> stop() {
    start_.unlink();  // the loop may not have begun accept() yet
    accepting_.reset();
    for (const client& each : clients_) each.own->stop();
    verbena::detail::timer late;
    late.start(io_.timers(), io_.now() + options_.patience, [this] {
      for (const client& each : clients_) each.own->end();
    });
    while (!clients_.empty())
      co_await verbena::detail::wait_in(stopping_, [this] { return clients_.empty(); });
  }

 private:
  using connection = typename Network::connection;
  struct client {
    std::shared_ptr<detail::session<connection>> own;
    std::optional<task<>> work;
    verbena::detail::waiter start;
  };
  using place = typename std::list<client>::iterator;

  task<> accept() {
    for (;;) {
      connection peer = co_await listener_.accept();
      client& added = clients_.emplace_back();
      added.own = std::make_shared<detail::session<connection>>(io_, methods_, options_, arguments_, replies_,
                                                                std::move(peer));
      added.work.emplace(serve(std::prev(clients_.end())));
      added.start.suspend(added.work->handle());
      io_.wake(added.start);
    }
  }
  task<> serve(place one) {
    co_await one->own->run();
    ended_.push_back(one);
    clean_up_.start(io_.timers(), io_.now(), [this] { forget_ended(); });
  }
  void forget_ended() {
    for (const place each : std::exchange(ended_, {})) clients_.erase(each);
    io_.wake_all(stopping_);
  }

  loop& io_;
  const service& methods_;
  const server_options options_;
  detail::fetch_memory arguments_;
  detail::reply_memory replies_;
  typename Network::listener listener_;
  std::list<client> clients_;
  std::vector<place> ended_;
  verbena::detail::timer clean_up_;
  verbena::detail::list<verbena::detail::waiter> stopping_;
  std::optional<task<>> accepting_;
  verbena::detail::waiter start_;
};

using server = basic_server<detail::verbs_network>;

}  // namespace verbena::rpc

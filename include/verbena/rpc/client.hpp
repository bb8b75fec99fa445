// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <verbena/cm.hpp>
#include <verbena/rpc/fetches.hpp>
#include <verbena/rpc/link.hpp>
#include <verbena/rpc/record.hpp>

namespace verbena::rpc {

struct client_options {
  // How long idempotent calls wait for a new connection after one was lost.
  duration reconnect = std::chrono::seconds(5);
  // The most bytes of one reply. Calls with longer replies fail with EMSGSIZE. So do calls with replies of 2
  // GiB and more, whatever this option says.
  std::size_t max_reply = std::size_t{64} << 20;
  // The most bytes of large replies that are fetched at a time. A single reply may be larger.
  std::size_t max_replies = std::size_t{64} << 20;
  // How long close() waits for the server: for replies, and until the last messages have arrived.
  duration patience = std::chrono::seconds(30);
  connection_options connection = {};
};

struct call_options {
  duration deadline = duration::max();  // from the beginning of the call; max(): none
  // Running the method twice does no harm: the call is repeated if its connection is lost.
  bool idempotent = false;
};

namespace detail {

// A call, from its beginning until the server has answered and the program has released it.
template <class Connection>
struct client_call {
  std::uint64_t number = 0;  // bits 0 to 31: index in calls_; from bit 32: how often it was used
  std::uint64_t method = 0;
  std::string arguments;                       // kept until sent, or for idempotent calls until answered
  std::optional<memory_of<Connection>> large;  // arguments that the server fetches
  bool is_idempotent = false;
  bool is_sent = false;      // the server will answer, or the connection will end
  bool is_fetching = false;  // the server has answered, and its large reply is being READ
  bool is_released = false;  // by the program
  bool is_done = false;
  std::string result;
  std::optional<error> failure;
  waiter waiting;
  verbena::detail::timer deadline;
};

// The connection of a client, and its calls. Its coroutines share it.
template <class Network>
class client_core : public std::enable_shared_from_this<client_core<Network>> {
 public:
  using connection = typename Network::connection;
  using call = client_call<connection>;

  client_core(loop& io, std::string where, const client_options& options)
      : io_(io),
        where_(std::move(where)),
        options_(options),
        replies_(io, memory_, options.max_replies, {}) {}

  // Connects for the first time. Throws exception.
  task<> connect() {
    const auto self = this->shared_from_this();
    link_ = co_await dial();
    io_.spawn([self](loop&) { return self->run(); });
  }
  // Begins a call. The call waits if the server has as many calls as it takes (kind::window), or if there is
  // no connection. Copies the arguments.
  call& begin(std::uint64_t method, std::span<const std::byte> arguments, const call_options& how) {
    call& one = make();
    one.method = method;
    one.is_idempotent = how.idempotent;
    if (is_closed_) return finish(one, error("call", ESHUTDOWN, {}, "the client is closed")), one;
    if (how.deadline != duration::max())
      one.deadline.start(io_.timers(), io_.now() + how.deadline, [this, &one] { expire(one); });
    const bool may_go = may_send() && queue_.empty();
    if (!may_go || one.is_idempotent) one.arguments = text_of(arguments);
    if (may_go) {
      dispatch(one, arguments);
    } else {
      queue_.push_back(&one);
      reconnect();
    }
    return one;
  }
  // Forgets a call, because the program does not want the result any more. Cancels the call if it has not
  // ended.
  void release(call& one) {
    one.waiting.forget();
    one.is_released = true;
    if (!one.is_done) cancel(one);
    recycle_if_over(one);
  }

  // Waits for the calls under way, and disconnects. Calls that begin afterwards fail, and so do those that
  // have not ended after client_options::patience.
  task<> close() {
    const auto self = this->shared_from_this();
    verbena::detail::timer late;
    late.start(io_.timers(), io_.now() + options_.patience, [this] {
      shut();
      fail_waiting(error("call", ETIMEDOUT, where_, "the client was closed, and the server does not answer"),
                   true);
    });
    while (under_way_ != 0 || !queue_.empty()) {
      co_await wait_in(closing_, [this] { return under_way_ == 0 && queue_.empty(); });
    }
    is_closed_ = true;
    const auto last = link_;
    if (last) co_await last->finish();
  }
  void shut() {
    is_closed_ = true;
    if (link_) link_->end();
  }
  bool is_connected() const { return link_ != nullptr; }
  connection* peer() const { return link_ ? &link_->peer() : nullptr; }

 private:
  static constexpr duration kFirstPause = std::chrono::milliseconds(10);
  static constexpr duration kLongestPause = std::chrono::seconds(1);

  // ---- the connection

  task<std::shared_ptr<link<connection>>> dial() {
    auto made =
        std::make_shared<link<connection>>(io_, co_await Network::connect(io_, where_, options_.connection));
    if (!made->is_usable()) throw exception(error("connect", EPROTO, where_, "the peer speaks no RPC"));
    co_return made;
  }
  // Takes the records of this connection until it ends. Then connects again, for as long as calls wait.
  task<> run() {
    const auto self = this->shared_from_this();
    for (;;) {
      const auto current = link_;
      current->start();
      const auto reason = co_await current->receive([&](const record& one) { return take_in(one, current); });
      lost(reason.value_or(error("call", ECONNRESET, where_, "the server has disconnected")));
      if (!co_await connect_again()) co_return;
    }
  }
  // Connects if calls wait for a connection. Returns false if no call waits any more, or the client was
  // closed.
  task<bool> connect_again() {
    const time_point give_up = io_.now() + options_.reconnect;
    for (duration pause = kFirstPause; !queue_.empty() && !is_closed_;) {
      try {
        link_ = co_await dial();
        co_return !is_closed_;
      } catch (const exception& thrown) {
        fail_waiting(thrown.error(), io_.now() >= give_up);
      }
      co_await io_.sleep(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
    is_running_ = false;
    co_return false;
  }
  void reconnect() {
    if (std::exchange(is_running_, true)) return;
    io_.spawn([self = this->shared_from_this()](loop&) -> task<> {
      if (co_await self->connect_again()) co_await self->run();
    });
  }
  // Handles the loss of the connection: idempotent calls wait for the next connection, all others fail.
  void lost(const error& reason) {
    link_ = nullptr;
    window_ = under_way_ = 0;
    is_leaving_ = false;
    for (call& each : calls_) {
      if (!each.is_sent) continue;
      each.is_sent = each.is_fetching = false;
      each.large.reset();
      if (each.is_done) {
        recycle_if_over(each);
      } else if (each.is_idempotent && !is_closed_) {
        queue_.push_back(&each);
      } else {
        finish(each, reason);
      }
    }
    if (is_closed_) fail_waiting(reason, true);
    wake_closing();
  }
  void fail_waiting(const error& reason, bool also_idempotent) {
    const auto waiting = std::exchange(queue_, {});
    for (call* each : waiting) {
      if (each->is_idempotent && !also_idempotent) {
        queue_.push_back(each);
      } else {
        finish(*each, reason);
      }
    }
    wake_closing();
  }

  // ---- calls

  bool may_send() const {
    return link_ && !is_leaving_ && under_way_ < window_ && !link_->is_congested() && !is_closed_;
  }
  void pump() {
    while (!queue_.empty() && may_send()) {
      call& one = *queue_.front();
      queue_.pop_front();
      dispatch(one, bytes_of(one.arguments));
      if (!one.is_idempotent) one.arguments.clear();
    }
  }
  void dispatch(call& one, std::span<const std::byte> arguments) {
    one.is_sent = true;
    ++under_way_;
    if (arguments.size() <= link_->max_payload())
      return link_->send({kind::call, 0, one.number, one.method, arguments});
    one.large.emplace(link_->peer().share(arguments.size(), access::remote_read));
    std::memcpy(one.large->data(), arguments.data(), arguments.size());
    const remote_slice there = one.large->remote();
    link_->send({kind::large_call, 0, one.number, one.method, std::as_bytes(std::span(&there, 1))});
  }

  bool take_in(const record& one, const std::shared_ptr<link<connection>>& from) {
    switch (one.what) {
      case kind::window:
        window_ = one.call;
        pump();
        return true;
      case kind::goodbye:
        is_leaving_ = true;
        return true;
      case kind::reply:
        return answered(one, [&](call& its) { its.result = text_of(one.payload); });
      case kind::failure:
        return refused(one);
      case kind::large_reply:
        return fetch(one, from);
      default:
        return false;
    }
  }
  // Handles an answer of the server: `fill` writes it into the call, and the program gets the outcome. Drops
  // the answer if the call's deadline has passed. Returns false if no call waits for this answer: the record
  // is malformed. refused() and fetch() return false in the same case.
  template <class Fill>
  bool answered(const record& one, Fill fill) {
    call* const its = find(one.call);
    if (its == nullptr || its->is_fetching) return false;
    settle(*its, fill);
    return true;
  }
  // Handles a call that the server has refused, or that has failed at the server. A server that stops refuses
  // all calls. In this case an idempotent call is repeated, because a new server may take it.
  bool refused(const record& one) {
    call* const its = find(one.call);
    if (its == nullptr || its->is_fetching) return false;
    const bool may_repeat = one.code == ESHUTDOWN && is_leaving_ && its->is_idempotent && !its->is_done;
    if (may_repeat && !is_closed_) {
      take_back(*its);
      queue_.push_back(its);
      return true;
    }
    settle(*its, [&](call& failed) {
      const std::string_view why = text_of(one.payload);
      failed.failure = why.empty() ? error("call", one.code, {}, "the server says so")
                                   : error("the server says:", one.code, why);
    });
    return true;
  }
  // Notes that the server does not have the call any more.
  void take_back(call& its) {
    its.is_sent = its.is_fetching = false;
    its.large.reset();
    --under_way_;
  }
  template <class Fill>
  void settle(call& its, Fill fill) {
    take_back(its);
    if (!its.is_done) {
      fill(its);
      finish(its, its.failure);
    } else {
      recycle_if_over(its);
    }
    pump();
    wake_closing();
  }
  // Begins to fetch a large reply. Refuses a second reply to a call, which would take further memory.
  bool fetch(const record& one, const std::shared_ptr<link<connection>>& from) {
    remote_slice there;
    call* const its = find(one.call);
    if (one.payload.size() != sizeof there || its == nullptr || its->is_fetching) return false;
    its->is_fetching = true;
    std::memcpy(&there, one.payload.data(), sizeof there);
    io_.spawn([self = this->shared_from_this(), number = one.call, there, from](loop&) {
      return self->fetch(number, there, from);
    });
    return true;
  }
  task<> fetch(std::uint64_t number, remote_slice there, std::shared_ptr<link<connection>> from) {
    const auto self = this->shared_from_this();
    std::string result;
    std::optional<error> failure;
    const call* const before = find(number);
    if (before != nullptr && !before->is_done) {
      if (there.size > std::min(options_.max_reply, kMaxData)) {
        failure = error("call", EMSGSIZE, {}, "the reply is longer than client_options::max_reply");
      } else {
        try {
          fetch_line::place memory(replies_, there.size);
          co_await memory.turn();
          const buffer arrived = co_await from->peer().read(there);
          result = arrived.text();
        } catch (const std::exception&) {
          co_return from->end();  // there is no memory, or no connection: lost() ends the call
        }
      }
    }
    from->send({kind::fetched, 0, number});
    call* const its = find(number);
    if (its == nullptr || link_ != from) co_return;
    settle(*its, [&](call& one) {
      one.result = std::move(result);
      one.failure = failure;
    });
  }

  void expire(call& one) {
    finish(one, error("call", ETIMEDOUT, {}, "the deadline has passed"));
    cancel(one);
  }
  // Cancels a call. If it was sent, the server ends it where it is suspended, and still answers.
  void cancel(call& one) {
    if (one.is_sent) {
      if (link_) link_->send({kind::cancel, 0, one.number});
    } else {
      std::erase(queue_, &one);
      wake_closing();
    }
  }
  void finish(call& one, std::optional<error> failure) {
    one.deadline.stop();
    one.failure = std::move(failure);
    one.is_done = true;
    if (one.waiting.is_suspended()) io_.wake(one.waiting);
    recycle_if_over(one);
  }

  call& make() {
    if (free_.empty()) {
      const std::uint64_t position = calls_.size();
      calls_.emplace_back().number = position;
      free_.push_back(&calls_.back());
    }
    call& taken = *free_.back();
    free_.pop_back();
    return taken;
  }
  call* find(std::uint64_t number) {
    const std::size_t position = number & 0xffffffff;
    if (position >= calls_.size() || calls_[position].number != number || !calls_[position].is_sent)
      return nullptr;
    return &calls_[position];
  }
  void recycle_if_over(call& one) {
    if (!one.is_released || one.is_sent) return;
    one.deadline.stop();
    one.arguments.clear();
    one.result.clear();
    one.failure.reset();
    one.is_released = one.is_done = one.is_idempotent = false;
    one.number += std::uint64_t{1} << 32;
    free_.push_back(&one);
  }
  void wake_closing() {
    if (under_way_ == 0 && queue_.empty()) io_.wake_all(closing_);
  }

  loop& io_;
  const std::string where_;
  const client_options options_;
  std::shared_ptr<link<connection>> link_;
  bool is_running_ = true;  // run() or reconnect() is under way
  bool is_closed_ = false;
  bool is_leaving_ = false;  // the server takes no further calls on this connection
  std::uint64_t window_ = 0;
  std::uint64_t under_way_ = 0;
  std::deque<call> calls_;
  std::vector<call*> free_;
  std::deque<call*> queue_;
  list<waiter> closing_;
  fetch_memory memory_{std::numeric_limits<std::size_t>::max()};  // no limit: replies_ has one
  fetch_line replies_;
};

}  // namespace detail

// A call that is under way. Awaiting it returns the result, or throws exception. The exception has the errno
// of the server's reply, ETIMEDOUT, or ECONNRESET if the connection was lost and the call may have run.
// Destroying this object cancels the call.
template <class Network>
class [[nodiscard]] basic_pending_call {
 public:
  using core = detail::client_core<Network>;
  basic_pending_call(std::shared_ptr<core> its, typename core::call& call)
      : core_(std::move(its)), call_(&call) {}
  basic_pending_call(basic_pending_call&& other) noexcept
      : core_(std::move(other.core_)), call_(std::exchange(other.call_, nullptr)) {}
  basic_pending_call& operator=(basic_pending_call&&) = delete;
  ~basic_pending_call() {
    if (call_ != nullptr) core_->release(*call_);
  }

  bool await_ready() const { return call_->is_done; }
  void await_suspend(std::coroutine_handle<> coroutine) { call_->waiting.suspend(coroutine); }
  std::string await_resume() {
    if (call_->failure) throw exception(*call_->failure);
    return std::move(call_->result);
  }

 private:
  std::shared_ptr<core> core_;
  typename core::call* call_;
};

// Calls the methods of a server. Any number of calls may be under way. The server limits how many calls it
// has at once; others wait in the client. If a call is made after the connection was lost, the client
// connects again. Belongs to its loop's thread. Its destruction disconnects; await close() to let the calls
// end first.
template <class Network>
class basic_client {
 public:
  using core = detail::client_core<Network>;
  using pending = basic_pending_call<Network>;

  explicit basic_client(std::shared_ptr<core> its) : core_(std::move(its)) {}
  basic_client(basic_client&&) noexcept = default;
  basic_client& operator=(basic_client&& other) noexcept {
    std::swap(core_, other.core_);
    return *this;
  }
  ~basic_client() {
    if (core_) core_->shut();
  }

  // Begins a call, and copies the arguments. Arguments longer than half a message go by rendezvous: the
  // server fetches them by RDMA READ.
  template <method_name Method>
  pending call(std::span<const std::byte> arguments, const call_options& how = {}) {
    static constexpr std::uint64_t kNumber = detail::number_of(Method.view());
    return {core_, core_->begin(kNumber, arguments, how)};
  }
  template <method_name Method>
  pending call(std::string_view arguments, const call_options& how = {}) {
    return call<Method>(detail::bytes_of(arguments), how);
  }
  pending call(std::string_view method, std::string_view arguments, const call_options& how = {}) {
    return {core_, core_->begin(detail::number_of(method), detail::bytes_of(arguments), how)};
  }

  // Waits for the calls under way, for client_options::patience at most. Then disconnects.
  task<> close() { return core_->close(); }
  bool is_connected() const { return core_->is_connected(); }
  // Returns the connection that calls use now, for example for RDMA READs of memory that the server shares.
  // Returns nullptr if there is none. The connection may end whenever the coroutine is suspended; operations
  // that have begun go on. Leave its messages to the client.
  typename Network::connection* get() const { return core_->peer(); }

 private:
  std::shared_ptr<core> core_;
};

using client = basic_client<detail::verbs_network>;
using pending_call = client::pending;

// Connects to a server. Throws exception.
inline task<client> connect(loop& io, std::string where, client_options options = {}) {
  const auto core = std::make_shared<client::core>(io, std::move(where), options);
  co_await core->connect();
  co_return client(core);
}

}  // namespace verbena::rpc

// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __cplusplus < 202002L
#error "Verbena's C++ API needs C++20: compile with -std=c++20"
#endif

#include <algorithm>
#include <cerrno>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <rdma/rdma_cma.h>
#include <verbena/async/loop.hpp>
#include <verbena/cm/connection_state.hpp>
#include <verbena/cm/identifier.hpp>
#include <verbena/cm/lease.hpp>
#include <verbena/result.hpp>

// Connections by name, messages and remote memory, with coroutines:
//
//   task<> echo(connection c) {
//     while (buffer m = co_await c.receive()) co_await c.send(std::move(m));
//   }
//
// A call begins an operation, and awaiting the operation waits for its end. So a program may begin several
// operations before it awaits the first. An operation takes its buffer, so that the program cannot touch the
// buffer meanwhile. A failed operation throws verbena::exception. After an orderly end of the connection, the
// class of the exception is verbena::disconnected.
namespace verbena {

namespace detail {

// A counted reference to the state of a connection.
class state_handle {
 public:
  state_handle() = default;
  explicit state_handle(connection_state& state) : state_(&state) { state_->add_reference(); }
  state_handle(const state_handle& other) : state_(other.state_) {
    if (state_ != nullptr) state_->add_reference();
  }
  state_handle(state_handle&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  state_handle& operator=(state_handle other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~state_handle() {
    if (state_ != nullptr) state_->drop_reference();
  }
  connection_state* operator->() const { return state_; }
  connection_state& operator*() const { return *state_; }
  explicit operator bool() const { return state_ != nullptr; }

 private:
  connection_state* state_ = nullptr;
};

inline constexpr access kAllAccess = access::remote_read | access::remote_write | access::remote_atomic;

// Waits in a list for a wake-up, unless `is_ready` returns true already. Does not check `is_ready` after the
// wake-up. Where a list serves several conditions, the caller checks its condition again.
template <class IsReady>
struct list_awaiter {
  list<waiter>& all;
  IsReady is_ready;
  waiter waiting{};
  bool await_ready() const { return is_ready(); }
  void await_suspend(std::coroutine_handle<> coroutine) {
    waiting.suspend(coroutine);
    all.push_back(waiting);
  }
  void await_resume() const {}
};
template <class IsReady>
list_awaiter<IsReady> wait_in(list<waiter>& all, IsReady is_ready) {
  return {all, std::move(is_ready)};
}

}  // namespace detail

// An operation that is under way. Awaiting it returns its result, or throws exception. Destroying this object
// forgets the result; the operation goes on, and keeps its buffer until its end.
template <class T>
class [[nodiscard]] pending {
 public:
  pending(detail::state_handle state, detail::operation& one) : state_(std::move(state)), operation_(&one) {}
  pending(pending&& other) noexcept
      : state_(std::move(other.state_)), operation_(std::exchange(other.operation_, nullptr)) {}
  pending& operator=(pending&&) = delete;
  ~pending() {
    if (operation_ != nullptr) state_->abandon(*operation_);
  }

  // Lets the operation fail with ETIMEDOUT if it has not ended within this time. Its failure also ends the
  // connection, because the adapter may still use the operation's buffer.
  pending within(loop& io, duration time) && {
    state_->limit(*operation_, io.now() + time);
    return std::move(*this);
  }

  bool await_ready() const { return operation_->is_done; }
  void await_suspend(std::coroutine_handle<> coroutine) { operation_->waiting.suspend(coroutine); }
  T await_resume() {
    if (operation_->failure) fail();
    if constexpr (std::is_void_v<T>) {
      return;
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      std::uint64_t value;
      std::memcpy(&value, operation_->held.data(), sizeof value);
      return value;
    } else {
      return T(std::move(operation_->held));
    }
  }

 private:
  [[noreturn]] void fail() const {
    if (operation_->failure->code() == ENOTCONN && !state_->failure())
      throw disconnected(*operation_->failure);
    throw exception(*operation_->failure);
  }

  detail::state_handle state_;
  detail::operation* operation_;
};

// A T in this program's memory that the peer may read, write and change by atomic operations. The peer's
// access ends when this object is destroyed.
template <class T>
class shared {
 public:
  explicit shared(region memory) : memory_(std::move(memory)) {}
  T& operator*() const { return memory_.template as<T>()[0]; }
  T* operator->() const { return &**this; }
  verbena::remote<T> remote() const { return {memory_.remote().first(sizeof(T))}; }

 private:
  static_assert(std::is_trivially_copyable_v<T>,
                "peers see the bytes of a T: it has to be trivially copyable");
  region memory_;
};

// A reliable connection. Belongs to its loop's thread. Destroying it disconnects.
class connection {
 public:
  explicit connection(detail::state_handle state) : state_(std::move(state)) {}
  connection(connection&&) noexcept = default;
  connection& operator=(connection&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~connection() {
    if (state_) state_->disconnect();
  }

  // Returns bytes that identify the host of the peer: all connections to one host have the same bytes.
  std::string peer_host() const { return state_->peer_host(); }

  // ---- messages

  // Returns a buffer of registered memory, to fill and send. Its bytes have any values.
  buffer make_buffer(std::size_t size) { return state_->buffers().take_buffer(size); }
  // The length in bytes of the longest message that the peer receives.
  std::size_t max_message_size() const { return state_->peer_message_size(); }

  // Sends a message. When the operation ends, the message has arrived in a buffer of the peer. Fails with
  // EMSGSIZE if the peer's buffers are shorter.
  pending<void> send(buffer message) {
    detail::operation& one = state_->make_operation("SEND");
    one.is_send = true;
    one.piece = message.memory().get();
    one.held = std::move(message);
    const bool fits = one.piece.length <= state_->peer_message_size();
    return begin<void>(one, fits ? std::nullopt : std::optional(error("SEND", EMSGSIZE, {}, kTooLong)));
  }
  // Copies the bytes, and sends the copy.
  pending<void> send(std::span<const std::byte> bytes) {
    buffer copy = make_buffer(bytes.size());
    if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
    return send(std::move(copy));
  }
  pending<void> send(std::string_view text) { return send(std::as_bytes(std::span(text))); }
  template <class T>
  requires(std::is_trivially_copyable_v<T>) pending<void> send_value(const T& value) {
    return send(std::as_bytes(std::span(&value, 1)));
  }

  // Returns the next message. Returns an empty buffer, which is false, when the peer has disconnected, also
  // if its program was killed. Throws exception if the connection has failed.
  task<buffer> receive() {
    const detail::state_handle kept = state_;
    const auto is_ready = [&] { return kept->has_message() || kept->is_at_end(); };
    while (!is_ready()) co_await detail::wait_in(kept->receiving, is_ready);
    buffer message = kept->take_message();
    if (!message && kept->failure()) throw exception(*kept->failure());
    co_return message;
  }
  // Returns the next message as a T. Throws exception with EPROTO if the message has another length than a T,
  // and disconnected if the peer has disconnected.
  template <class T>
  requires(std::is_trivially_copyable_v<T>) task<T> receive_value() {
    const buffer message = co_await receive();
    if (!message) throw disconnected(error("receive a value", ECONNRESET, {}, "the peer has disconnected"));
    if (message.size() != sizeof(T))
      throw exception(error("receive a value", EPROTO, {}, "its length is wrong"));
    T value;
    std::memcpy(&value, message.data(), sizeof value);
    co_return value;
  }

  // ---- remote memory

  // Makes a zeroed T that the peer may reach: send it shared::remote().
  template <class T>
  shared<T> share() {
    return shared<T>(share(sizeof(T), detail::kAllAccess));
  }
  // Lets the peer reach an object of the program, which must live longer than the result.
  template <class T>
  shared<T> share(T& object) {
    return register_object(object, detail::kAllAccess);
  }
  // Lets the peer reach an object of the program with these rights only. The object must live longer than the
  // result. T must not be an integer, which would be taken for a size: put it into a struct.
  template <class T>
  requires(!std::is_integral_v<T>) shared<T> share(T& object, access rights) {
    return register_object(object, rights);
  }
  // Makes memory that the peer may reach by its region::remote(), with these rights.
  region share(std::size_t size, access rights) { return state_->domain().allocate(size, rights).value(); }
  // Reads the peer's memory into a buffer.
  template <class T>
  pending<lease<T>> read(const remote<T>& from) {
    return one_sided<lease<T>>("RDMA READ", IBV_WR_RDMA_READ, make_buffer(sizeof(T)), from.memory);
  }
  pending<buffer> read(const remote_slice& from) {
    return one_sided<buffer>("RDMA READ", IBV_WR_RDMA_READ, make_buffer(from.size), from);
  }
  // Writes to the peer's memory, from its beginning on. Fails with EMSGSIZE if that memory is shorter than
  // the data.
  template <class T>
  pending<void> write(const remote<T>& to, const std::type_identity_t<T>& value) {
    buffer copy = make_buffer(sizeof(T));
    std::memcpy(copy.data(), &value, sizeof value);
    return one_sided<void>("RDMA WRITE", IBV_WR_RDMA_WRITE, std::move(copy), to.memory);
  }
  pending<void> write(const remote_slice& to, buffer from) {
    return one_sided<void>("RDMA WRITE", IBV_WR_RDMA_WRITE, std::move(from), to);
  }
  // Adds `addend` to an integer in the peer's memory, by an atomic operation. Returns the old value.
  pending<std::uint64_t> fetch_add(const remote<std::uint64_t>& target, std::uint64_t addend) {
    return atomic("fetch and add", IBV_WR_ATOMIC_FETCH_AND_ADD, target, addend, 0);
  }
  // Stores `desired` in the peer's memory if the old value is `expected`, by an atomic operation. Returns the
  // old value.
  pending<std::uint64_t> compare_exchange(const remote<std::uint64_t>& target, std::uint64_t expected,
                                          std::uint64_t desired) {
    return atomic("compare and swap", IBV_WR_ATOMIC_CMP_AND_SWP, target, expected, desired);
  }

  // ---- ending

  // Waits for the operations under way, disconnects, and waits until the adapter uses no buffer of the
  // connection any more.
  task<> close() {
    const detail::state_handle kept = state_;
    co_await detail::wait_in(kept->draining, [&] { return kept->is_idle(); });
    kept->disconnect();
    co_await detail::wait_in(kept->draining, [&] { return kept->is_drained(); });
  }
  // Disconnects without waiting: operations under way fail with ENOTCONN.
  void disconnect() { state_->disconnect(); }
  bool is_open() const { return state_->is_open(); }
  // Returns why the connection has failed. Returns nothing if it is open or was closed in order.
  std::optional<error> failure() const { return state_->failure(); }

 private:
  static constexpr const char* kTooLong =
      "the message is longer than the peer's connection_options::message_size";

  template <class T>
  shared<T> register_object(T& object, access rights) {
    return shared<T>(
        state_->domain().register_memory(std::as_writable_bytes(std::span(&object, 1)), rights).value());
  }
  template <class T>
  pending<T> begin(detail::operation& one, std::optional<error> failure = std::nullopt) {
    pending<T> begun(state_, one);
    if (failure) {
      state_->end(one, std::move(failure));
    } else {
      state_->submit(one);
    }
    return begun;
  }
  template <class T>
  pending<T> one_sided(const char* tried, ibv_wr_opcode opcode, buffer memory, const remote_slice& there) {
    detail::operation& one = state_->make_operation(tried);
    one.request.opcode = opcode;
    one.request.wr.rdma = {there.address, there.rkey};
    one.piece = memory.memory().get();
    one.held = std::move(memory);
    const bool fits = one.piece.length <= there.size;
    return begin<T>(
        one, fits ? std::nullopt : std::optional(error(tried, EMSGSIZE, {}, "the peer's memory is shorter")));
  }
  pending<std::uint64_t> atomic(const char* tried, ibv_wr_opcode opcode, const remote<std::uint64_t>& target,
                                std::uint64_t first, std::uint64_t second) {
    detail::operation& one = state_->make_operation(tried);
    one.held = make_buffer(sizeof(std::uint64_t));
    one.request.opcode = opcode;
    one.request.wr.atomic = {target.memory.address, first, second, target.memory.rkey};
    one.piece = one.held.memory().get();
    return begin<std::uint64_t>(one);
  }

  detail::state_handle state_;
};

// Connects to "host:port". Throws exception, for example with ECONNREFUSED, with ETIMEDOUT, or with
// EADDRNOTAVAIL if the name is unknown. A slow name server blocks the loop's thread.
inline task<connection> connect(loop& io, std::string where, connection_options options = {}) {
  const detail::addresses found = detail::look_up(where, false);
  const detail::state_handle state(*new detail::connection_state(io, options));
  connection made{state};
  state->connect(found->ai_addr);
  co_await detail::wait_in(state->opening, [&] { return !state->is_opening(); });
  if (!state->is_open()) {
    const error unknown("connect", ECONNRESET, {}, "the peer has disconnected");
    throw exception(state->failure().value_or(unknown).about(where));
  }
  co_return made;
}

// Accepts connections at an address. Belongs to its loop's thread.
class listener {
 public:
  listener(loop& io, std::string_view where, const connection_options& options = {})
      : core_(std::make_unique<core>(io, where, options)) {}

  // Returns the next connection whose handshake has ended. Other handshakes go on meanwhile, side by side, so
  // that a slow peer keeps nobody waiting.
  task<connection> accept() {
    core& own = *core_;
    while (own.ready.empty()) co_await detail::wait_in(own.accepting, [&] { return !own.ready.empty(); });
    connection next(std::move(own.ready.front()));
    own.ready.pop_front();
    co_return next;
  }
  // Makes a zeroed T that all peers of this listener may reach: send them shared::remote(). Works before
  // there is a connection. Throws exception with EADDRNOTAVAIL if the listener's address belongs to no
  // adapter, such as that of all interfaces, and the host has several adapters.
  template <class T>
  shared<T> share() {
    return shared<T>(share(sizeof(T), detail::kAllAccess));
  }
  region share(std::size_t size, access rights) { return core_->domain().allocate(size, rights).value(); }
  // Returns the port, which the kernel has chosen if `where` has port 0.
  std::uint16_t port() const { return be16toh(rdma_get_src_port(core_->id.get())); }

 private:
  struct core final : detail::cm_handler {
    core(loop& where, std::string_view address, const connection_options& wanted)
        : io(where), options(wanted), id(where.service<detail::cm_service>(), *this) {
      detail::listen_at(id, address, "listen at");
    }
    ~core() override { *is_there = false; }

    const pd& domain() {
      ibv_context* const device = detail::device_of(id);
      if (device == nullptr)
        throw exception(
            error("share memory of a listener", EADDRNOTAVAIL, {}, "listen at an adapter's address"));
      return io.service<detail::cm_service>().adapter_of(device).domain();
    }

    void on_event(const detail::cm_event& event) override {
      if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
      if (!handshakes.empty() && handshakes.size() >= options.max_handshakes)
        handshakes.front()->refuse("connection_options::max_handshakes are under way");
      auto* const state = new detail::connection_state(io, options);
      const detail::state_handle kept(*state);
      const auto added = handshakes.insert(handshakes.end(), state);
      state->accept(event.id, event, [this, added, there = is_there](detail::connection_state& opened) {
        if (!*there) return opened.disconnect();
        handshakes.erase(added);
        if (!opened.is_open()) return;
        ready.emplace_back(detail::state_handle(opened));
        if (!accepting.empty()) io.wake(accepting.front());
      });
    }

    loop& io;
    const connection_options options;
    detail::cm_identifier id;
    std::list<detail::connection_state*> handshakes;  // the oldest first
    std::deque<connection> ready;
    detail::list<detail::waiter> accepting;
    std::shared_ptr<bool> is_there = std::make_shared<bool>(true);  // handshakes may outlive the listener
  };

  std::unique_ptr<core> core_;
};

}  // namespace verbena

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <verbena/async/loop.hpp>
#include <verbena/async/task.hpp>
#include <verbena/result.hpp>

// Coroutines that wait for several tasks, or for one task with a deadline.
namespace verbena {

namespace detail {

// The interface of an awaiter that waits for tasks, each run by a join_part. At the end of its task, a
// join_part calls part_ended(), and resumes the coroutine that part_ended() returns.
class join_point {
 public:
  virtual std::coroutine_handle<> part_ended() noexcept = 0;

 protected:
  ~join_point() = default;
};

// A coroutine that runs a task, and tells a join_point when the task has ended. Destroying this object ends
// the waiting, but does not destroy the task. REQUIRES: the task outlives this object
class join_part {
 public:
  struct promise_type {
    join_point* point = nullptr;
    struct at_end {
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) const noexcept {
        return ended.promise().point->part_ended();
      }
      void await_resume() const noexcept {}
    };
    join_part get_return_object() noexcept {
      return join_part(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    at_end final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }  // unreachable: the task catches all
  };

  join_part(join_part&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
  join_part& operator=(join_part&&) = delete;
  ~join_part() {
    if (coroutine_) coroutine_.destroy();
  }
  void start(join_point& point) const {
    coroutine_.promise().point = &point;
    coroutine_.resume();
  }

 private:
  explicit join_part(std::coroutine_handle<promise_type> coroutine) : coroutine_(coroutine) {}
  std::coroutine_handle<promise_type> coroutine_;
};

// Waits for the end of a task. The task keeps its result or its exception.
template <class T>
struct end_of {
  typename task<T>::awaiter inner;
  bool await_ready() const noexcept { return inner.await_ready(); }
  bool await_suspend(std::coroutine_handle<> awaiting) const { return inner.await_suspend(awaiting); }
  void await_resume() const noexcept {}
};
template <class T>
join_part part_of(const task<T>& work) {
  co_await end_of<T>{work.operator co_await()};
}

// Awaits the ends of all parts.
template <class Parts>
class all_of final : public join_point {
 public:
  explicit all_of(const Parts& parts) : parts_(parts), left_(parts.size() + 1) {}
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> awaiting) {
    awaiting_ = awaiting;
    for (const join_part& each : parts_) each.start(*this);
    return --left_ != 0;
  }
  void await_resume() const noexcept {}
  std::coroutine_handle<> part_ended() noexcept override {
    return --left_ == 0 ? awaiting_ : std::noop_coroutine();
  }

 private:
  const Parts& parts_;
  std::size_t left_;  // parts that have not ended, and one for await_suspend() until it ends
  std::coroutine_handle<> awaiting_;
};

// Awaits the end of one part, or a point in time. The result says whether the part has ended.
class end_or_time final : public join_point {
 public:
  end_or_time(const join_part& part, loop& io, time_point when) : part_(part), io_(io), when_(when) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> awaiting) {
    waiting_.suspend(awaiting);
    deadline_.start(io_.timers(), when_, [this] { io_.wake(waiting_); });
    part_.start(*this);
  }
  bool await_resume() const noexcept { return has_ended_; }
  // Lets the loop resume the awaiting coroutine, and does not return it for resumption now: the loop may be
  // about to resume it already, because the time has come.
  std::coroutine_handle<> part_ended() noexcept override {
    has_ended_ = true;
    deadline_.stop();
    io_.wake(waiting_);
    return std::noop_coroutine();
  }

 private:
  const join_part& part_;
  loop& io_;
  const time_point when_;
  waiter waiting_;
  timer deadline_;
  bool has_ended_ = false;
};

// Returns the result of a task that has ended, as a member of a tuple: std::monostate for void. Throws the
// exception of the task.
template <class T>
auto taken(const task<T>& work) {
  if constexpr (std::is_void_v<T>) {
    work.take();
    return std::monostate{};
  } else {
    return work.take();
  }
}

}  // namespace detail

// Runs the tasks side by side, and ends when all have ended. Returns their results in order, with
// std::monostate for void. If tasks have failed, throws the exception of the first of them in this order.
template <class... T>
task<std::tuple<decltype(detail::taken(std::declval<task<T>>()))...>> when_all(task<T>... work) {
  const std::array<detail::join_part, sizeof...(T)> parts{detail::part_of(work)...};
  co_await detail::all_of(parts);
  co_return std::tuple{detail::taken(work)...};
}
// Does the same for any number of tasks that have results of one type.
template <class T>
task<std::vector<decltype(detail::taken(std::declval<task<T>>()))>> when_all(std::vector<task<T>> work) {
  std::vector<detail::join_part> parts;
  parts.reserve(work.size());
  for (const task<T>& each : work) parts.push_back(detail::part_of(each));
  co_await detail::all_of(parts);
  std::vector<decltype(detail::taken(std::declval<task<T>>()))> results;
  results.reserve(work.size());
  for (const task<T>& each : work) results.push_back(detail::taken(each));
  co_return results;
}

// Runs the task for at most this time, and returns its result. After this time, destroys the task where it is
// suspended, and throws exception with ETIMEDOUT. Operations that the task has under way are abandoned: their
// connections stay open, and their buffers stay alive until the operations end. `tried`: a string literal,
// the beginning of the exception's sentence.
template <class T>
task<T> within(loop& io, duration time, task<T> work, const char* tried = "wait for a task") {
  bool has_ended = false;
  {
    const detail::join_part part = detail::part_of(work);
    has_ended = co_await detail::end_or_time(part, io, io.now() + time);
  }
  if (!has_ended) {
    const task<T> cancelled = std::move(work);
    throw exception(error(tried, ETIMEDOUT, {}, "the deadline has passed"));
  }
  co_return work.take();
}

}  // namespace verbena

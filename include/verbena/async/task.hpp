// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace verbena {

template <class T = void>
class task;

namespace detail {

// At the task's end, resumes the coroutine that awaits the task. A task that ends before its first suspension
// does not resume its awaiter, but returns to it. Otherwise a loop over such tasks would fill the stack,
// because GCC turns the resumption into a jump only when it optimises.
struct final_awaiter {
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
    const auto& promise = ended.promise();
    return promise.awaiting_ && promise.was_suspended_ ? promise.awaiting_ : std::noop_coroutine();
  }
  void await_resume() const noexcept {}
};

template <class T>
class task_promise_base {
 public:
  std::suspend_always initial_suspend() const noexcept { return {}; }
  final_awaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { outcome_.template emplace<2>(std::current_exception()); }

  // Begins the task for `awaiting`. Returns whether the task is suspended, so that `awaiting` has to wait.
  bool start(std::coroutine_handle<> own, std::coroutine_handle<> awaiting) {
    awaiting_ = awaiting;
    own.resume();
    was_suspended_ = true;
    return !own.done();
  }

 protected:
  // Index 0: the task has not ended; 1: it has a result; 2: it has failed.
  std::variant<std::monostate, T, std::exception_ptr> outcome_;

 private:
  friend struct final_awaiter;
  std::coroutine_handle<> awaiting_;
  bool was_suspended_ = false;
};

template <class T>
class task_promise : public task_promise_base<T> {
 public:
  task<T> get_return_object() noexcept;
  template <class U>
  void return_value(U&& value) {
    this->outcome_.template emplace<1>(std::forward<U>(value));
  }
  T take() {
    if (this->outcome_.index() == 2) std::rethrow_exception(std::get<2>(this->outcome_));
    return std::move(std::get<1>(this->outcome_));
  }
};

template <>
class task_promise<void> : public task_promise_base<std::monostate> {
 public:
  task<void> get_return_object() noexcept;
  void return_void() noexcept { outcome_.emplace<1>(); }
  void take() const {
    if (outcome_.index() == 2) std::rethrow_exception(std::get<2>(outcome_));
  }
};

}  // namespace detail

// A coroutine that computes a T. It starts when it is awaited. At its end, the awaiting coroutine continues
// with the result, or with the exception. A task belongs to one thread.
//
// Destroying a task that has not ended destroys its coroutine where it is suspended. Operations that are
// under way then are abandoned. Their buffers stay alive until the adapter does not use them any more.
template <class T>
class [[nodiscard]] task {
 public:
  using promise_type = detail::task_promise<T>;

  explicit task(std::coroutine_handle<promise_type> coroutine) noexcept : coroutine_(coroutine) {}
  task(task&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
  task& operator=(task&& other) noexcept {
    task(std::move(other)).swap(*this);
    return *this;
  }
  ~task() {
    if (coroutine_) coroutine_.destroy();
  }

  // Whether the coroutine has ended.
  bool done() const { return coroutine_.done(); }
  // For functions that run a task without co_await, such as loop::run(). handle() returns the coroutine.
  // take() returns the result of a task that has ended, or throws its exception.
  std::coroutine_handle<> handle() const { return coroutine_; }
  T take() const { return coroutine_.promise().take(); }

  struct awaiter {
    std::coroutine_handle<promise_type> coroutine;
    bool await_ready() const noexcept { return coroutine.done(); }
    bool await_suspend(std::coroutine_handle<> awaiting) const {
      return coroutine.promise().start(coroutine, awaiting);
    }
    T await_resume() const { return coroutine.promise().take(); }
  };
  awaiter operator co_await() const noexcept { return {coroutine_}; }

 private:
  void swap(task& other) noexcept { std::swap(coroutine_, other.coroutine_); }

  std::coroutine_handle<promise_type> coroutine_;
};

namespace detail {

template <class T>
task<T> task_promise<T>::get_return_object() noexcept {
  return task<T>(std::coroutine_handle<task_promise>::from_promise(*this));
}
inline task<void> task_promise<void>::get_return_object() noexcept {
  return task<void>(std::coroutine_handle<task_promise>::from_promise(*this));
}

}  // namespace detail
}  // namespace verbena

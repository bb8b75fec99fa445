// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include <verbena/async/task.hpp>
#include <verbena/result.hpp>
#include <verbena/rpc/record.hpp>

namespace verbena::rpc {

// The result of a call, as its handler returns it: bytes, or an errno with a sentence for the client.
class reply {
 public:
  reply() = default;
  reply(std::string bytes) : bytes_(std::move(bytes)) {}
  reply(std::string_view bytes) : bytes_(bytes) {}
  reply(const char* text) : bytes_(text) {}
  reply(std::span<const std::byte> bytes) : bytes_(detail::text_of(bytes)) {}
  // Fails the call. The client gets verbena::exception with this errno.
  static reply failure(int code, std::string_view why = {}) {
    reply refused(why);
    refused.code_ = code;
    return refused;
  }

  int code() const { return code_; }
  const std::string& bytes() const& { return bytes_; }

 private:
  std::string bytes_;
  int code_ = 0;
};

// A running call at the server. Handlers need it if they start work that may go on after their coroutine was
// destroyed.
class running_call {
 public:
  // Returns a hold on the call, which lasts until the result is destroyed. If the client cancels the call
  // meanwhile, the handler's coroutine is destroyed. But the call stays one of server_options::max_calls, and
  // is answered only when the hold ends. Call this function once.
  virtual std::shared_ptr<void> hold() = 0;

 protected:
  ~running_call() = default;
};

// The methods of a server. Add all methods before a server serves them.
class service {
 public:
  // A handler. Its arguments and its call stay valid until its coroutine has ended.
  using handler = std::function<task<reply>(std::span<const std::byte>, running_call&)>;

  // Adds a method. Its handler is a function of std::span<const std::byte> or std::string_view that returns
  // task<reply>, or a reply at once. Its second parameter may be a running_call&. An exception of the handler
  // fails the call. If the client cancels the call or is gone, the handler's coroutine is destroyed where it
  // is suspended. Throws exception with EEXIST if a method has this name, or another name with the same
  // number.
  template <method_name Name, class Handler>
  void on(Handler with) {
    add(Name.view(), std::move(with));
  }
  template <class Handler>
  void add(std::string_view name, Handler with) {
    const std::uint64_t number = detail::number_of(name);
    if (!methods_.emplace(number, adapted(std::move(with))).second)
      throw exception(error("add a method", EEXIST, name, "the service has a method of this name or number"));
  }
  // Returns the handler of the method with this number (number_of()), or nullptr.
  const handler* find(std::uint64_t number) const {
    const auto found = methods_.find(number);
    return found != methods_.end() ? &found->second : nullptr;
  }

 private:
  template <class Handler>
  static handler adapted(Handler with) {
    using bytes = std::span<const std::byte>;
    if constexpr (std::is_invocable_v<Handler&, bytes, running_call&>) {
      return started(std::move(with));
    } else if constexpr (std::is_invocable_v<Handler&, bytes>) {
      return started(
          [with = std::move(with)](bytes arguments, running_call&) mutable { return with(arguments); });
    } else if constexpr (std::is_invocable_v<Handler&, std::string_view, running_call&>) {
      return started([with = std::move(with)](bytes arguments, running_call& its) mutable {
        return with(detail::text_of(arguments), its);
      });
    } else {
      static_assert(std::is_invocable_v<Handler&, std::string_view>,
                    "a handler takes a std::string_view or a std::span<const std::byte>, and a running_call& "
                    "if it likes");
      return started([with = std::move(with)](bytes arguments, running_call&) mutable {
        return with(detail::text_of(arguments));
      });
    }
  }
  template <class Handler>
  static handler started(Handler with) {
    using returned = decltype(with(std::span<const std::byte>(), std::declval<running_call&>()));
    if constexpr (std::is_same_v<returned, task<reply>>) {
      return with;
    } else {
      return [with = std::move(with)](std::span<const std::byte> arguments,
                                      running_call& its) mutable -> task<reply> {
        co_return with(arguments, its);
      };
    }
  }

  std::unordered_map<std::uint64_t, handler> methods_;
};

}  // namespace verbena::rpc

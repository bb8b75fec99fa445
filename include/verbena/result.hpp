// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __cplusplus < 202002L
#error "Verbena's C++ API needs C++20: compile with -std=c++20"
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include <infiniband/verbs.h>

namespace verbena {

// The reason why an operation failed: what was tried, the errno or the completion status, and how to mend it.
// A small value without pointers to the heap; may be copied and sent to another thread.
class error {
 public:
  // A call that failed with this errno. `tried`: a string literal such as "create a completion queue".
  // `subject`: the object's name, of which up to 95 bytes are kept: a longer one ends in "…". `hint`: a
  // string literal, or nullptr.
  error(const char* tried, int code, std::string_view subject = {}, const char* hint = nullptr)
      : tried_(tried), hint_(hint), code_(code) {
    name(subject);
  }
  // A work request that ended with this status. `tried`: its operation, such as "SEND".
  error(const char* tried, ibv_wc_status status, std::uint32_t qp_num, std::uint32_t vendor = 0)
      : tried_(tried), status_(status), qp_num_(qp_num), vendor_(vendor) {}

  const char* tried() const { return tried_; }
  std::string_view subject() const { return subject_.data(); }
  // The errno of a failed call. EIO for a failed work request.
  int code() const { return is_completion() ? EIO : code_; }
  // The status of a failed work request. IBV_WC_SUCCESS for a failed call.
  ibv_wc_status status() const { return status_; }
  bool is_completion() const { return status_ != IBV_WC_SUCCESS; }
  // For a failed work request, else 0: the number of its queue pair, and the adapter's own error code.
  std::uint32_t qp_num() const { return qp_num_; }
  std::uint32_t vendor_error() const { return vendor_; }
  // The position, from 0, of the first request of a chain that was not posted. Earlier requests of the chain
  // were posted. at() returns a copy of the error with another position.
  std::size_t position() const { return position_; }
  error at(std::size_t position) const {
    error copy = *this;
    copy.position_ = position;
    return copy;
  }

  // Returns a copy. If the error has no subject, the copy has this one.
  error about(std::string_view subject) const {
    error copy = *this;
    if (copy.subject().empty()) copy.name(subject);
    return copy;
  }

  // Returns a sentence about how to mend the failure, or nullptr if none is known.
  const char* hint() const { return is_completion() ? hint_for(status_) : hint_; }
  // Returns a sentence, such as "SEND on QP 0x1234: RNR retry counter exceeded (13): the peer has posted no
  // receive".
  std::string message() const {
    std::string text = tried_;
    if (is_completion()) {
      std::array<char, 32> number;
      std::snprintf(number.data(), number.size(), " on QP 0x%x: ", qp_num_);
      text += number.data();
      text += ibv_wc_status_str(status_);
      text += " (" + std::to_string(static_cast<int>(status_)) + ")";
    } else {
      if (!subject().empty()) text.append(" ").append(subject());
      text += ": " + std::generic_category().message(code_) + " (errno " + std::to_string(code_) + ")";
    }
    if (hint() != nullptr) text.append(": ").append(hint());
    return text;
  }

 private:
  static constexpr std::string_view kCut = "\u2026";

  void name(std::string_view subject) {
    if (subject.size() < subject_.size()) {
      *std::copy(subject.begin(), subject.end(), subject_.begin()) = 0;
      return;
    }
    std::size_t kept = subject_.size() - 1 - kCut.size();
    while (kept > 0 && (subject[kept] & 0xc0) == 0x80) --kept;  // inside a character of UTF-8
    std::copy_n(subject.begin(), kept, subject_.begin());
    *std::copy(kCut.begin(), kCut.end(), subject_.begin() + static_cast<std::ptrdiff_t>(kept)) = 0;
  }
  static const char* hint_for(ibv_wc_status status) {
    switch (status) {
      case IBV_WC_RNR_RETRY_EXC_ERR:
        return "the peer has posted no receive";
      case IBV_WC_RETRY_EXC_ERR:
        return "the peer does not answer: has it ended, or is the path to it closed?";
      case IBV_WC_REM_ACCESS_ERR:
        return "the peer's memory has another key, is shorter, or does not allow this access";
      case IBV_WC_LOC_PROT_ERR:
        return "a local buffer is not registered, is shorter, or does not allow writing";
      case IBV_WC_LOC_LEN_ERR:
        return "the message is longer than the receive that was posted for it";
      case IBV_WC_REM_INV_REQ_ERR:
        return "the peer does not support the request, or its receive is too short";
      case IBV_WC_WR_FLUSH_ERR:
        return "the queue pair is in the error state; the first failed request tells the reason";
      default:
        return nullptr;
    }
  }

  const char* tried_;
  const char* hint_ = nullptr;
  int code_ = 0;
  ibv_wc_status status_ = IBV_WC_SUCCESS;
  std::uint32_t qp_num_ = 0;
  std::uint32_t vendor_ = 0;
  std::size_t position_ = 0;
  std::array<char, 96> subject_{};
};

// An error as an exception. result::value() and the coroutines of this API throw it.
class exception : public std::runtime_error {
 public:
  explicit exception(const verbena::error& reason) : std::runtime_error(reason.message()), error_(reason) {}
  const verbena::error& error() const { return error_; }

 private:
  verbena::error error_;
};

// Thrown by an operation of a connection that has ended in order: one of its ends has disconnected.
class disconnected final : public exception {
 public:
  using exception::exception;
};

// Holds a value or the error that prevented it. Unlike std::expected (C++23) it needs only C++20.
template <class T>
class [[nodiscard]] result {
 public:
  using value_type = T;

  result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  result(verbena::error reason) : held_(std::in_place_index<1>, reason) {}

  bool has_value() const { return held_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  // REQUIRES for *, ->: has_value()
  T& operator*() & { return *std::get_if<0>(&held_); }
  const T& operator*() const& { return *std::get_if<0>(&held_); }
  T&& operator*() && { return std::move(*std::get_if<0>(&held_)); }
  T* operator->() { return std::get_if<0>(&held_); }
  const T* operator->() const { return std::get_if<0>(&held_); }

  // Return the value, or throw verbena::exception.
  T& value() & { return check(), **this; }
  const T& value() const& { return check(), **this; }
  T&& value() && { return check(), *std::move(*this); }
  T value_or(T other) && { return has_value() ? *std::move(*this) : std::move(other); }

  // REQUIRES: !has_value()
  const verbena::error& error() const { return *std::get_if<1>(&held_); }

 private:
  void check() const {
    if (!has_value()) throw exception(error());
  }

  std::variant<T, verbena::error> held_;
};

// Success without a value, or an error.
template <>
class [[nodiscard]] result<void> {
 public:
  using value_type = void;

  result() = default;
  result(verbena::error reason) : held_(std::in_place_index<1>, reason) {}

  bool has_value() const { return held_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  // Throws verbena::exception on an error.
  void value() const {
    if (!has_value()) throw exception(error());
  }
  // REQUIRES: !has_value()
  const verbena::error& error() const { return *std::get_if<1>(&held_); }

 private:
  std::variant<std::monostate, verbena::error> held_;
};

}  // namespace verbena

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <verbena/verbs/memory.hpp>

namespace verbena {

// Memory of the peer that holds a T: its address there and its remote key. Trivially copyable: the owner
// sends it to the peer (connection::send_value()).
template <class T>
struct remote {
  static_assert(std::is_trivially_copyable_v<T>,
                "peers see the bytes of a T: it has to be trivially copyable");
  remote_slice memory;

  // Returns a member of the object, such as r.member(&counter::hits).
  template <class Member, class Whole>
  requires(std::is_same_v<Whole, T>) remote<Member> member(Member Whole::*which)
  const {
    // No object is accessed: the offset of a member is the same in all objects of its class.
    alignas(T) static std::byte place[sizeof(T)]{};
    const T* const whole = std::launder(reinterpret_cast<const T*>(place));
    const auto offset =
        static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(&(whole->*which)) - place);
    return {memory.part(offset, sizeof(Member))};
  }
  // Returns an element of a std::array. REQUIRES: index is less than the array's size
  template <class Array = T>
  requires(std::tuple_size<Array>::value != 0) remote<typename Array::value_type>
  operator[](std::size_t index) const {
    constexpr std::size_t kSize = sizeof(typename Array::value_type);
    return {memory.part(index * kSize, kSize)};
  }
};

namespace detail {

// The owner of blocks of registered memory, or of a receive buffer. give_back() returns a block to it.
class block_owner {
 public:
  virtual void give_back(const slice& memory) = 0;

 protected:
  ~block_owner() = default;
};

}  // namespace detail

// Registered memory that the program has for a while: to fill and send, or with data that has arrived. An
// operation takes the buffer, so that nobody touches the memory while the adapter uses it. The destruction of
// a buffer returns the memory to its owner. Belongs to its connection's thread, and must not outlive the
// loop.
class buffer {
 public:
  buffer() = default;
  buffer(const slice& memory, detail::block_owner& owner)
      : memory_(memory), size_(memory.size()), owner_(&owner) {}
  buffer(buffer&& other) noexcept
      : memory_(std::exchange(other.memory_, {})),
        size_(std::exchange(other.size_, 0)),
        owner_(std::exchange(other.owner_, nullptr)) {}
  buffer& operator=(buffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    std::swap(owner_, other.owner_);
    return *this;
  }
  ~buffer() {
    if (owner_ != nullptr) owner_->give_back(memory_);
  }

  // Whether the buffer has memory. The buffer that receive() returns after the last message has none. Keep
  // the buffer in a variable to ask it. A temporary lacks this operator, because GCC 12 miscompiles a loop
  // over `co_await c.receive()` itself.
  explicit operator bool() const& { return owner_ != nullptr; }
  explicit operator bool() const&& = delete;  // write: while (const buffer m = co_await c.receive())
  std::span<std::byte> bytes() const { return memory_.bytes().first(size_); }
  std::byte* data() const { return memory_.data(); }
  std::size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data()), size()}; }
  slice memory() const { return memory_.first(size_); }
  // Shortens the buffer to its first `size` bytes, because a message may be shorter than its buffer. Throws
  // exception with ERANGE if the buffer is shorter.
  void shrink(std::size_t size) { size_ = memory_.first(size).size(); }

 private:
  slice memory_;
  std::size_t size_ = 0;
  detail::block_owner* owner_ = nullptr;
};

// A buffer that holds a T.
template <class T>
class lease {
 public:
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 64,
                "a T arrives as bytes: it has to be trivially copyable, and aligned to 64 bytes at most");
  lease() = default;
  explicit lease(buffer memory) : memory_(std::move(memory)) {}

  explicit operator bool() const { return static_cast<bool>(memory_); }
  T& operator*() const { return *reinterpret_cast<T*>(memory_.data()); }
  T* operator->() const { return &**this; }
  buffer release() && { return std::move(memory_); }

 private:
  buffer memory_;
};

}  // namespace verbena

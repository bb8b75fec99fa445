// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/unique_fd.h"

namespace verbena {

// Owns a descriptor that we keep in the application's process, and knows it again. A daemon closes all
// descriptors that it has (close_range(2)), or a program closes one twice; the number then is another file's,
// and what we would read, write or close is the application's.
//
// Two things against that. The descriptor is moved up, to numbers of the upper half of what the process may
// have (of 2048 at most), so that files which are opened afterwards do not get it: the kernel gives the
// lowest that is free. And it can be told whether it is still the same (is_ours()), by what the kernel says
// of the file and no other file has. Whose number it is no more it is not closed.
//
// One thread at a time, but that others may ask for the number while settle() takes it away.
class OwnFd {
 public:
  OwnFd() = default;
  // Moves it up, if there is room. What an epoll set knows it by changes with that.
  OwnFd(UniqueFd fd);  // NOLINT(google-explicit-constructor)
  // The application knows it by its number, which it keeps.
  static OwnFd with_known_number(UniqueFd fd);
  OwnFd(OwnFd&& other) noexcept : fd_(other.fd_.exchange(-1)), mark_(other.mark_) {}
  OwnFd& operator=(OwnFd&& other) noexcept {
    if (this == &other) return *this;
    reset();
    fd_ = other.fd_.exchange(-1);
    mark_ = other.mark_;
    return *this;
  }
  ~OwnFd() { reset(); }

  int get() const { return fd_.load(std::memory_order_relaxed); }
  explicit operator bool() const { return get() >= 0; }

  // Whether the number still is that of our file. One system call, which waits for no kind of file. False of
  // none.
  bool is_ours() const;
  // Closes it, if it is ours.
  void reset();
  // Hands it on; nothing if it is not ours any more.
  UniqueFd take();
  // Puts another file behind the number.
  void become(const UniqueFd& other);
  // If it is not ours any more there is none from now on. Whether there is one.
  bool settle();

 private:
  // What no other file has.
  struct Mark {
    enum Kind : uint8_t { kNone, kSocket, kAnonymous, kFile };
    Kind kind = kNone;
    uint64_t identity[2] = {};
    friend bool operator==(const Mark&, const Mark&) = default;
  };
  OwnFd(UniqueFd fd, bool keeps_number);
  static Mark make_mark(int fd);
  static Mark read_mark(int fd, Mark::Kind kind);

  std::atomic<int> fd_{-1};
  Mark mark_;
};

}  // namespace verbena

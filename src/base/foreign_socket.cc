// SPDX-License-Identifier: Apache-2.0
#include "base/foreign_socket.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/detached_thread.h"
#include "base/log.h"
#include "base/socket_option.h"

namespace verbena {

namespace {

constexpr size_t kStack = 256 << 10;

// Descriptors that a thread of their own handles. No locks and no allocation, so that a pile is consistent at
// any moment of a fork() or an exit.
class Pile {
 public:
  // `handle` is called on the thread with each descriptor.
  constexpr Pile(const char* thread, void (*handle)(int)) : thread_(thread), handle_(handle) {}

  void add(int fd) {
    if (!put(fd + 1)) {
      return log_warning("other processes have sent more descriptors than can be closed: one stays open");
    }
    if (at_work_.exchange(true)) return;
    // If no thread can be started, the descriptor waits for the next call.
    if (!start_detached_thread(work, this, kStack)) at_work_ = false;
  }
  size_t size() const {
    return static_cast<size_t>(std::ranges::count_if(places_, [](const auto& place) { return place != 0; }));
  }
  // For a child after fork(): the thread does not exist there. The child has copies of the descriptors, which
  // its own thread handles.
  void forget_thread() { at_work_ = false; }

 private:
  bool put(int entry) {
    for (auto& place : places_) {
      int free = 0;
      if (place.compare_exchange_strong(free, entry)) return true;
    }
    return false;
  }
  void handle_all() {
    for (auto& place : places_) {
      if (const int fd = place.exchange(0) - 1; fd >= 0) handle_(fd);
    }
  }
  // A thread that saw at_work_ set just before it was cleared relies on this one: so look again after
  // clearing it.
  static void* work(void* pile) {
    Pile& its = *static_cast<Pile*>(pile);
    ::pthread_setname_np(::pthread_self(), its.thread_);
    do {
      while (its.size() > 0) its.handle_all();
      its.at_work_ = false;
    } while (its.size() > 0 && !its.at_work_.exchange(true));
    return nullptr;
  }

  const char* const thread_;
  void (*const handle_)(int);
  std::array<std::atomic<int>, kMaxDiscarded> places_{};  // descriptors plus 1; 0 is free
  std::atomic<bool> at_work_{false};
};

constinit Pile closing("verbena-discard", [](int fd) { ::close(fd); });
// Not the same thread: close() may block, and then the peers would not see the end.
constinit Pile hanging_up("verbena-hang-up", [](int fd) {
  if (UniqueFd left = ForeignSocket(UniqueFd(fd)).part(); left) closing.add(left.release());
});

[[maybe_unused]] const int watched = ::pthread_atfork(nullptr, nullptr, [] {
  closing.forget_thread();
  hanging_up.forget_thread();
});

constexpr size_t kSenderRoom = CMSG_SPACE(sizeof(ucred));
// CMSG_LEN and not CMSG_SPACE: alignment would make room for a second one.
constexpr size_t kFileRoom = CMSG_LEN(sizeof(int));
// Limits the loop over messages that are left, to about a millisecond. Where net.core.wmem_max has its old
// default, a peer's buffer has room for some 550 short ones.
constexpr size_t kMaxLeft = 1024;

union Control {
  cmsghdr alignment;
  char bytes[kSenderRoom + CMSG_SPACE(sizeof(int))];
};

// By syscall(2), which is no cancellation point: the caller may hold locks.
long receive(int socket, msghdr& header, int flags) {
  for (;;) {
    const long bytes = ::syscall(SYS_recvmsg, socket, &header, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes >= 0 || errno != EINTR) return bytes;
  }
}

void read_control(msghdr& header, ForeignMessage& message) {
  for (cmsghdr* at = CMSG_FIRSTHDR(&header); at != nullptr; at = CMSG_NXTHDR(&header, at)) {
    if (at->cmsg_level != SOL_SOCKET) continue;
    if (at->cmsg_type == SCM_CREDENTIALS && at->cmsg_len == CMSG_LEN(sizeof(ucred))) {
      ucred sender;
      std::memcpy(&sender, CMSG_DATA(at), sizeof sender);
      message.sender = sender;
    } else if (at->cmsg_type == SCM_RIGHTS && at->cmsg_len == CMSG_LEN(sizeof(int))) {
      int file;
      std::memcpy(&file, CMSG_DATA(at), sizeof file);
      message.file = ForeignFd(UniqueFd(file));
    }
  }
}

}  // namespace

void discard(UniqueFd fd) {
  if (fd) closing.add(fd.release());
}

void discard_socket(UniqueFd socket) {
  if (socket) hanging_up.add(socket.release());
}

size_t discarding() {
  return closing.size() + hanging_up.size();
}

Result<ForeignMessage> ForeignSocket::look(Bytes buffer, Room room) const {
  iovec data{buffer.data(), buffer.size()};
  Control control;
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_controllen = (room.sender ? kSenderRoom : 0) + (room.file ? kFileRoom : 0);
  header.msg_control = header.msg_controllen > 0 ? control.bytes : nullptr;
  const long bytes = receive(socket_.get(), header, MSG_PEEK);
  if (bytes < 0) return fail(errno);
  ForeignMessage message;
  message.bytes = static_cast<size_t>(bytes);
  message.is_longer = (header.msg_flags & MSG_TRUNC) != 0;
  message.has_more_files = (header.msg_flags & MSG_CTRUNC) != 0;
  read_control(header, message);
  return message;
}

// Receives with a buffer of one byte: qemu-user does not pass on a call without a buffer, and the message
// would stay.
void ForeignSocket::drop() const {
  char byte;
  iovec data{&byte, sizeof byte};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  receive(socket_.get(), header, 0);
}

void ForeignSocket::hang_up() {
  discard(part());
}

void ForeignSocket::hang_up_later() {
  discard_socket(take());
}

UniqueFd ForeignSocket::part() {
  if (!socket_.settle()) return {};
  // From now on nothing more arrives.
  ::shutdown(socket_.get(), SHUT_RDWR);
  if (remove_some(kMaxLeft) == Left::kNothing) socket_.reset();
  return socket_.take();
}

bool ForeignSocket::clear_some(size_t most) {
  if (!socket_.settle()) return true;
  ::shutdown(socket_.get(), SHUT_RDWR);
  return remove_some(most) != Left::kMessages;
}

// Removes messages without descriptors, until one with descriptors is the next. A socket that has never
// passed descriptors needs no look. SO_PASSCRED tells the end of the stream from an empty message: only the
// message has a sender.
ForeignSocket::Left ForeignSocket::remove_some(size_t most) const {
  if (refuses_descriptors(socket_.get())) return Left::kNothing;
  set_option(socket_.get(), SOL_SOCKET, SO_PASSCRED, 1);
  for (size_t i = 0; i < most; ++i) {
    const auto left = look({}, {.sender = true});
    if (!left && left.error().code == EAGAIN) return Left::kNothing;
    if (!left) continue;  // the peer's reset is reported once, before queued messages
    if (left->has_more_files) return Left::kDescriptors;
    if (!left->sender) return Left::kNothing;
    drop();
  }
  return Left::kMessages;
}

}  // namespace verbena

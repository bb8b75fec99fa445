// SPDX-License-Identifier: Apache-2.0
#include "base/foreign_socket.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/detached_thread.h"
#include "base/log.h"
#include "base/own_number.h"
#include "base/socket_option.h"

namespace verbena {

namespace {

constexpr size_t kStack = 256 << 10;

// The identity of a file that another process has sent. Its calls block for no kind of file, unlike those of
// OwnFd. And the sender, who has the open file, too, cannot change it.
class ForeignFile {
 public:
  ForeignFile() = default;
  explicit ForeignFile(int fd) {
    if (const auto cookie = get_option<uint64_t>(fd, SOL_SOCKET, SO_COOKIE)) {
      kind_ = S_IFSOCK;
      identity_ = {*cookie};
      return;
    }
    struct statx about {};
    if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &about) != 0) return;
    kind_ = about.stx_mode & S_IFMT;
    identity_ = {makedev(about.stx_dev_major, about.stx_dev_minor), about.stx_ino};
  }
  friend bool operator==(const ForeignFile&, const ForeignFile&) = default;

  // Returns whether close() does not block while there is another descriptor of the open file. Each close()
  // of a regular file may ask the file system. `fd`: a descriptor of the file
  bool has_quick_close(int fd) const {
    return kind_ == S_IFSOCK || kind_ == S_IFIFO || kind_ == S_IFCHR || kind_ == kAnonymous ||
           ::fcntl(fd, F_GET_SEALS) >= 0;
  }

 private:
  static constexpr mode_t kAnonymous = 0;  // of eventfd(2), epoll_create(2) and others
  static constexpr mode_t kUnknown = ~mode_t{};

  mode_t kind_ = kUnknown;
  std::array<uint64_t, 2> identity_{};
};

// Descriptors that a thread of their own handles. No locks and no allocation, so that a pile is consistent at
// any moment of a fork() or an exit.
//
// They may wait for as long as another process wishes, and meanwhile the program may close all descriptors
// and open files of its own, which get the lowest free numbers. So the pile moves descriptors up, and handles
// only those whose numbers still refer to the same file.
class Pile {
 public:
  // `handle` is called on the thread with each descriptor.
  constexpr Pile(const char* thread, void (*handle)(UniqueFd)) : thread_(thread), handle_(handle) {}

  void add(UniqueFd fd) {
    Place* const place = take_place();
    if (place == nullptr) {
      (void)fd.release();
      return log_warning("other processes have sent more descriptors than can be closed: one stays open");
    }
    place->file = ForeignFile(fd.get());
    if (place->file.has_quick_close(fd.get())) fd = with_own_number(std::move(fd));
    place->fd = fd.release();
    place->state = State::kWaits;
    if (at_work_.exchange(true)) return;
    // If no thread can be started, the descriptor waits for the next call.
    if (!start_detached_thread(work, this, kStack)) at_work_ = false;
  }
  size_t size() const {
    return static_cast<size_t>(
        std::ranges::count_if(places_, [](const Place& place) { return place.state == State::kWaits; }));
  }
  // For a child after fork(): the thread does not exist there, and the descriptors are the parent's to
  // handle. The child's copies stay open, because the child may close all descriptors before it calls us.
  void forget() {
    for (Place& place : places_) place.state = State::kFree;
    at_work_ = false;
  }

 private:
  enum class State : uint8_t { kFree, kTaken, kWaits };
  struct Place {
    std::atomic<State> state{State::kFree};
    int fd = -1;
    ForeignFile file;
  };

  Place* take_place() {
    for (Place& place : places_) {
      State free = State::kFree;
      if (place.state.compare_exchange_strong(free, State::kTaken)) return &place;
    }
    return nullptr;
  }
  void handle_all() {
    for (Place& place : places_) {
      State waits = State::kWaits;
      if (!place.state.compare_exchange_strong(waits, State::kTaken)) continue;
      const int fd = place.fd;
      const ForeignFile file = place.file;
      place.state = State::kFree;
      if (ForeignFile(fd) == file) handle_(UniqueFd(fd));
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
  void (*const handle_)(UniqueFd);
  std::array<Place, kMaxDiscarded> places_{};
  std::atomic<bool> at_work_{false};
};

constinit Pile closing("verbena-discard", [](UniqueFd fd) { fd.reset(); });
// Not the same thread: close() may block, and then the peers would not see the end.
constinit Pile hanging_up("verbena-hang-up", [](UniqueFd fd) {
  if (UniqueFd left = ForeignSocket(std::move(fd)).part(); left) closing.add(std::move(left));
});

[[maybe_unused]] const int watched = ::pthread_atfork(nullptr, nullptr, [] {
  closing.forget();
  hanging_up.forget();
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
  if (fd) closing.add(std::move(fd));
}

void discard_socket(UniqueFd socket) {
  if (socket) hanging_up.add(std::move(socket));
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
    // Each message may take long, and the program may close all descriptors meanwhile.
    if (!socket_.is_ours()) return Left::kNothing;
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

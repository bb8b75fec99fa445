// SPDX-License-Identifier: Apache-2.0
#include "base/foreign_socket.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/foreign_pile.h"
#include "base/socket_option.h"

namespace verbena {

namespace {

// The number of messages that are removed from a socket at a time.
constexpr size_t kPiece = 16;

constinit ForeignPile closing("verbena-discard", [](UniqueFd fd, uid_t) {
  fd.reset();
  return UniqueFd();
});
// Not the same thread: close() may block, and then the peers would not see the end.
constinit ForeignPile hanging_up("verbena-hang-up", [](UniqueFd fd, uid_t user) {
  ForeignSocket socket(std::move(fd));
  if (!socket.clear_some(kPiece)) return socket.take();
  discard(socket.part(), user);
  return UniqueFd();
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

void read_control(msghdr& header, ForeignMessage& message, uid_t user) {
  for (cmsghdr* at = CMSG_FIRSTHDR(&header); at != nullptr; at = CMSG_NXTHDR(&header, at)) {
    if (at->cmsg_level != SOL_SOCKET) continue;
    if (at->cmsg_type == SCM_CREDENTIALS && at->cmsg_len == CMSG_LEN(sizeof(ucred))) {
      ucred sender;
      std::memcpy(&sender, CMSG_DATA(at), sizeof sender);
      message.sender = sender;
    } else if (at->cmsg_type == SCM_RIGHTS && at->cmsg_len == CMSG_LEN(sizeof(int))) {
      int file;
      std::memcpy(&file, CMSG_DATA(at), sizeof file);
      message.file = ForeignFd(UniqueFd(file), user);
    }
  }
}

}  // namespace

void discard(UniqueFd fd, uid_t user) {
  if (fd) closing.add(std::move(fd), user);
}

void discard_socket(UniqueFd socket, uid_t user) {
  if (socket) hanging_up.add(std::move(socket), user);
}

size_t discarding() {
  return closing.size() + hanging_up.size();
}

size_t discarding(uid_t user) {
  return closing.size_of(user) + hanging_up.size_of(user);
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
  read_control(header, message, room.user);
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

void ForeignSocket::hang_up_later(uid_t user) {
  discard_socket(take(), user);
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

// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/client_sockets.h"

#include <charconv>
#include <cstdlib>
#include <system_error>

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/un.h>

#include "base/paths/users.h"
#include "control/model/message_socket.h"

namespace verbena::agent {

namespace {

constexpr int kFirst = 3;  // SD_LISTEN_FDS_START

int number_in(const char* variable) {
  const char* text = ::secure_getenv(variable);
  const std::string_view word = text != nullptr ? text : "";
  int number = 0;
  const auto read = std::from_chars(word.data(), word.data() + word.size(), number);
  return read.ec == std::errc() && read.ptr == word.data() + word.size() ? number : 0;
}

int option_of(int socket, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

bool listens_for_us(int socket) {
  sockaddr_un address{};
  socklen_t length = sizeof address;
  const control::AgentAddress own(paths::own_user());
  return option_of(socket, SO_TYPE) == SOCK_SEQPACKET && option_of(socket, SO_ACCEPTCONN) == 1 &&
         ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0 && length == own.length &&
         std::memcmp(&address, own.address(), length) == 0;
}

constexpr Duration kLookInterval = std::chrono::seconds(1);

constexpr size_t kMaxUnreadReplies = 1536;

// Whether the other end has received everything or is gone. The kernel wakes this end before it frees the
// last message, which counts as one byte for a moment.
bool is_all_taken(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) != 0 || bytes <= 1;
}

}  // namespace

UniqueFd take_passed_socket() {
  const bool is_ours = number_in("LISTEN_PID") == ::getpid() && number_in("LISTEN_FDS") >= 1;
  for (const char* variable : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(variable);
  if (!is_ours) return {};
  if (!listens_for_us(kFirst)) {
    log_warning("the socket that the service manager has passed is not the one of this user's agent");
    return {};
  }
  if (::fcntl(kFirst, F_SETFL, O_RDWR | O_NONBLOCK) != 0 || ::fcntl(kFirst, F_SETFD, FD_CLOEXEC) != 0)
    return {};
  return UniqueFd(kFirst);
}

ClientSockets::ClientSockets(EventLoop& loop, Quota::Size unread, uid_t own, Quota::Size received,
                             Quota::Size refused)
    : loop_(loop),
      closer_(received, own, refused),
      files_(loop, closer_, own, HeldFiles::room_with(descriptor_limit())),
      unread_(unread, own),
      replies_(room_for_replies(unread), own) {
  loop_.watch(closer_.fd(), EPOLLIN, [this](uint32_t) { take_closed(); });
}

ClientSockets::~ClientSockets() {
  loop_.forget(closer_.fd());
  for (Left& each : left_) closer_.close(each.user, each.socket.part(), std::move(each.share));
}

void ClientSockets::take_closed() {
  for (ForeignCloser::Done& done : closer_.take_closed()) {
    done.share.reset();
    if (!waiting_.empty()) wake_one_of_each_user();
    if (!done.task) continue;
    const auto in_turn = [&] {
      loop_.in_turn_of(done.user, [this, user = done.user, task = done.task] {
        task();
        wake_all_of(user);  // some may have waited for the task
        return false;
      });
    };
    if (!survive_lack_of_memory(in_turn)) survive_lack_of_memory(done.task);  // its owner waits for it
  }
}

Quota::Size ClientSockets::room_with(size_t descriptors) {
  return Quota::Size::of(descriptors / 2);
}

Quota::Size ClientSockets::room_for_replies(Quota::Size room) {
  return room.all <= kMaxUnreadReplies ? room : Quota::Size::of(kMaxUnreadReplies);
}

void ClientSockets::sent(uid_t user, size_t files, For what) {
  unread_.take(user, files);
  if (what == For::kReplies) replies_.take(user, files);
}

void ClientSockets::taken(uid_t user, size_t files, For what) {
  if (files == 0) return;
  unread_.give_back(user, files);
  if (what == For::kReplies) replies_.give_back(user, files);
  wake_one_of_each_user();
}

void ClientSockets::wake_one_of_each_user() {
  for (auto of_user = waiting_.begin(); of_user != waiting_.end();) {
    auto& sockets = of_user->second;
    loop_.set_events(sockets.begin()->second, EPOLLIN);
    sockets.erase(sockets.begin());
    of_user = sockets.empty() ? waiting_.erase(of_user) : std::next(of_user);
  }
}

void ClientSockets::wake_all_of(uid_t user) {
  const auto of_user = waiting_.find(user);
  if (of_user == waiting_.end()) return;
  for (const auto& [ticket, socket] : of_user->second) loop_.set_events(socket, EPOLLIN);
  waiting_.erase(of_user);
}

uint64_t ClientSockets::await_room(uid_t user, int socket) {
  waiting_[user].emplace(++last_ticket_, socket);
  return last_ticket_;
}

void ClientSockets::cancel_wait(uid_t user, uint64_t ticket) {
  const auto of_user = waiting_.find(user);
  if (of_user == waiting_.end()) return;
  of_user->second.erase(ticket);
  if (of_user->second.empty()) waiting_.erase(of_user);
}

// The client sees the end at once, but the descriptor may be closed much later. The user's thread shuts the
// socket down, because that wakes all watches of the client's end.
void ClientSockets::close(uid_t user, ForeignSocket socket, size_t unread, For what, QuotaShare share) {
  if (unread == 0 || is_all_taken(socket.get())) {
    taken(user, unread, what);
    return closer_.shut_down_and_close(user, socket.take(), std::move(share));
  }
  if (UniqueFd copy(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0)); copy) {
    closer_.shut_down_and_close(user, std::move(copy), share);
  }
  left_.push_back({user, std::move(socket), unread, what, std::move(share)});
  look_later();
}

bool ClientSockets::refuse(uid_t user, ForeignSocket socket) {
  closer_.shut_down_and_close(user, socket.take(), closer_.count(user), refused_);
  return may_refuse();
}

bool ClientSockets::may_refuse() const {
  return static_cast<size_t>(refused_.use_count()) <= kMaxRefused;
}

void ClientSockets::look_later() {
  if (!left_.empty()) next_look_.arm(MonotonicClock::now() + kLookInterval);
}

void ClientSockets::look() {
  for (auto each = left_.begin(); each != left_.end();) {
    if (!is_all_taken(each->socket.get())) {
      ++each;
      continue;
    }
    taken(each->user, each->unread, each->what);
    closer_.shut_down_and_close(each->user, each->socket.take(), std::move(each->share));
    each = left_.erase(each);
  }
}

ClientSocket::~ClientSocket() {
  all_.close(user_, std::move(socket_), unread_, what_, std::move(share_));
}

Result<ClientSocket::Message> ClientSocket::look(Bytes buffer, bool with_file) const {
  auto seen = socket_.look(buffer, {.file = with_file});
  if (!seen) return fail(seen.error().code);
  Message message;
  message.bytes = seen->bytes;
  message.is_longer = seen->is_longer;
  message.has_files = seen->has_more_files;
  if (UniqueFd file = seen->file.take_known(); file) {
    message.file = ClientFile(std::move(file), user_, all_.closer(), all_.closer().count_received(user_));
  }
  return message;
}

void ClientSocket::drop() const {
  all_.loop().send_to(user_, [this] { socket_.drop(); });
}

size_t ClientSocket::unread() {
  if (unread_ != 0 && is_all_taken(socket_.get())) all_.taken(user_, std::exchange(unread_, 0), what_);
  return unread_;
}

bool ClientSocket::may_send(size_t files) {
  return unread() + files <= kMaxUnread && all_.allows(user_, files, what_);
}

Result<void> ClientSocket::send(ConstBytes message, std::span<const int> fds) {
  if (!fds.empty()) unread();
  auto sent = control::send_message(socket_.get(), message, fds);
  if (sent && !fds.empty()) {
    unread_ += fds.size();
    all_.sent(user_, fds.size(), what_);
  }
  return sent;
}

}  // namespace verbena::agent

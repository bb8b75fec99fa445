// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/wire.h"

#include <deque>
#include <iterator>
#include <system_error>

#include <pthread.h>

#include "adapter/net/udp/peer_filter.h"
#include "adapter/net/udp/udp_port.h"
#include "base/detached_thread.h"
#include "base/format.h"
#include "base/log.h"
#include "base/socket_option.h"

namespace verbena::agent {

namespace {

constexpr size_t kStack = 256 << 10;
constexpr auto kPatience = std::chrono::milliseconds(50);

// Returns 0 if no socket is bound to the port, else the errno. A socket without SO_REUSEPORT shares the port
// with none.
int try_exclusive_bind(uint16_t port) {
  int family = AF_INET6;
  UniqueFd socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) {
    family = AF_INET;
    socket.reset(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  }
  if (!socket) return errno;
  sockaddr_in6 any{};  // the port is at the same offset in both kinds of address
  any.sin6_family = static_cast<sa_family_t>(family);
  any.sin6_port = htons(port);
  const socklen_t length = family == AF_INET6 ? sizeof any : sizeof(sockaddr_in);
  const int no = 0;
  if (family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), length) == 0 ? 0 : errno;
}

uint64_t cookie_of(int socket) {
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  return ::getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

bool is_of_a_group(int socket) {
  int type = 0;
  int shared = 0;
  socklen_t length = sizeof type;
  if (::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_DGRAM) return false;
  length = sizeof shared;
  return ::getsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &shared, &length) == 0 && shared != 0;
}

bool is_bound_to(int socket, uint16_t port) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return false;
  // The port is at the same offset in both kinds of address.
  const bool is_ip = address.ss_family == AF_INET || address.ss_family == AF_INET6;
  return is_ip && reinterpret_cast<const sockaddr_in&>(address).sin_port == htons(port);
}

void drain(int socket) {
  // The queue is bounded and receives nothing new. The loop also ends if that should not hold.
  char byte;
  for (int i = 0; i < 1 << 20; ++i) {
    if (::recv(socket, &byte, sizeof byte, MSG_DONTWAIT | MSG_TRUNC) < 0 && errno != EINTR) return;
  }
}

// Filter of a muted socket: drops all packets.
constexpr sock_filter kNothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};

bool attach_filter(int socket, std::span<const sock_filter> filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()),
                           const_cast<sock_filter*>(filter.data())};
  return ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

// Whether the socket has the filter kNothing. The kernel returns the number of instructions as the length.
bool is_muted(int socket) {
  sock_filter filter[1];
  socklen_t length = std::size(filter);
  return ::getsockopt(socket, SOL_SOCKET, SO_GET_FILTER, filter, &length) == 0 && length == 1 &&
         filter[0].code == kNothing[0].code && filter[0].k == kNothing[0].k;
}

// Sets the filter; an empty one lets all packets through.
bool set_filter(int socket, std::span<const sock_filter> filter) {
  if (!filter.empty()) return attach_filter(socket, filter);
  const int unused = 0;
  return ::setsockopt(socket, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused) == 0 || errno == ENOENT;
}

void keep_from_strangers(uint32_t slot, int socket, std::span<const sock_filter> filter) {
  if (!set_filter(socket, filter)) log_error("slot {} cannot be kept from strangers: errno {}", slot, errno);
}

bool equal(std::span<const sock_filter> a, std::span<const sock_filter> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

std::vector<net::GuardedLink> guarded_links(const std::vector<control::Link>& links) {
  std::vector<net::GuardedLink> guarded;
  for (const control::Link& link : links) {
    if (link.peers.empty()) continue;
    net::GuardedLink& one = guarded.emplace_back();
    one.interface_index = link.interface_index;
    one.peers = link.peers;
    for (const control::GidEntry& entry : link.gids) one.addresses.push_back(entry.gid);
  }
  return guarded;
}

}  // namespace

struct SocketCalls::Work {
  std::mutex mutex;
  std::condition_variable progress;
  // Under the mutex
  std::deque<Call> next;
  bool at_work = false;  // a thread runs
  bool is_late = false;  // a call took longer than kPatience
  uint64_t asked = 0;    // calls so far
  uint64_t made = 0;
};

SocketCalls::SocketCalls() : work_(std::make_shared<Work>()) {}

void* SocketCalls::run(void* argument) {
  const std::unique_ptr<std::shared_ptr<Work>> owned(static_cast<std::shared_ptr<Work>*>(argument));
  Work& work = **owned;
  ::pthread_setname_np(::pthread_self(), "verbena-sockets");
  std::unique_lock lock(work.mutex);
  while (!work.next.empty()) {
    {
      const Call call = std::move(work.next.front());
      work.next.pop_front();
      lock.unlock();
      call();
    }
    lock.lock();
    ++work.made;
    if (work.next.empty()) work.is_late = false;
    work.progress.notify_all();
  }
  work.at_work = false;
  return nullptr;
}

size_t SocketCalls::waiting() const {
  const std::lock_guard lock(work_->mutex);
  return static_cast<size_t>(work_->asked - work_->made);
}

void SocketCalls::make(Call call) {
  std::unique_lock lock(work_->mutex);
  work_->next.push_back(std::move(call));
  const uint64_t number = ++work_->asked;
  if (!work_->at_work) {
    auto argument = std::make_unique<std::shared_ptr<Work>>(work_);
    work_->at_work = start_detached_thread(run, argument.get(), kStack);
    if (!work_->at_work) return log_warning("no thread can be started: a socket is not set up for now");
    argument.release();  // owned by the thread now
  }
  if (work_->is_late) return;
  work_->is_late = !work_->progress.wait_for(lock, kPatience, [&] { return work_->made >= number; });
}

void Wire::open() {
  if (const int error = try_exclusive_bind(port_); error != 0) {
    note_failure(error);
    return;
  }
  may_be_ours_ = false;
  failures_ = 0;
  reason_.clear();
  auto socket = net::open_receive_socket(port_);
  if (!socket) {
    reason_ = verbena::format("UDP port {} cannot be bound: errno {}", port_, socket.error().code);
    return;
  }
  sockets_.push_back(std::make_shared<const UniqueFd>(std::move(*socket)));
  mute(0);
  if (const auto steered = steer(); !steered) {
    reason_ = verbena::format("the kernel refuses to steer UDP packets (SO_ATTACH_REUSEPORT_CBPF): errno {}",
                              steered.error().code);
    sockets_.clear();
  }
}

void Wire::note_failure(int error) {
  constexpr uint32_t kLookInterval = 16;
  if (error != EADDRINUSE) {
    may_be_ours_ = false;
    reason_ = verbena::format("UDP port {} cannot be bound: errno {}", port_, error);
    return;
  }
  const bool is_first = failures_ == 0;
  if (failures_++ % kLookInterval == 0) holder_search_.begin(port_);
  const auto found = holder_search_.take(is_first ? kSearchPatience : Duration::zero());
  may_be_ours_ = found ? found->all_ours : is_first || may_be_ours_;
  if (!found && !reason_.empty()) return;
  reason_ = verbena::format("UDP port {} is taken by {}", port_,
                            found && !found->holder.empty() ? found->holder : "another program");
}

Result<void> Wire::adopt(std::vector<UniqueFd> sockets, std::set<uint32_t> shared) {
  std::set<uint64_t> cookies;
  for (uint32_t slot = 0; slot < sockets.size(); ++slot) {
    const int socket = sockets[slot].get();
    // getsockname() takes the socket's lock, which the user of a shared socket may hold.
    const bool is_ours = is_of_a_group(socket) && (shared.contains(slot) || is_bound_to(socket, port_));
    if (!is_ours) return fail(EINVAL);
    const uint64_t cookie = cookie_of(socket);
    if (cookie != 0 && !cookies.insert(cookie).second) return fail(EINVAL);  // the same socket twice
  }
  if (sockets.empty()) return fail(EINVAL);
  sockets_.clear();
  for (UniqueFd& each : sockets) sockets_.push_back(std::make_shared<const UniqueFd>(std::move(each)));
  shared_ = std::move(shared);
  for (uint32_t slot = 1; slot < size(); ++slot) use(slot, net::forbid_sending);
  reason_.clear();
  may_be_ours_ = false;
  return steer();
}

Result<uint32_t> Wire::add() {
  auto socket = net::open_receive_socket(port_);
  if (!socket) return fail(socket.error().code);
  net::forbid_sending(socket->get());
  // Before the kernel steers packets to it: a flood would keep unmute() draining the queue.
  if (!attach_filter(socket->get(), kNothing)) return fail(errno);
  const uint32_t slot = size();
  sockets_.push_back(std::make_shared<const UniqueFd>(std::move(*socket)));
  if (const auto steered = steer(); !steered) {
    sockets_.pop_back();
    return fail(steered.error().code);
  }
  return slot;
}

Result<void> Wire::steer() {
  return net::attach_slot_steering(socket(0), size());
}

void Wire::mute(uint32_t slot) {
  if (socket(slot) < 0) return;
  if (forwarder_ != nullptr) forwarder_->end(slot);
  receivers_.erase(slot);
  use(slot, [slot](int socket) {
    if (!attach_filter(socket, kNothing)) log_warning("slot {} cannot be muted: errno {}", slot, errno);
    drain(socket);
  });
}

void Wire::hang_up(uint32_t slot) {
  if (forwarder_ != nullptr) forwarder_->end(slot);
}

void Wire::unmute(uint32_t slot) {
  if (socket(slot) < 0) return;
  use(slot, [slot, filter = peer_filter_](int socket) {
    drain(socket);
    keep_from_strangers(slot, socket, filter);
  });
}

void Wire::use(uint32_t slot, std::function<void(int socket)> call) {
  if (!shared_.contains(slot)) return call(socket(slot));
  calls_.make([socket = sockets_[slot], call = std::move(call)] { call(socket->get()); });
}

// ---- peer filter

// Leaves muted sockets alone, whether muted by this agent or by a former one.
void Wire::hear_peers_of(const std::vector<control::Link>& links) {
  std::vector<sock_filter> filter = net::peer_filter(guarded_links(links));
  if (equal(filter, peer_filter_)) return;
  peer_filter_ = std::move(filter);
  for (uint32_t slot = 0; slot < size(); ++slot) {
    use(slot, [slot, filter = peer_filter_](int socket) {
      if (!is_muted(socket)) keep_from_strangers(slot, socket, filter);
    });
  }
}

std::function<bool(int socket)> Wire::guard() const {
  return [filter = peer_filter_](int socket) {
    return set_filter(socket, filter) && set_option(socket, SOL_SOCKET, SO_LOCK_FILTER, 1);
  };
}

// ---- forwarding to processes that must not have the socket

Result<void> Wire::engage_forwarder() {
  if (forwarder_ != nullptr) return {};
  try {
    forwarder_ = std::make_unique<Forwarder>(closer_);
  } catch (const std::system_error& error) {
    return fail(error.code().value());
  }
  return {};
}

Result<void> Wire::forward(uint32_t slot, uid_t user) {
  if (const auto engaged = engage_forwarder(); !engaged) return engaged;
  auto receiver = forwarder_->begin(slot, user, socket(slot));
  if (!receiver) return fail(receiver.error().code);
  receivers_[slot] = std::move(*receiver);
  return {};
}

UniqueFd Wire::take_receiver(uint32_t slot) {
  const auto node = receivers_.extract(slot);
  return node ? std::move(node.mapped()) : UniqueFd();
}

Result<void> Wire::go_on_forwarding(uint32_t slot, uid_t user, UniqueFd forwarder_end) {
  if (const auto engaged = engage_forwarder(); !engaged) return engaged;
  return forwarder_->go_on(slot, user, socket(slot), std::move(forwarder_end));
}

}  // namespace verbena::agent

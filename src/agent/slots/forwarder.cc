// SPDX-License-Identifier: Apache-2.0
#include "agent/slots/forwarder.h"

#include <atomic>
#include <climits>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

#include "adapter/net/udp/udp_port.h"
#include "base/detached_thread.h"
#include "base/log.h"
#include "control/model/message_socket.h"
#include "control/protocol/messages.h"

namespace verbena::agent {
namespace {

using protocol::ForwardedDatagram;

// Requested buffer sizes. Without CAP_NET_ADMIN the kernel grants at most net.core.rmem_max and wmem_max.
constexpr int kSocketBytes = 1 << 20;
constexpr int kPairBytes = 256 << 10;
// Maximum that a message takes of the pair's buffer: its bytes and the kernel's overhead.
constexpr int kMaxCharged = 80 << 10;
constexpr uint64_t kStop = UINT64_MAX;

// Descriptors that a delivery counts as its user's: the sending end, and the copy of end().
constexpr size_t kDescriptors = 2;

// Marks events of a delivery's pair; events of its UDP socket lack this bit.
constexpr uint64_t kIsPair = uint64_t{1} << 63;
uint64_t key_of(uint32_t generation, uint32_t slot) {
  return uint64_t{generation} << 32 | slot;
}

ForwardedDatagram head_of(const net::DatagramOrigin& origin) {
  ForwardedDatagram head{};
  head.magic = ForwardedDatagram::kMagic;
  head.interface_index = origin.path.interface_index;
  std::ranges::copy(origin.path.source.bytes, head.source);
  std::ranges::copy(origin.path.destination.bytes, head.destination);
  head.flow_label = origin.path.flow_label;
  head.segment_bytes = origin.segment_bytes;
  head.source_port = origin.source_port;
  head.traffic_class = origin.path.traffic_class;
  head.hop_limit = origin.path.hop_limit;
  head.reassembled = origin.reassembled ? 1 : 0;
  return head;
}

// A receiver that has read nothing for this long gets no more datagrams until it reads.
constexpr Duration kUnread = std::chrono::milliseconds(60);

// Returns the bytes that the receiver has not read yet, as the kernel charges them.
int waiting_in(int end) {
  int waiting = 0;
  return ::ioctl(end, SIOCOUTQ, &waiting) == 0 ? waiting : INT_MAX;
}

// Returns the number of messages that certainly fit. The kernel takes a message as long as any room is left.
uint32_t room_in(int waiting, int size) {
  if (waiting >= size) return 0;
  return 1 + static_cast<uint32_t>((size - waiting - 1) / kMaxCharged);
}

int send_buffer_of(int end) {
  int size = 0;
  socklen_t length = sizeof size;
  return ::getsockopt(end, SOL_SOCKET, SO_SNDBUF, &size, &length) == 0 ? size : 0;
}

}  // namespace

struct Forwarder::Delivery {
  Delivery(uint32_t of, uid_t whose, uint64_t its_key, int from, UniqueFd to, QuotaShare counted)
      : slot(of),
        user(whose),
        key(its_key),
        socket(from),
        end(std::move(to)),
        room(send_buffer_of(end.get())),
        share(std::move(counted)) {}

  const uint32_t slot;
  const uid_t user;
  const uint64_t key;
  const int socket;
  UniqueFd end;      // the agent's thread takes it once `ended` and not `in_turn`
  const int room;    // send buffer size of the pair
  QuotaShare share;  // of ForeignCloser, until the end is closed; for the agent's thread
  std::mutex reading{};
  bool ended = false;  // under `reading`; the thread then uses neither `socket` nor, after its turn, `end`
  std::atomic<bool> in_turn = false;  // set under `reading`
  // Used by the thread alone
  bool is_queued = false;
  bool is_unwatched = false;  // while it is queued
  net::ReadAhead ahead{};
  int handed = 0;       // unread bytes in the pair after the latest datagrams were put there
  TimePoint read_at{};  // when the receiver was last seen to read
  bool is_held = false;

  bool has_read(int waiting) const { return waiting == 0 || waiting < handed; }
};

Forwarder::Forwarder(ForeignCloser* closer, Clocks clocks)
    : closer_(closer),
      clocks_(std::move(clocks)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      turns_(clocks_.now, clocks_.processor, kSlow) {
  if (!epoll_ || !stop_) throw std::system_error(errno, std::generic_category(), "courier");
  epoll_event event{EPOLLIN, {.u64 = kStop}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_.get(), &event);
}

Forwarder::~Forwarder() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t told = ::write(stop_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

Result<UniqueFd> Forwarder::begin(uint32_t slot, uid_t user, int socket) {
  if (closer_ != nullptr && !closer_->allows(user, kDescriptors)) return fail(EMFILE);
  auto ends = control::make_socket_pair();
  if (!ends) return fail(ends.error().code);
  // The receiver can send nothing back, so no descriptor either: closing one may take as long as its maker
  // likes.
  if (::shutdown(ends->ours.get(), SHUT_RD) != 0) return fail(errno);
  ::setsockopt(ends->ours.get(), SOL_SOCKET, SO_SNDBUF, &kPairBytes, sizeof kPairBytes);
  if (const auto begun = go_on(slot, user, socket, std::move(ends->ours)); !begun)
    return fail(begun.error().code);
  return std::move(ends->theirs);
}

Result<void> Forwarder::go_on(uint32_t slot, uid_t user, int socket, UniqueFd end) {
  close_ended();
  if (const auto started = start_thread(); !started) return started;
  if (const auto set = net::set_receive_options(socket); !set) return set;
  net::set_ip_details(socket, true);
  ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &kSocketBytes, sizeof kSocketBytes);
  const auto delivery =
      std::make_shared<Delivery>(slot, user, key_of(++generation_ & INT32_MAX, slot), socket, std::move(end),
                                 closer_ != nullptr ? closer_->count(user, kDescriptors) : QuotaShare());
  {
    const std::lock_guard lock(mutex_);
    deliveries_[slot] = delivery;
  }
  auto watched = watch(*delivery);
  if (!watched) this->end(slot);
  return watched;
}

Result<void> Forwarder::start_thread() {
  if (thread_.joinable()) return {};
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    return fail(error.code().value());
  }
  ::pthread_setname_np(thread_.native_handle(), "verbena-courier");
  return {};
}

Result<void> Forwarder::watch(Delivery& delivery) {
  epoll_event comes{EPOLLIN, {.u64 = delivery.key}};
  epoll_event ends{
      0, {.u64 = delivery.key | kIsPair}};  // EPOLLHUP is always reported: the receiver has closed its end
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, delivery.end.get(), &ends) != 0 ||
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, delivery.socket, &comes) != 0) {
    return fail(errno);
  }
  return {};
}

int Forwarder::end_of(uint32_t slot) const {
  const std::lock_guard lock(mutex_);
  const auto found = deliveries_.find(slot);
  return found == deliveries_.end() ? -1 : found->second->end.get();
}

// After the removal the thread does not find the delivery any more. Waits for a read in progress, which is
// short whatever the receiver does, but not for a send.
void Forwarder::end(uint32_t slot) {
  std::shared_ptr<Delivery> ended;
  {
    const std::lock_guard lock(mutex_);
    const auto found = deliveries_.find(slot);
    if (found == deliveries_.end()) return;
    ended = std::move(found->second);
    deliveries_.erase(found);
    forget(*ended);
  }
  {
    const std::lock_guard reading(ended->reading);
    ended->ended = true;
  }
  if (ended->in_turn.load(std::memory_order_acquire)) {
    UniqueFd copy(::fcntl(ended->end.get(), F_DUPFD_CLOEXEC, 0));
    if (copy) hang_up(*ended, std::move(copy));
  }
  ended_.push_back(std::move(ended));
  close_ended();
}

void Forwarder::hang_up(const Delivery& delivery, UniqueFd end) {
  if (closer_ != nullptr) return closer_->shut_down_and_close(delivery.user, std::move(end), delivery.share);
  ::shutdown(end.get(), SHUT_RDWR);
}

// Closes the ends that the thread does not use any more. At most one stays: the thread is in one turn.
void Forwarder::close_ended() {
  std::erase_if(ended_, [this](const auto& delivery) {
    if (delivery->in_turn.load(std::memory_order_acquire)) return false;
    hang_up(*delivery, std::move(delivery->end));
    delivery->share.reset();  // here, because the thread may have the delivery longer
    return true;
  });
}

// Removes the watches explicitly. Closing would not do: other processes have descriptors of the same sockets,
// and epoll watches a socket until all are closed.
void Forwarder::forget(const Delivery& delivery) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, delivery.socket, nullptr);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, delivery.end.get(), nullptr);
}

// Skipped if the agent has taken the slot back meanwhile and leased it again.
void Forwarder::forget_if_current(const Delivery& delivery) {
  const std::lock_guard lock(mutex_);
  const auto found = deliveries_.find(delivery.slot);
  if (found != deliveries_.end() && found->second.get() == &delivery) forget(delivery);
}

// ---- the thread

void Forwarder::run() {
  for (;;) {
    std::array<epoll_event, 256> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms());
    if (count < 0 && errno != EINTR) return;
    const bool is_alone = count == 1 && turns_.empty();
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == kStop) return;
      survive_lack_of_memory([&] { answer(event.data.u64, event.events, is_alone); });
    }
    survive_lack_of_memory([this] { turns_.run(EventLoop::kPerRound); });
  }
}

int Forwarder::timeout_ms() const {
  if (!turns_.empty()) return 0;
  const TimePoint end = turns_.pause_end();
  if (end == kNever) return -1;
  const Duration left = end - clocks_.now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, INT_MAX));
}

std::shared_ptr<Forwarder::Delivery> Forwarder::find(uint64_t key) {
  const std::lock_guard lock(mutex_);
  const auto found = deliveries_.find(static_cast<uint32_t>(key));
  return found != deliveries_.end() && found->second->key == key ? found->second : nullptr;
}

// A UDP socket is reported again and again until its turn. So it is not watched while its user pauses.
// `is_alone`: there is no other work, so the turn comes at once.
void Forwarder::answer(uint64_t key, uint32_t events, bool is_alone) {
  const std::shared_ptr<Delivery> delivery = find(key & ~kIsPair);
  if (delivery == nullptr) return;
  if ((key & kIsPair) != 0) return answer_pair(*delivery, events);
  const auto at_once = [&] { take_turn(*delivery); };
  if (is_alone && turns_.try_for(delivery->user, at_once)) return;
  if (!delivery->is_queued) {
    turns_.add(delivery->user, [this, delivery] {
      delivery->is_queued = false;
      if (std::exchange(delivery->is_unwatched, false)) wait_for_room(*delivery, false);
      take_turn(*delivery);
      return false;
    });
    delivery->is_queued = true;
  }
  if (!turns_.is_paused(delivery->user)) return;
  set_events(*delivery, 0, 0);
  delivery->is_unwatched = true;
}

void Forwarder::answer_pair(Delivery& delivery, uint32_t events) {
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) return forget_if_current(delivery);
  const std::lock_guard reading(delivery.reading);
  if (delivery.ended) return;
  if (delivery.is_held && !delivery.has_read(waiting_in(delivery.end.get()))) return;
  delivery.is_held = false;
  delivery.read_at = clocks_.now();
  wait_for_room(delivery, false);
}

// Forwards few datagrams, so that other deliveries get their turn soon.
void Forwarder::take_turn(Delivery& delivery) {
  const uint32_t got = read(delivery);
  if (got == 0) return;
  survive_lack_of_memory([&] { forward(delivery, got); });
  delivery.handed = waiting_in(delivery.end.get());
  delivery.in_turn.store(false, std::memory_order_release);
}

// Returns the number of datagrams that are in `batch_`. If there are any, `end` stays open until the turn is
// over.
uint32_t Forwarder::read(Delivery& delivery) {
  const std::lock_guard reading(delivery.reading);
  if (delivery.ended) return 0;
  const int waiting = waiting_in(delivery.end.get());
  const TimePoint now = clocks_.now();
  if (delivery.has_read(waiting)) {
    delivery.read_at = now;
  } else if (now - delivery.read_at >= kUnread) {
    hold_back(delivery);
    return 0;
  }
  const uint32_t room = room_in(waiting, delivery.room);
  if (room == 0) {
    wait_for_room(delivery, true);
    return 0;
  }
  const uint32_t asked = turns_.is_suspect(delivery.user) ? 1 : std::min(delivery.ahead.wanted(), room);
  uint32_t got = 0;
  // A datagram in thousands of fragments, which any host may send, takes long to read.
  turns_.without_blame([&] { got = batch_.read(delivery.socket, asked); });
  size_t largest = 0;
  for (uint32_t i = 0; i < got; ++i) largest = std::max(largest, batch_.data(i).size());
  delivery.ahead.adapt(asked, got, static_cast<uint32_t>(largest));
  delivery.in_turn.store(got > 0, std::memory_order_relaxed);
  return got;
}

void Forwarder::forward(Delivery& delivery, uint32_t count) {
  std::array<ForwardedDatagram, net::DatagramBatch::kMax> heads;
  std::array<std::array<iovec, 2>, net::DatagramBatch::kMax> pieces;
  std::array<mmsghdr, net::DatagramBatch::kMax> messages{};
  uint32_t handed = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const net::DatagramOrigin origin = net::origin_of(batch_.message(i));
    if (!origin.has_destination) continue;  // the ICRC cannot be checked without the destination
    heads[handed] = head_of(origin);
    const ConstBytes data = batch_.data(i);
    pieces[handed] = {iovec{&heads[handed], sizeof heads[handed]},
                      iovec{const_cast<std::byte*>(data.data()), data.size()}};
    messages[handed].msg_hdr.msg_iov = pieces[handed].data();
    messages[handed].msg_hdr.msg_iovlen = pieces[handed].size();
    ++handed;
  }
  if (handed == 0) return;
  const int sent = ::sendmmsg(delivery.end.get(), messages.data(), handed, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent != static_cast<int>(handed)) {
    log_debug("slot {}: datagrams lost on the way to their process: errno {}", delivery.slot, errno);
  }
}

// Waits for room in the pair if `full`, else for datagrams.
void Forwarder::wait_for_room(Delivery& delivery, bool full) {
  set_events(delivery, full ? 0u : EPOLLIN, full ? EPOLLOUT : 0u);
}

// Waits until the receiver reads. The pair has room all the time, so the next edge means that the receiver
// has read. One edge comes at once, in case it has read meanwhile.
void Forwarder::hold_back(Delivery& delivery) {
  delivery.is_held = true;
  set_events(delivery, 0, EPOLLOUT | EPOLLET);
}

void Forwarder::set_events(const Delivery& delivery, uint32_t of_socket, uint32_t of_pair) {
  epoll_event comes{of_socket, {.u64 = delivery.key}};
  epoll_event room{of_pair, {.u64 = delivery.key | kIsPair}};
  const std::lock_guard lock(mutex_);
  const auto found = deliveries_.find(delivery.slot);
  if (found == deliveries_.end() || found->second.get() != &delivery) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, delivery.socket, &comes);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, delivery.end.get(), &room);
}

}  // namespace verbena::agent

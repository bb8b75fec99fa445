// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/sender.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <new>
#include <optional>

#include "adapter/net/udp/system_calls.h"
#include "base/log.h"
#include "base/processor_clock.h"
#include "wire/roce/prefix.h"

namespace verbena::net {

using transport::OutgoingPacket;
using transport::PacketTrain;
using transport::SendStatus;
using transport::TrainSent;

namespace {

// Interval between two searches for silent neighbours while sockets stay full for another reason, as on a
// slow link. A search takes 20 us for each socket and sends a datagram, so it must be rare.
constexpr Duration kLookInterval = std::chrono::milliseconds(10);
// The same after a search that failed. If no port is free, a search walks over all UDP sockets of the host.
constexpr Duration kLookIntervalAfterFailure = std::chrono::milliseconds(100);
// After this processor time no further socket is replaced, for ten times as long as it took. Where other
// users have taken nearly all ports, the kernel looks for a free one for up to 24 ms; otherwise a replacement
// takes 0.1 ms.
constexpr Duration kLongestReplacement = std::chrono::milliseconds(1);
constexpr int kReplacementPause = 10;

// How long a pool is used. A slot goes to another user after thirty seconds, who must not share blocks with
// the former one (BlockPool).
constexpr Duration kPoolLife = std::chrono::seconds(10);
// The minimum, where all of its blocks were spliced for other receivers. A new pool takes about a
// millisecond, for the first use of its pages.
constexpr Duration kMinPoolLife = std::chrono::milliseconds(100);

void say_once_that_packets_are_cut(const roce::Path& path, uint32_t packet_bytes) {
  static std::atomic<bool> said{false};
  if (said.exchange(true, std::memory_order_relaxed)) return;
  log_warning(
      "packets of {} bytes to {} are longer than the path takes: they leave in IP fragments, which is slow, "
      "and adapters drop them. A path_mtu of at most the port's active_mtu avoids it",
      packet_bytes, roce::text_of(path.destination));
}

}  // namespace

Sender::Sender(const UdpPortOptions& options, PortCounters& counters, std::unique_ptr<SendSocket> management)
    : options_(options),
      counters_(counters),
      sockets_(options.send_buffer_bytes),
      management_(std::move(management)),
      arena_(std::make_unique_for_overwrite<std::byte[]>(kRuns * SendRun::kBlockBytes)) {
  for (uint32_t i = kRuns; i-- > 0;) release(i);
}

SendStatus Sender::send(const OutgoingPacket& packet) {
  const uint32_t packet_bytes = roce::header_bytes(packet.headers.opcode) + packet.payload_bytes +
                                packet.headers.pad + roce::kIcrcBytes;
  const uint32_t slot = packet.headers.destination.slot();
  const bool more = !packet.headers.info().ends_message && !packet.follows_longer;
  const auto [run, status] = place_for(packet.path, slot, packet_bytes, more);
  if (run == nullptr) {
    if (status == SendStatus::kSent) ++counters_.send_errors;
    return status;
  }
  if (!run->append(packet, packet_bytes)) {
    if (run->segments() == 0) drop_newest();
    return SendStatus::kFault;
  }
  if (run->is_full()) flush();
  return SendStatus::kSent;
}

TrainSent Sender::send_train(const PacketTrain& train) {
  const uint32_t packet_bytes = roce::kBthBytes + train.packet_payload + roce::kIcrcBytes;
  const uint32_t slot = train.headers.destination.slot();
  for (uint32_t sent = 0; sent < train.count;) {
    const auto [run, status] = place_for(train.path, slot, packet_bytes, true);
    if (run == nullptr) {
      if (status != SendStatus::kSent) return {sent, status};
      counters_.send_errors += train.count - sent;
      break;
    }
    const PacketTrain part = train.part(sent, run->room(packet_bytes));
    const uint32_t appended = run->append(part, packet_bytes);
    sent += appended;
    if (appended > 0) run->note_train(pin_block(*run, part.part(0, appended)));
    if (appended < part.count) {
      if (run->segments() == 0) drop_newest();
      return {sent, SendStatus::kFault};
    }
    if (run->is_full()) flush();
  }
  return {train.count, SendStatus::kSent};
}

Sender::Place Sender::place_for(const roce::Path& path, uint32_t slot, uint32_t packet_bytes, bool more) {
  if (SendRun* const run = run_for(path, slot, packet_bytes, more)) return {run, SendStatus::kSent};
  SendSocket* const socket = socket_for(path, slot);
  if (socket == nullptr || packet_bytes > SendRun::kMaxBytes) return {nullptr, SendStatus::kSent};
  return {begin_run(path, slot, *socket, packet_bytes, more), SendStatus::kBusy};
}

// The run that the packet can join; null: it needs a new one.
SendRun* Sender::run_for(const roce::Path& path, uint32_t slot, uint32_t packet_bytes, bool more) {
  for (uint32_t i = staged_count_; i-- > 0;) {
    SendRun& run = runs_[staged_[i]];
    // Only the newest run of a path and slot may grow, or packets would overtake each other.
    if (run.is_for(path, slot)) return run.accepts(packet_bytes, more) ? &run : nullptr;
  }
  return nullptr;
}

// The socket for packets of this path; null: they cannot leave.
SendSocket* Sender::socket_for(const roce::Path& path, uint32_t slot) {
  if (path.source.is_ipv4() != path.destination.is_ipv4()) return nullptr;
  if (management_ != nullptr && (slot == 0 || path.destination.is_multicast())) return management_.get();
  return sockets_.get(path, slot);
}

// Begins a new run. Null: none is free, even after flushing.
SendRun* Sender::begin_run(const roce::Path& path, uint32_t slot, SendSocket& socket, uint32_t packet_bytes,
                           bool more) {
  if (free_count_ == 0) flush();
  if (free_count_ == 0) return nullptr;
  const uint8_t index = free_[--free_count_];
  staged_[staged_count_++] = index;
  SendRun& run = runs_[index];
  run.begin(block_for(index, {path.destination, slot}, more), path, slot, socket, options_.port, packet_bytes,
            max_segments(path));
  if (!flow_labels_) run.drop_flow_label();
  if (!too_long_.empty() && is_too_long(path, packet_bytes)) [[unlikely]]
    fragment(run);
  return &run;
}

// Returns memory for a run. `more`: the packet does not end its message, so others are likely to follow.
std::byte* Sender::block_for(uint8_t run, const BlockPool::Receiver& receiver, bool more) {
  if (more) {
    BlockPool::Block block = take_block(receiver);
    pins_[run] = std::move(block.pin);
    if (pins_[run]) return block.begin;
  }
  return arena_.get() + run * SendRun::kBlockBytes;
}

// Returns a block of a pool, or none: then the run is copied.
BlockPool::Block Sender::take_block(const BlockPool::Receiver& receiver) {
  const TimePoint now = MonotonicClock::now();
  if ((pool_ == nullptr || now - pool_begun_ >= kPoolLife) && !renew_pool(now)) return {};
  BlockPool::Block block = pool_->take(receiver);
  if (block.pin || now - pool_begun_ < kMinPoolLife) return block;
  if (!pool_->has_foreign() || !renew_pool(now)) return {};  // all blocks are in use
  return pool_->take(receiver);
}

// Makes a pool whose blocks were spliced for nobody. A peer that acknowledges nothing keeps the former one
// alive, so there are two at most. False: there is no new one.
bool Sender::renew_pool(TimePoint now) {
  if (!former_pool_.expired()) return false;
  former_pool_ = pool_;
  pool_ = BlockPool::make();
  pool_begun_ = now;
  return pool_ != nullptr;
}

// Asks the train's sender to hold the run's block unchanged. True: it does.
bool Sender::pin_block(const SendRun& run, const PacketTrain& train) {
  const transport::BlockPin& pin = pins_[static_cast<size_t>(&run - runs_.data())];
  return train.pins != nullptr && pin && train.pins->hold(train.pinned_until(), pin);
}

bool Sender::flush() {
  return send_staged() || (replace_sockets() && send_staged());
}

bool Sender::send_staged() {
  blocked_fd_ = -1;
  uint32_t kept = 0;
  for (uint32_t first = 0; first < staged_count_;) {
    const int fd = runs_[staged_[first]].fd();
    uint32_t end = first + 1;
    while (end < staged_count_ && runs_[staged_[end]].fd() == fd) ++end;
    uint32_t next = is_blocked(fd, kept) ? first : transmit(first, end);
    if (next < end) blocked_fd_ = runs_[staged_[next]].fd();
    while (next < end) staged_[kept++] = staged_[next++];
    first = end;
  }
  staged_count_ = kept;
  return kept == 0;
}

// Whether a run kept earlier in this flush waits for the same socket.
bool Sender::is_blocked(int fd, uint32_t kept) const {
  return std::any_of(staged_.begin(), staged_.begin() + kept,
                     [&](uint8_t index) { return runs_[index].fd() == fd; });
}

// Replaces the sockets of staged runs that silent neighbours have filled. True: there was one, so that runs
// can leave.
bool Sender::replace_sockets() {
  const TimePoint now = MonotonicClock::now();
  if (now < next_look_) return false;
  const TimePoint begun = ProcessorClock::now();
  bool any = false;
  for (uint32_t i = 0; i < staged_count_; ++i) {
    SendRun& run = runs_[staged_[i]];
    if (now < next_look_ || ProcessorClock::now() - begun > kLongestReplacement) break;
    if (&run.socket() != management_.get() && !is_blocked(run.fd(), i)) any |= replace_socket(run, now);
  }
  for (uint32_t i = 0; i < staged_count_; ++i) {
    if (SendRun& run = runs_[staged_[i]]; run.has_old_port()) run.follow_port();
  }
  if (!any) next_look_ = std::max(next_look_, now + kLookInterval);
  const Duration took = ProcessorClock::now() - begun;
  if (took > kLongestReplacement) next_look_ = MonotonicClock::now() + kReplacementPause * took;
  return any;
}

// Keeps a socket whose neighbour cannot be asked about. It may be full for another reason, as on a slow link:
// a new socket would soon be full, too, and so on without end. Where no port is free, none can replace it.
bool Sender::replace_socket(SendRun& run, TimePoint now) try {
  SendSocket& socket = run.socket();
  if (socket.latest.destination.is_zero()) return false;
  const std::optional<bool> waits = waits_for_neighbour(socket.latest);
  if (!waits) next_look_ = now + kLookIntervalAfterFailure;
  if (!waits.value_or(false)) return false;
  return run.fragments() != nullptr ? run.fragments()->renew(options_.send_buffer_bytes)
                                    : sockets_.renew(socket);
} catch (const std::bad_alloc&) {
  return false;
}

// Sends staged runs of one socket; returns the first that must wait.
uint32_t Sender::transmit(uint32_t first, uint32_t end) {
  while (first < end) {
    if (SendRun& run = runs_[staged_[first]]; run.fragments() != nullptr) {
      if (!send_fragmented(run)) return first;
      release(staged_[first++]);
      continue;
    }
    const int sent = submit(first, end);
    if (sent > 0) {
      const SendRun& last = runs_[staged_[first + static_cast<uint32_t>(sent) - 1]];
      last.socket().latest = last.path();
      for (const uint32_t past = first + static_cast<uint32_t>(sent); first < past; ++first) {
        counters_.sent_packets += runs_[staged_[first]].segments();
        counters_.sent_bytes += runs_[staged_[first]].bytes();
        release(staged_[first]);
      }
      continue;
    }
    const int error = errno;
    if (error == EINTR) continue;
    if (error == EAGAIN || error == EWOULDBLOCK) return first;
    if (recover(runs_[staged_[first]], error)) continue;
    release(staged_[first++]);
  }
  return end;
}

// Passes runs to the kernel, a spliced one alone. Returns how many it took, or -1 with errno.
int Sender::submit(uint32_t first, uint32_t end) {
  const auto alone = [this](uint8_t run) {
    return runs_[run].is_spliced() || runs_[run].fragments() != nullptr;
  };
  if (alone(staged_[first])) end = first + 1;
  end = static_cast<uint32_t>(std::find_if(staged_.begin() + first + 1, staged_.begin() + end, alone) -
                              staged_.begin());
  if (end - first == 1) {
    SendRun& run = runs_[staged_[first]];
    if (run.is_spliced() && pool_ != nullptr) pool_->mark(run.block(), {run.path().destination, run.slot()});
    return run.transmit(pipe_) < 0 ? -1 : 1;
  }
  for (uint32_t i = first; i < end; ++i) runs_[staged_[i]].describe(messages_[i - first].msg_hdr);
  return system_calls::sendmmsg(runs_[staged_[first]].fd(), messages_.data(), end - first, MSG_DONTWAIT);
}

// Handles a run that the kernel refused. True: try it once more. False: it was sent otherwise, or is lost.
bool Sender::recover(SendRun& run, int error) {
  if (error == EINVAL && run.has_flow_label()) {
    flow_labels_ = false;  // perhaps somebody in this network namespace holds exclusive labels
    run.drop_flow_label();
    return true;
  }
  // EIO: no checksum offload on that device, or IPsec; EINVAL: also when a segment exceeds the path's MTU;
  // the others: a kernel before 4.18.
  static constexpr int kNoSegmentation[] = {EIO, EINVAL, ENOPROTOOPT, EOPNOTSUPP};
  if (error == EMSGSIZE) {
    remember_too_long(run.path(), run.segment_bytes());
    if (fragment(run)) return true;
  } else if (run.segments() > 1 && std::ranges::find(kNoSegmentation, error) != std::end(kNoSegmentation)) {
    return send_singly(run);
  }
  log_debug("{} packets lost: send failed with errno {}", run.segments(), error);
  counters_.send_errors += run.segments();
  return false;
}

// Sends each packet of a run as a datagram of its own. True: they are too long for their path, and the
// remaining ones leave in fragments. Packets that find the socket full are lost; this happens once per
// destination.
bool Sender::send_singly(SendRun& run) {
  bool first_sent = false;
  for (uint32_t next = 0; next < run.segments();) {
    const int sent = submit_singly(run, next);
    if (sent > 0) {
      first_sent |= next == 0;
      run.socket().latest = run.path();
      next += static_cast<uint32_t>(sent);
      continue;
    }
    if (errno == EMSGSIZE) {
      remember_too_long(run.path(), run.segment_bytes());
      if (fragment(run)) {
        run.note_left(next);
        return true;
      }
    }
    ++counters_.send_errors;
    ++next;
  }
  if (first_sent) without_segmentation_[without_segmentation_count_++ % kRemembered] = run.path().destination;
  return false;
}

// ---- packets that are longer than their path's MTU

bool Sender::is_too_long(const roce::Path& path, uint32_t packet_bytes) const {
  const auto known = std::ranges::find(too_long_, path.destination, &TooLong::destination);
  return known != too_long_.end() && !known->mtu.takes(packet_bytes);
}

// Opens a new PathMtu, because the present one may not know how the path has changed.
void Sender::remember_too_long(const roce::Path& path, uint32_t packet_bytes) try {
  say_once_that_packets_are_cut(path, packet_bytes);
  std::erase_if(too_long_, [&](const TooLong& one) { return one.destination == path.destination; });
  if (too_long_.size() == kRemembered) too_long_.erase(too_long_.begin());
  too_long_.push_back({path.destination, PathMtu(path)});
} catch (const std::bad_alloc&) {
  log_debug("no memory for the MTU of a path");
}

// The socket for fragments of this path; null: there is none.
FragmentSocket* Sender::fragment_socket(const roce::Path& path) try {
  for (const auto& socket : fragment_sockets_) {
    if (socket->is_for(path)) return socket.get();
  }
  auto opened = FragmentSocket::open(path, options_.send_buffer_bytes);
  if (!opened) {
    log_debug("no socket for packets in fragments: errno {}", opened.error().code);
    return nullptr;
  }
  fragment_sockets_.push_back(std::move(*opened));
  return fragment_sockets_.back().get();
} catch (const std::bad_alloc&) {
  return nullptr;
}

// Makes the run leave in fragments. False: it cannot.
bool Sender::fragment(SendRun& run) {
  FragmentSocket* const socket = fragment_socket(run.path());
  if (socket != nullptr) run.set_fragments(*socket);
  return socket != nullptr;
}

// Sends the last packet of a run, which is shorter than the others, unfragmented behind them. It must not be
// fragmented then: Verbena's receivers rely on that. If the socket is full the packet is lost; this happens
// once per destination. False: it is too long, too.
bool Sender::send_shorter_last(SendRun& run) {
  iovec data;
  run.describe_single(run.segments() - 1, messages_[0].msg_hdr, data);
  const ssize_t sent =
      system_calls::sendmsg(run.whole_socket().fd.get(), &messages_[0].msg_hdr, MSG_DONTWAIT);
  if (sent < 0 && errno == EMSGSIZE) return false;
  if (sent < 0) {
    ++counters_.send_errors;
  } else {
    run.whole_socket().latest = run.path();
    ++counters_.sent_packets;
    counters_.sent_bytes += data.iov_len;
  }
  run.note_left(1);
  return true;
}

// Sends a run in fragments. False: the socket is full, and the rest waits.
bool Sender::send_fragmented(SendRun& run) {
  FragmentSocket& socket = *run.fragments();
  std::array<iovec, kRuns> data;
  const uint32_t equal = run.segments() - (run.has_shorter_last() ? 1 : 0);
  while (run.left() < run.segments()) {
    if (run.left() == equal && send_shorter_last(run)) continue;
    const uint32_t count = run.left() < equal ? std::min(equal - run.left(), kRuns) : 1;
    std::optional<uint16_t> identification;
    if (run.is_ipv4()) identification = socket.next_identification();
    for (uint32_t i = 0; i < count; ++i) {
      run.describe_fragmented(run.left() + i, identification, messages_[i].msg_hdr, data[i]);
      if (identification) ++*identification;
    }
    const int sent = system_calls::sendmmsg(run.fd(), messages_.data(), count, MSG_DONTWAIT);
    if (sent > 0) {
      socket.socket().latest = run.path();
      socket.note_sent(static_cast<uint32_t>(sent));
      run.note_left(static_cast<uint32_t>(sent));
      counters_.sent_packets += static_cast<uint32_t>(sent);
      for (int i = 0; i < sent; ++i) counters_.sent_bytes += data[static_cast<uint32_t>(i)].iov_len;
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (errno == EINVAL && run.has_flow_label()) {
      flow_labels_ = false;
      run.drop_flow_label();
      continue;
    }
    socket.lose_count();
    ++counters_.send_errors;
    run.note_left(1);
  }
  return true;
}

// Passes packets of a run to the kernel, from `first` on. Returns how many it took, or -1 with errno.
int Sender::submit_singly(SendRun& run, uint32_t first) {
  std::array<iovec, kRuns> data;
  const uint32_t count = std::min(run.segments() - first, kRuns);
  for (uint32_t i = 0; i < count; ++i) run.describe_single(first + i, messages_[i].msg_hdr, data[i]);
  const int sent = system_calls::sendmmsg(run.fd(), messages_.data(), count, MSG_DONTWAIT);
  for (int i = 0; i < sent; ++i) {
    ++counters_.sent_packets;
    counters_.sent_bytes += data[static_cast<uint32_t>(i)].iov_len;
  }
  return sent;
}

uint32_t Sender::max_segments(const roce::Path& path) const {
  const auto end = without_segmentation_.begin() + std::min(without_segmentation_count_, kRemembered);
  return std::find(without_segmentation_.begin(), end, path.destination) == end ? SendRun::kMaxSegments : 1;
}

}  // namespace verbena::net

// SPDX-License-Identifier: Apache-2.0
#include "adapter/engine/ethernet_link.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include <linux/if_packet.h>
#include <pthread.h>

#include "adapter/memory/guarded.h"
#include "base/log.h"
#include "wire/ethernet/offloads.h"

namespace verbena::engine {
namespace {

using ethernet::FlowKey;
using ethernet::RuleKind;
using transport::FrameStatus;

// All headers that steering looks at: two VLAN tags, the longest IPv4 header, the ports.
constexpr size_t kHeadersBytes = 128;

struct Registry {
  std::mutex mutex;
  std::map<std::pair<const Shard*, uint32_t>, std::weak_ptr<EthernetLink>> links;
};
// Never destroyed: threads outlive static objects. A child after fork() gets one of its own, as another
// thread of its parent's may have the lock, and the links are the parent's.
std::atomic<Registry*> current_registry{nullptr};

[[maybe_unused]] const int watched =
    ::pthread_atfork(nullptr, nullptr, [] { current_registry.store(nullptr, std::memory_order_release); });

Registry& registry() {
  Registry* registered = current_registry.load(std::memory_order_acquire);
  if (registered != nullptr) return *registered;
  auto fresh = std::make_unique<Registry>();
  if (current_registry.compare_exchange_strong(registered, fresh.get())) return *fresh.release();
  return *registered;
}

// Why a socket did not take a frame (packet(7)).
FrameStatus status_of(int error) {
  switch (error) {
    case 0:
      return FrameStatus::kSent;
    case EFAULT:
      return FrameStatus::kFault;
    case EMSGSIZE:
    case EINVAL:
      return FrameStatus::kBadLength;
    default:
      return FrameStatus::kBusy;
  }
}

bool copy_pieces(std::span<const iovec> pieces, Bytes to) {
  for (const iovec& piece : pieces) {
    const size_t bytes = std::min(piece.iov_len, to.size());
    if (!memory::copy_guarded(to.data(), {static_cast<const std::byte*>(piece.iov_base), bytes}))
      return false;
    to = to.subspan(bytes);
  }
  return true;
}

size_t total_bytes(std::span<const iovec> pieces) {
  size_t sum = 0;
  for (const iovec& piece : pieces) sum += piece.iov_len;
  return sum;
}

bool is_whole(const std::array<uint8_t, 6>& mask) {
  return std::all_of(mask.begin(), mask.end(), [](uint8_t byte) { return byte == 0xff; });
}

}  // namespace

Result<std::shared_ptr<EthernetLink>> EthernetLink::acquire(Shard& shard, uint32_t interface_index) {
  Registry& registered = registry();
  const std::lock_guard guard(registered.mutex);
  auto& place = registered.links[{&shard, interface_index}];
  if (auto link = place.lock()) return link;
  std::shared_ptr<EthernetLink> link(new EthernetLink(shard, interface_index));
  auto port = shard.exclusively([&] { return link->open_port(false); });
  if (!port) {
    if (port.error().code == EPERM) {
      log_error("raw packets need the capability CAP_NET_RAW: run as root, or give the program cap_net_raw");
    }
    return tl::unexpected(port.error());
  }
  link->port_ = std::move(*port);
  link->staging_.reset(new std::byte[kStagingBytes]);
  link->looped_.reset(new std::byte[kFrameBytes]);
  place = link;
  return link;
}

EthernetLink::~EthernetLink() {
  shard_.exclusively([&] {
    for (const auto& port : {port_.get(), sniffer_.get()}) {
      if (port != nullptr) shard_.remove_input(*port);
    }
  });
}

Result<std::unique_ptr<EthernetLink::Port>> EthernetLink::open_port(bool sniffs) {
  auto socket = net::PacketSocket::open(interface_index_);
  if (!socket) return tl::unexpected(socket.error());
  auto port = std::make_unique<Port>(*this, std::move(*socket), sniffs);
  if (const auto added = shard_.add_input(*port); !added) return tl::unexpected(added.error());
  return port;
}

// ---- rules

Result<void> EthernetLink::add(FlowTarget& target) {
  if (target.sniffs) return add_sniffer(target);
  rules_.add(target);
  find_sole_receiver();
  change_membership(target, true);
  update_filter();
  return {};
}

void EthernetLink::remove(FlowTarget& target) {
  if (target.sniffs) {
    remove_sniffer(target);
    return;
  }
  rules_.remove(target);
  find_sole_receiver();
  change_membership(target, false);
  update_filter();
}

void EthernetLink::find_sole_receiver() {
  bool several = false;
  transport::RawQueuePair* found = nullptr;
  rules_.for_each([&](const ethernet::SteeringRule& rule) {
    auto* receiver = static_cast<const FlowTarget&>(rule).receiver;
    several |= receiver == nullptr || (found != nullptr && receiver != found);
    found = receiver;
  });
  sole_receiver_ = several ? nullptr : found;
  port_->pause(false);
}

// The kernel drops what no rule wants; while more rules are there than its program can hold, it drops
// nothing.
void EthernetLink::update_filter() {
  if (rules_.size() >= filter_full_at_) return;
  net::FlowFilter filter =
      rules_.empty() ? net::FlowFilter{net::make_closed_filter(), true} : net::make_flow_filter(rules_);
  filter_full_at_ = filter.exact ? SIZE_MAX : rules_.size();
  if (const auto set = port_->socket().set_filter(filter.program); !set) {
    // For example, memory is lacking. Without a filter more frames come in; the table still sorts them
    // rightly.
    log_warning("no filter for raw packets in the kernel: error {}", set.error().code);
    (void)port_->socket().set_filter(net::make_open_filter());
  }
}

// A device lets in what is for its own address, and what else it is asked to let in.
void EthernetLink::change_membership(const FlowTarget& target, bool join) {
  const FlowKey& mask = target.mask;
  uint16_t what = PACKET_MR_PROMISC;
  std::span<const uint8_t> address;
  if (target.kind == RuleKind::kMulticastDefault) {
    what = PACKET_MR_ALLMULTI;
  } else if (target.kind == RuleKind::kMatch) {
    if (!is_whole(mask.destination) || is_whole(target.value.destination)) return;
    what = target.value.is_multicast() ? PACKET_MR_MULTICAST : PACKET_MR_UNICAST;
    address = target.value.destination;
  }
  net::PacketSocket& socket = port_->socket();
  if (!join) {
    socket.leave(what, address);
  } else if (const auto joined = socket.join(what, address); !joined) {
    log_warning("the device may not let in what a flow rule asks for: error {}", joined.error().code);
  }
}

// ---- sniffers: a copy of all there is, beside the rules

Result<void> EthernetLink::add_sniffer(FlowTarget& target) {
  sniffing_.push_back(&target);
  if (sniffing_.size() > 1) return {};
  auto port = open_port(true);
  if (port) {
    sniffer_ = std::move(*port);
    auto open = sniffer_->socket().set_filter(net::make_open_filter());
    if (open) open = sniffer_->socket().join(PACKET_MR_PROMISC);
    if (open) return {};
    remove_sniffer(target);
    return open;
  }
  sniffing_.clear();
  return tl::unexpected(port.error());
}

void EthernetLink::remove_sniffer(FlowTarget& target) {
  std::erase(sniffing_, &target);
  if (!sniffing_.empty() || sniffer_ == nullptr) return;
  shard_.remove_input(*sniffer_);
  sniffer_.reset();
}

// ---- receiving

uint32_t EthernetLink::Port::receive(uint32_t budget, TimePoint) {
  if (!sniffs_ && link_.sole_receiver_ != nullptr) {
    const uint32_t room = link_.sole_receiver_->room_for_frames();
    if (room == 0) {
      pause(true);
      return 0;
    }
    budget = std::min(budget, room);
  }
  pause(false);
  return socket_->receive(*this, budget);
}

void EthernetLink::Port::on_frame(ConstBytes frame, bool checked) {
  if (!sniffs_) {
    link_.steer(frame, checked);
    return;
  }
  const auto headers = ethernet::parse_headers(frame);
  if (!headers) return;
  const bool good = ethernet::checksums_good(frame, *headers, checked);
  for (const FlowTarget* target : link_.sniffing_)
    link_.deliver(*target, {frame, *headers, target->tag, good});
}

void EthernetLink::steer(ConstBytes frame, bool checked) {
  const auto headers = ethernet::parse_headers(frame);
  if (!headers) return;
  std::optional<bool> good;
  rules_.steer(headers->key, [&](const ethernet::SteeringRule& rule) {
    const auto& target = static_cast<const FlowTarget&>(rule);
    if (!good) good = ethernet::checksums_good(frame, *headers, checked);
    deliver(target, {frame, *headers, target.tag, *good});
  });
}

void EthernetLink::deliver(const FlowTarget& target, const transport::IncomingFrame& frame) {
  if (target.totals != nullptr) {
    target.totals->packets.fetch_add(1, std::memory_order_relaxed);
    target.totals->bytes.fetch_add(frame.bytes.size(), std::memory_order_relaxed);
  }
  if (target.receiver == nullptr) return;
  const ibv_qp_state before = target.receiver->state();
  target.receiver->on_frame(frame);
  if (target.receiver->state() != before) shard_.touched(*target.receiver);
}

// ---- sending

bool EthernetLink::Sender::add(const transport::OutgoingFrame& frame) {
  net::PacketSocket& socket = link_.port_->socket();
  if (!frame.checksums) return socket.add(frame.pieces, frame.bytes);
  if (frame.bytes > kStagingBytes - link_.staged_ && link_.staged_ > 0) return false;
  const size_t before = link_.staged_;
  const auto staged = link_.with_checksums(frame);
  // What cannot be read, or is too long for any device, the kernel refuses in its own words.
  if (!staged) return socket.add(frame.pieces, frame.bytes);
  if (socket.add({&*staged, 1}, frame.bytes)) return true;
  link_.staged_ = before;
  return false;
}

std::optional<ConstBytes> EthernetLink::with_checksums(const transport::OutgoingFrame& frame) {
  if (frame.bytes > kStagingBytes - staged_) return std::nullopt;
  const Bytes copy(staging_.get() + staged_, frame.bytes);
  std::byte* to = copy.data();
  for (const ConstBytes piece : frame.pieces) {
    if (!memory::copy_guarded(to, piece)) return std::nullopt;
    to += piece.size();
  }
  const auto headers = ethernet::parse_headers(copy);
  if (!headers) return std::nullopt;
  ethernet::fill_checksums(copy, *headers);
  staged_ += frame.bytes;
  return ConstBytes(copy);
}

transport::FrameSink::Flushed EthernetLink::Sender::flush() {
  net::PacketSocket& socket = link_.port_->socket();
  const auto [sent, error] = socket.send();
  // What leaves a loopback device comes back to all by itself.
  if (!link_.rules_.empty() && !socket.is_loopback()) {
    for (uint32_t i = 0; i < sent; ++i) link_.loop_back(socket.sent_frame(i), owner_);
  }
  link_.staged_ = 0;
  return {sent, status_of(error)};
}

// To the other QPs of this process; those of others get it from the kernel (net::kRawFrameMark).
void EthernetLink::loop_back(std::span<const iovec> pieces, const transport::RawQueuePair* sender) {
  const size_t bytes = total_bytes(pieces);
  if (bytes > kFrameBytes) return;
  if (!copy_pieces(pieces, {looped_.get(), std::min(bytes, kHeadersBytes)})) return;
  auto headers = ethernet::parse_headers({looped_.get(), std::min(bytes, kHeadersBytes)});
  if (!headers) return;
  const ConstBytes frame(looped_.get(), bytes);
  std::optional<bool> good;
  rules_.steer(headers->key, [&](const ethernet::SteeringRule& rule) {
    const auto& target = static_cast<const FlowTarget&>(rule);
    if (target.receiver == sender && sender != nullptr) return;
    if (!good) {
      if (!copy_pieces(pieces, {looped_.get(), bytes})) return;
      good = ethernet::checksums_good(frame, *headers, false);
    }
    deliver(target, {frame, *headers, target.tag, *good});
  });
}

}  // namespace verbena::engine

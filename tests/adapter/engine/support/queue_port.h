// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

#include "adapter/net/port.h"
#include "adapter/net/udp/send_run.h"
#include "base/unique_fd.h"
#include "wire/roce/packet.h"

namespace verbena::engine {

// One direction of a wire in memory: a FIFO queue of packets as UDP payloads. Its descriptors can be polled
// like those of a socket. Thread-safe.
class PacketQueue {
 public:
  explicit PacketQueue(size_t capacity = 100000)
      : capacity_(capacity),
        readable_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        writable_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  // False if the queue is full.
  bool push(const std::vector<std::byte>& packet) {
    const std::lock_guard guard(mutex_);
    if (packets_.size() >= capacity_) {
      if (!full_) set(writable_, kFullEventfd);
      full_ = true;
      return false;
    }
    if (packets_.empty()) set(readable_, 1);
    packets_.push_back(packet);
    return true;
  }

  bool pop(std::vector<std::byte>& packet) {
    const std::lock_guard guard(mutex_);
    if (packets_.empty()) return false;
    packet = std::move(packets_.front());
    packets_.pop_front();
    if (packets_.empty()) clear(readable_);
    if (full_) clear(writable_);
    full_ = false;
    return true;
  }

  // Removes all packets and returns their headers.
  std::vector<roce::Headers> drain() {
    std::vector<roce::Headers> all;
    for (std::vector<std::byte> packet; pop(packet);) all.push_back(roce::parse(packet)->headers);
    return all;
  }

  void set_capacity(size_t capacity) {
    const std::lock_guard guard(mutex_);
    capacity_ = capacity;
    if (full_ && packets_.size() < capacity_) {
      clear(writable_);
      full_ = false;
    }
  }

  size_t size() const {
    const std::lock_guard guard(mutex_);
    return packets_.size();
  }
  int readable_fd() const { return readable_.get(); }
  int writable_fd() const { return writable_.get(); }

 private:
  static constexpr uint64_t kFullEventfd =
      0xfffffffffffffffe;  // an eventfd with this value cannot be written: no EPOLLOUT

  static void set(const UniqueFd& fd, uint64_t value) {
    if (::write(fd.get(), &value, sizeof value) != sizeof value) abort();
  }
  static void clear(const UniqueFd& fd) {
    uint64_t ignored;
    if (::read(fd.get(), &ignored, sizeof ignored) != sizeof ignored) abort();
  }

  mutable std::mutex mutex_;
  size_t capacity_;
  bool full_ = false;
  std::deque<std::vector<std::byte>> packets_;
  UniqueFd readable_;
  UniqueFd writable_;
};

// Encodes a packet as a UDP payload. The ICRC is zero; nobody checks it here.
inline std::vector<std::byte> datagram(const roce::Headers& headers,
                                       std::span<const ConstBytes> payload = {}) {
  std::vector<std::byte> bytes(roce::kMaxHeaderBytes);
  bytes.resize(roce::encode(headers, bytes));
  for (const ConstBytes piece : payload) bytes.insert(bytes.end(), piece.begin(), piece.end());
  bytes.resize(bytes.size() + headers.pad + roce::kIcrcBytes);
  return bytes;
}

// The traits of sockets, but without a descriptor: the port has to be polled.
inline constexpr transport::Traits kMustBeAsked = [] {
  transport::Traits traits = net::kUdpTraits;
  traits.progress = transport::Traits::Progress::kAsked;
  return traits;
}();

// Returns a list with a single port.
inline net::PortList only(std::unique_ptr<net::Port> port) {
  net::PortList ports;
  ports.push_back(std::move(port));
  return ports;
}

// A net::Port over two packet queues.
class QueuePort : public net::Port {
 public:
  // Maximum number of staged packets.
  static constexpr size_t kMaxStaged = 4;

  QueuePort(PacketQueue& out, PacketQueue& in, const transport::Traits& traits = net::kUdpTraits)
      : out_(out), in_(in), traits_(traits) {}

  bool leads_to(const roce::Path& path) const override { return !leads || leads(path); }

  transport::SendStatus send(const transport::OutgoingPacket& packet) override {
    if (staged_.size() >= kMaxStaged) flush();
    if (staged_.size() >= kMaxStaged) return transport::SendStatus::kBusy;
    path_ = packet.path;
    if (!lose || !lose(packet.headers)) staged_.push_back(datagram(packet.headers, packet.payload));
    ++counters_.sent_packets;
    return transport::SendStatus::kSent;
  }

  bool flush() override {
    while (!staged_.empty() && out_.push(staged_.front())) staged_.pop_front();
    return staged_.empty();
  }

  uint32_t receive(net::PacketHandler& handler, uint32_t budget) override {
    uint32_t received = 0;
    for (std::vector<std::byte> bytes; received < std::min(budget, max_at_once) && in_.pop(bytes);
         ++received) {
      ++counters_.received_packets;
      const auto packet = roce::parse(bytes);
      handler.on_packet({*packet, path_back(), static_cast<uint32_t>(bytes.size())});
    }
    return received;
  }

  int receive_fd() const override {
    return traits_.progress == transport::Traits::Progress::kAsked ? -1 : in_.readable_fd();
  }
  int send_fd() const override { return has_send_fd && !staged_.empty() ? out_.writable_fd() : -1; }
  const transport::Traits& traits() const override { return traits_; }
  net::PortCounters& counters() override { return counters_; }

  // Selects the paths that the port leads to; empty: all.
  std::function<bool(const roce::Path&)> leads;
  // Selects outgoing packets to be lost.
  std::function<bool(const roce::Headers&)> lose;
  bool has_send_fd = true;
  // Limits the packets per call of receive(), as a socket's datagrams do.
  uint32_t max_at_once = UINT32_MAX;

 private:
  // Both hosts have the same address, so all paths are equal.
  roce::Path path_back() const { return path_; }

  PacketQueue& out_;
  PacketQueue& in_;
  const transport::Traits traits_;
  std::deque<std::vector<std::byte>> staged_;
  roce::Path path_;
  net::PortCounters counters_;
};

}  // namespace verbena::engine

// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/open_port.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/log.h"

namespace verbena::agent {
namespace {

// So that one program's flood leaves time for the others.
constexpr int kDatagramsPerRound = 16;

}  // namespace

OpenPort::OpenPort(EventLoop& loop, ClientSockets& sockets, uid_t user, uint32_t device_index,
                   UniqueFd socket, Owner owner)
    : loop_(loop),
      user_(user),
      device_index_(device_index),
      socket_(sockets, user, std::move(socket)),
      owner_(std::move(owner)) {
  loop_.watch(socket_.get(), EPOLLIN, [this](uint32_t events) {
    // One that is paused and whose program has ended would be told of that without end.
    if (paused_ && (events & (EPOLLHUP | EPOLLERR)) != 0) return end();
    on_readable();
  });
}

OpenPort::~OpenPort() {
  loop_.forget(socket_.get());
}

void OpenPort::on_readable() {
  for (int i = 0; i < kDatagramsPerRound && !ended_; ++i) {
    if (!owner_.has_room()) {
      paused_ = true;
      return loop_.set_events(socket_.get(), 0);
    }
    std::array<std::byte, protocol::kUserMadBytes + protocol::kMostSentMadBytes> buffer;
    const auto seen = socket_.look(buffer);
    if (!seen && seen.error().code == EAGAIN) return;
    if (!seen || seen->bytes == 0 || seen->has_files) return end();
    socket_.drop();
    if (seen->is_longer || seen->bytes < protocol::kUserMadBytes + protocol::kLeastSentMadBytes) continue;
    const auto message = ConstBytes(buffer).first(seen->bytes);
    owner_.on_datagram(protocol::read_as<protocol::UserMad>(message),
                       message.subspan(protocol::kUserMadBytes));
  }
}

void OpenPort::resume() {
  if (!std::exchange(paused_, false)) return;
  loop_.set_events(socket_.get(), EPOLLIN);
}

void OpenPort::deliver(protocol::UserMad header, ConstBytes mad) {
  header.length = static_cast<uint32_t>(sizeof header + mad.size());
  std::vector<std::byte> message(header.length);
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, mad.data(), mad.size());
  if (const auto sent = socket_.send(message); !sent) {
    log_debug("a management datagram is lost: its program does not take it (errno {})", sent.error().code);
  }
}

void OpenPort::end() {
  if (std::exchange(ended_, true)) return;
  loop_.set_events(socket_.get(), 0);
  owner_.on_end();
}

}  // namespace verbena::agent

// SPDX-License-Identifier: Apache-2.0
#include "engine/local_line.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "agent_client/message_socket.h"
#include "base/log.h"
#include "net/udp/system_calls.h"

namespace verbena::engine {
namespace {

// What goes over the socket but bells, which are of one byte. With an offer comes the file.
enum class HandshakeType : uint32_t { kOffer = 1, kAccept };
struct Handshake {
  uint32_t magic;
  uint32_t version;  // of the memory's layout
  HandshakeType type;
  uint32_t reserved;
};
static_assert(sizeof(Handshake) == 16);

Handshake handshake(HandshakeType type) {
  return {local::kChannelMagic, local::kLayoutVersion, type, 0};
}

// lanes[0] goes from who made the memory to the other.
constexpr size_t kMakersLane = 0;
constexpr size_t kOthersLane = 1;

}  // namespace

Result<std::unique_ptr<LocalLine>> LocalLine::offer(UniqueFd socket) {
  auto made = ChannelMapping::make();
  if (!made) return tl::unexpected(made.error());
  std::unique_ptr<LocalLine> line(new LocalLine(std::move(socket), State::kOffered));
  line->use(std::move(made->first), kMakersLane, kOthersLane);
  const Handshake message = handshake(HandshakeType::kOffer);
  const int file = made->second.get();
  if (!line->send(std::as_bytes(std::span(&message, 1)), {&file, 1})) return fail(EPIPE);
  return line;
}

Result<std::unique_ptr<LocalLine>> LocalLine::loop() {
  auto made = ChannelMapping::make();
  if (!made) return tl::unexpected(made.error());
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return fail(errno);
  std::unique_ptr<LocalLine> line(new LocalLine(UniqueFd(ends[0]), State::kOpen));
  line->own_end_.reset(ends[1]);
  line->use(std::move(made->first), kMakersLane, kMakersLane);
  line->open();
  return line;
}

std::unique_ptr<LocalLine> LocalLine::await(UniqueFd socket) {
  return std::unique_ptr<LocalLine>(new LocalLine(std::move(socket), State::kAwaiting));
}

void LocalLine::use(ChannelMapping mapping, size_t ours, size_t theirs) {
  mapping_.emplace(std::move(mapping));
  writer_.emplace(mapping_->memory().lanes[ours]);
  reader_.emplace(mapping_->memory().lanes[theirs]);
}

bool LocalLine::send(ConstBytes message, std::span<const int> files) {
  const auto sent = agent_client::send_message(socket_.get(), message, files);
  if (!sent) state_ = State::kLost;
  return sent.has_value();
}

// A bell that finds the socket full is not needed: others lie there unheard.
void LocalLine::ring() {
  const std::byte bell{};
  const int bells = own_end_ ? own_end_.get() : socket_.get();
  net::system_calls::sendto(bells, &bell, sizeof bell, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
}

void LocalLine::read_socket() {
  std::array<std::byte, sizeof(Handshake)> buffer;
  while (state_ != State::kLost) {
    auto received = agent_client::receive_message(socket_.get(), buffer, 1);
    if (!received && received.error().code == EAGAIN) return;
    const bool good = received && received->bytes > 0 && !received->truncated &&
                      take(std::span(buffer).first(received->bytes), received->fds);
    if (!good) state_ = State::kLost;
  }
}

bool LocalLine::take(ConstBytes message, std::span<UniqueFd> files) {
  if (message.size() == 1) return true;
  Handshake said;
  if (message.size() != sizeof said) return false;
  std::memcpy(&said, message.data(), sizeof said);
  if (said.magic != local::kChannelMagic || said.version != local::kLayoutVersion) return false;
  if (said.type == HandshakeType::kOffer) {
    return state_ == State::kAwaiting && files.size() == 1 && take_offer(files[0].get());
  }
  if (said.type != HandshakeType::kAccept || state_ != State::kOffered) return false;
  open();
  return true;
}

bool LocalLine::take_offer(int file) {
  auto mapping = ChannelMapping::map(file);
  if (!mapping) {
    log_warning("a channel that another process offers cannot be used: error {}", mapping.error().code);
    return false;
  }
  use(std::move(*mapping), kOthersLane, kMakersLane);
  const Handshake message = handshake(HandshakeType::kAccept);
  if (!send(std::as_bytes(std::span(&message, 1)))) return false;
  open();
  return true;
}

void LocalLine::open() {
  state_ = State::kOpen;
  was_open_ = true;
}

void LocalLine::lose() {
  state_ = State::kLost;
  ::shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace verbena::engine

// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/gsi_port.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/socket_option.h"

namespace verbena::agent {

namespace {

// Maximum number of datagrams per call, so that a flood leaves time for clients.
constexpr uint32_t kBudget = 64;
constexpr Duration kRetry = std::chrono::milliseconds(1);

// IBTA volume 1, 13.4.5.
constexpr std::byte kMethodGet{0x01};
constexpr std::byte kMethodSet{0x02};
constexpr std::byte kMethodGetResponse{0x81};
constexpr uint16_t kUnsupportedMethodAttribute = 0x000c;  // table 117

}  // namespace

GsiPort::GsiPort(EventLoop& loop, OnMad on_mad) : loop_(loop), on_mad_(std::move(on_mad)) {}

GsiPort::~GsiPort() {
  close();
}

void GsiPort::close() {
  if (watched_ >= 0) loop_.forget(std::exchange(watched_, -1));
  others_.reset();  // adds to the port's counters
  port_.reset();
}

Result<void> GsiPort::open(int slot_socket, uint16_t port) {
  UniqueFd socket(::fcntl(slot_socket, F_DUPFD_CLOEXEC, 3));
  if (!socket) return fail(errno);
  net::UdpPortOptions options;
  options.slot = 0;
  options.port = port;
  options.sends_from_port = true;
  auto opened = net::UdpPort::create(std::move(socket), options);
  if (!opened) return fail(opened.error().code);
  close();
  port_ = std::move(*opened);
  others_ = std::make_unique<net::Sender>(options, port_->counters());
  udp_port_ = port;
  watched_ = port_->receive_fd();
  loop_.watch(watched_, EPOLLIN, [this](uint32_t) { port_->receive(*this, kBudget); });
  return {};
}

void GsiPort::send_to(roce::Qpn queue_pair, const cm::Mad& mad, const roce::Path& path) {
  if (!port_) return;
  roce::Headers headers;
  headers.opcode = roce::kUdSendOnlyOpcode;
  headers.destination = queue_pair;
  headers.psn = roce::Psn(psn_++);
  headers.qkey = cm::kGsiQkey;
  headers.source = roce::Qpn(cm::kGsiQpn);
  const ConstBytes payload(mad.bytes);
  const transport::OutgoingPacket packet{path, headers, {&payload, 1}, static_cast<uint32_t>(payload.size())};
  const bool is_for_connections =
      queue_pair == roce::kMulticastQpn || mad.bytes[roce::kClassAt] == std::byte{cm::kMadClass};
  if (!is_for_connections) return send_by(*others_, packet);
  if (is_half_full() && is_silent(path)) return;
  send_by(*port_, packet);
}

// Other hosts can ask for many answers to addresses that answer no ARP. These wait in the kernel and count in
// the buffer of the only socket that sends from the port. So half of it is kept for hosts that answer.
bool GsiPort::is_half_full() const {
  int queued_bytes = 0;
  const auto buffer_bytes = get_option<int>(watched_, SOL_SOCKET, SO_SNDBUF);
  return buffer_bytes && ::ioctl(watched_, SIOCOUTQ, &queued_bytes) == 0 && queued_bytes > *buffer_bytes / 2;
}

// A host that cannot be asked about counts as silent: other users can bring that about.
bool GsiPort::is_silent(const roce::Path& path) {
  return searches_.waits(path).value_or(true);
}

// Loses the packet if it finds no room, even after flush().
template <class Half>
void GsiPort::send_by(Half& half, const transport::OutgoingPacket& packet) {
  if (half.send(packet) != transport::SendStatus::kBusy) return;
  flush();
  half.send(packet);
}

void GsiPort::send_headers(const roce::Headers& headers, const roce::Path& path) {
  if (port_) send_by(*others_, {path, headers, {}, 0});
}

void GsiPort::flush() {
  if (!port_) return;
  const bool is_port_empty = port_->flush();
  if ((others_->flush() && is_port_empty) || retrying_) return;
  loop_.at(MonotonicClock::now() + kRetry, [this] {
    retrying_ = false;
    flush();
  });
  retrying_ = true;
}

void GsiPort::on_packet(const transport::IncomingPacket& incoming) {
  const roce::Headers& headers = incoming.packet.headers;
  if (headers.destination != roce::Qpn(cm::kGsiQpn)) {
    ++port_->counters().dropped[static_cast<size_t>(net::DropReason::kNoQueuePair)];
    return;
  }
  if (headers.opcode != roce::kUdSendOnlyOpcode) return;
  if (headers.qkey != cm::kGsiQkey) return void(++counters_.bad_qkey);
  const ConstBytes mad = incoming.packet.payload;
  if (mad.size() != cm::kMadBytes) return;
  const cm::Arrival arrival{
      .path = incoming.path, .pkey = headers.pkey, .from_roce_port = incoming.source_port == udp_port_};
  const bool is_cm = mad[roce::kBaseVersionAt] == std::byte{roce::kMadBaseVersion} &&
                     mad[roce::kClassAt] == std::byte{cm::kMadClass} &&
                     mad[roce::kMethodAt] == std::byte{roce::kMadMethodSend};
  if (is_cm) {
    if (on_heard_) on_heard_(arrival);
    on_mad_(mad, arrival);
  } else if (!on_other_ || !on_other_(mad, arrival)) {
    ++counters_.unknown_class;
    answer_unknown(mad, arrival);
  }
}

// Answers a Get or Set of an unknown class with an error (IBTA volume 1, 13.4.6.4), as the kernel does. Other
// methods get no answer, or two managers might answer each other's answers.
void GsiPort::answer_unknown(ConstBytes mad, const cm::Arrival& arrival) {
  const bool wants_answer = mad[roce::kBaseVersionAt] == std::byte{roce::kMadBaseVersion} &&
                            (mad[roce::kMethodAt] == kMethodGet || mad[roce::kMethodAt] == kMethodSet);
  if (!wants_answer) return;
  cm::Mad answer;
  std::ranges::copy(mad, answer.bytes.begin());
  answer.bytes[roce::kMethodAt] = kMethodGetResponse;
  store_be(&answer.bytes[roce::kStatusAt], kUnsupportedMethodAttribute);
  send(answer, cm::answer_path(arrival.path));
  flush();
}

}  // namespace verbena::agent

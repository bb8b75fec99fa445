// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/gsi_port.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "adapter/net/udp/route_check.h"
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
  if (is_half_full() && net::waits_for_neighbour(path)) return;
  send_by(*port_, packet);
}

// Other hosts can ask for many answers to addresses that answer no ARP. These wait in the kernel and count in
// the buffer of the only socket that sends from the port. So half of it is kept for hosts that answer.
bool GsiPort::is_half_full() const {
  int queued_bytes = 0;
  const auto buffer_bytes = get_option<int>(watched_, SOL_SOCKET, SO_SNDBUF);
  return buffer_bytes && ::ioctl(watched_, SIOCOUTQ, &queued_bytes) == 0 && queued_bytes > *buffer_bytes / 2;
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

size_t EarlyMessages::count(const roce::Address& sender) const {
  const auto is_its = [&](const Message& message) { return message.arrival.path.source == sender; };
  return static_cast<size_t>(std::ranges::count_if(messages_, is_its));
}

std::deque<EarlyMessages::Message>::const_iterator EarlyMessages::oldest_of_most() const {
  return std::ranges::max_element(messages_, {},
                                  [&](const Message& message) { return count(message.arrival.path.source); });
}

bool EarlyMessages::has_room(const roce::Address& sender, Duration waited) const {
  if (waited >= kPatience) return messages_.size() < kMax / 2;
  return messages_.size() < kMax || count(sender) < count(oldest_of_most()->arrival.path.source);
}

std::optional<EarlyMessages::Message> EarlyMessages::keep(ConstBytes mad, const cm::Arrival& arrival,
                                                          TimePoint came, TimePoint deadline) {
  const auto is_repeated = [&](const Message& message) {
    return message.arrival.path.source == arrival.path.source && std::ranges::equal(message.mad.bytes, mad);
  };
  if (std::ranges::any_of(messages_, is_repeated)) return std::nullopt;
  std::optional<Message> displaced;
  if (messages_.size() >= kMax) {
    const auto oldest = oldest_of_most();
    displaced = *oldest;
    messages_.erase(oldest);
  }
  Message message{{}, arrival, came, deadline};
  std::copy_n(mad.begin(), std::min(mad.size(), message.mad.bytes.size()), message.mad.bytes.begin());
  messages_.push_back(message);
  return displaced;
}

void EarlyMessages::hear_rejection(ConstBytes mad, const cm::Arrival& arrival) {
  if (messages_.empty()) return;
  const auto header = cm::decode_header(mad);
  if (!header || header->type != cm::MessageType::kRej) return;
  const auto rej = cm::decode<cm::Rej>(mad);
  if (!rej || rej->remote_id != 0) return;
  std::erase_if(messages_, [&](const Message& message) {
    if (message.arrival.path.source != arrival.path.source) return false;
    if (message.arrival.from_roce_port && !arrival.from_roce_port)
      return false;  // from another program of that host
    const auto kept = cm::decode_header(message.mad.bytes);
    if (!kept || kept->type != cm::MessageType::kReq) return false;
    const auto req = cm::decode<cm::Req>(message.mad.bytes);
    return req && req->local_id == rej->local_id;
  });
}

std::optional<EarlyMessages::Message> EarlyMessages::take_overdue(TimePoint now) {
  if (now < deadline()) return std::nullopt;
  Message message = messages_.front();
  messages_.pop_front();
  return message;
}

// Folds a product of each word into the digest, as in wyhash. No attacker sees a digest or can try many.
uint64_t OwnMessages::digest_of(ConstBytes mad) const {
  __extension__ using Wide = unsigned __int128;
  uint64_t state = secret_ ^ mad.size();
  for (size_t at = 0; at < mad.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, mad.data() + at, std::min(sizeof word, mad.size() - at));
    const Wide product = static_cast<Wide>(state ^ word) * (secret_ | 1);
    state = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ 0x9e3779b97f4a7c15;
  }
  return std::max<uint64_t>(state, 1);
}

void OwnMessages::said(ConstBytes mad) {
  const uint64_t digest = digest_of(mad);
  uint64_t* const set = set_of(digest);
  std::copy(set + 1, set + kWays, set);
  set[kWays - 1] = digest;
}

bool OwnMessages::heard(ConstBytes mad) {
  const uint64_t digest = digest_of(mad);
  uint64_t* const set = set_of(digest);
  uint64_t* const found = std::find(set, set + kWays, digest);
  if (found == set + kWays) return false;
  std::copy_backward(set, found, found + 1);
  set[0] = 0;
  return true;
}

}  // namespace verbena::agent

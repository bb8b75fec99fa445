// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/udp/send_run.h"

#include <algorithm>
#include <cstring>

#include <netinet/udp.h>

#include "adapter/memory/guarded.h"
#include "adapter/net/udp/system_calls.h"
#include "wire/roce/ip_header.h"

namespace verbena::net {
namespace {

constexpr size_t kBeforePsn = roce::kBthBytes - sizeof(uint32_t);

// The change that roce::icrc_identification() makes to the ICRC state eight bytes later, before the PSN.
uint32_t identification_before_psn(uint32_t index) {
  static const std::array<uint32_t, SendRun::kMaxSegments> kImages = [] {
    std::array<uint32_t, SendRun::kMaxSegments> images{};
    for (uint32_t i = 0; i < images.size(); ++i) {
      images[i] = roce::crc_of_zeros(roce::icrc_identification(static_cast<uint16_t>(i)), kBeforePsn);
    }
    return images;
  }();
  return kImages[index];
}

uint32_t copy_pieces(uint32_t state, std::byte* to, std::span<const ConstBytes> pieces) {
  for (const ConstBytes piece : pieces) {
    state = roce::crc_copy(state, to, piece);
    to += piece.size();
  }
  return state;
}

// Copies user memory, which may be unmapped. False: it faulted.
bool stage_payload(uint32_t& state, std::byte* to, std::span<const ConstBytes> pieces) {
  return memory::guarded([&state, to, pieces] { state = copy_pieces(state, to, pieces); });
}

}  // namespace

void SendRun::begin(std::byte* block, const roce::Path& path, uint32_t slot, SendSocket& socket,
                    uint16_t destination_port, uint32_t packet_bytes, uint32_t max_segments) {
  block_ = block;
  // The run released last is reused first, so mostly for the same path.
  if (socket_ != &socket || has_old_port() || !(path_ == path)) set_path(path, socket, destination_port);
  slot_ = slot;
  bytes_ = 0;
  segments_ = 0;
  segment_bytes_ = packet_bytes;
  max_segments_ = std::min(max_segments, kMaxBytes / packet_bytes);
  icrc_prefix_ = roce::icrc_begin(flow_, packet_bytes, 0);
  open_ = true;
  has_train_ = keeps_block_ = false;
  fragments_ = nullptr;
  left_ = 0;
}

void SendRun::set_path(const roce::Path& path, SendSocket& socket, uint16_t destination_port) {
  path_ = path;
  socket_ = &socket;
  name_ = destination_of(path, destination_port);
  flow_ = roce::icrc_flow(path, socket.port, destination_port);
  write_controls();
}

void SendRun::write_controls() {
  ControlWriter writer(control_.data(), 0);
  if (!socket_->implies(path_)) write_source(writer);
  const bool ipv4 = is_ipv4();
  if (path_.traffic_class != 0) {
    writer.put(ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS, int{path_.traffic_class});
  }
  // Multicast has a default hop limit of its own, 1. A limit of 0 cannot be sent: it means "default".
  if (path_.hop_limit != 0 && (path_.hop_limit != kDefaultHopLimit || path_.destination.is_multicast())) {
    writer.put(ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TTL : IPV6_HOPLIMIT, int{path_.hop_limit});
  }
  control_bytes_ = writer.used();
}

void SendRun::write_source(ControlWriter& writer) const {
  if (is_ipv4()) {
    in_pktinfo source{};
    source.ipi_ifindex = static_cast<int>(path_.interface_index);
    std::memcpy(&source.ipi_spec_dst, path_.source.ipv4(), 4);
    writer.put(IPPROTO_IP, IP_PKTINFO, source);
  } else {
    in6_pktinfo source{};
    source.ipi6_ifindex = path_.interface_index;
    std::memcpy(&source.ipi6_addr, path_.source.bytes.data(), 16);
    writer.put(IPPROTO_IPV6, IPV6_PKTINFO, source);
  }
}

// The initial ICRC state for packets of the usual size, or for a shorter last one.
uint32_t SendRun::icrc_prefix(uint32_t packet_bytes) const {
  return packet_bytes == segment_bytes_ ? icrc_prefix_ : roce::icrc_begin(flow_, packet_bytes, 0);
}

bool SendRun::append(const transport::OutgoingPacket& packet, uint32_t packet_bytes) {
  std::byte* at = block_ + bytes_;
  uint32_t state = icrc_prefix(packet_bytes);
  if (is_ipv4()) state ^= roce::icrc_identification(static_cast<uint16_t>(segments_));

  const uint32_t header_bytes = roce::encode(packet.headers, {at, roce::kMaxHeaderBytes});
  state = roce::icrc_headers(state, {at, header_bytes});
  at += header_bytes;
  if (packet.payload_bytes != 0) {
    if (!stage_payload(state, at, packet.payload)) return false;
    at += packet.payload_bytes;
  }
  if (packet.headers.pad != 0) {
    std::fill_n(at, packet.headers.pad, std::byte{0});
    state = roce::crc_update(state, {at, packet.headers.pad});
    at += packet.headers.pad;
  }
  roce::icrc_store(state, at);

  bytes_ += packet_bytes;
  ++segments_;
  open_ = packet_bytes == segment_bytes_ && segments_ < max_segments_;
  return true;
}

// All but the PSN and the payload is the same in each packet, so the ICRC state up to the PSN is computed
// once.
uint32_t SendRun::append(const transport::PacketTrain& train, uint32_t packet_bytes) {
  std::byte first[roce::kBthBytes];
  roce::encode_plain(train.headers, first);
  const uint32_t prefix = icrc_prefix(packet_bytes);
  const uint32_t before_psn = roce::icrc_headers(prefix, ConstBytes(first).first(kBeforePsn));

  uint32_t done = 0;
  memory::guarded([&] {
    std::byte* at = block_ + bytes_;
    for (uint32_t i = 0; i < train.count; ++i) {
      const bool asks = train.headers.ack_request && i + 1 == train.count;
      std::memcpy(at, first, kBeforePsn);
      const uint32_t psn = roce::encode_psn(train.headers.psn + i, asks, at + kBeforePsn);
      uint32_t state = before_psn;
      if (is_ipv4()) state ^= identification_before_psn(segments_ + i);
      state = roce::crc_update_word(state, psn);
      std::byte* const payload = at + roce::kBthBytes;
      state = roce::crc_copy(state, payload,
                             {train.payload + size_t{i} * train.packet_payload, train.packet_payload});
      roce::icrc_store(state, payload + train.packet_payload);
      at += packet_bytes;
      done = i + 1;
    }
  });
  bytes_ += done * packet_bytes;
  segments_ += done;
  open_ = segments_ < max_segments_ && (done == 0 || packet_bytes == segment_bytes_);
  return done;
}

ssize_t SendRun::transmit(SplicePipe& pipe) {
  // A single packet needs no message header, which saves copying one into the kernel.
  if (segments_ == 1 && control_bytes_ == 0) {
    return system_calls::sendto(fd(), block_, bytes_, MSG_DONTWAIT, &name_.generic, name_.length());
  }
  msghdr message;
  describe(message);
  if (is_spliced()) return pipe.send(fd(), message, BlockPool::kCopiedBytes);
  return system_calls::sendmsg(fd(), &message, MSG_DONTWAIT);
}

void SendRun::describe(msghdr& message) {
  size_t control_bytes = control_bytes_;
  if (segments_ > 1) {
    ControlWriter writer(control_.data(), control_bytes_);
    writer.put(IPPROTO_UDP, UDP_SEGMENT, static_cast<uint16_t>(segment_bytes_));
    control_bytes = writer.used();
  }
  data_ = {block_, bytes_};
  message = {&name_, name_.length(), &data_, 1, control_.data(), control_bytes, 0};
}

void SendRun::store_icrc(uint32_t index, const roce::IcrcFlow& flow, uint16_t identification) {
  const ConstBytes packet = packet_at(index);
  const ConstBytes covered = packet.first(packet.size() - roce::kIcrcBytes);
  const uint32_t icrc = roce::icrc_of(flow, identification, covered);
  // icrc_of() returns the finished value, icrc_store() takes the state before finishing.
  roce::icrc_store(~icrc, block_ + size_t{index} * segment_bytes_ + covered.size());
}

void SendRun::follow_port() {
  flow_.source_port = socket_->port;
  icrc_prefix_ = roce::icrc_begin(flow_, segment_bytes_, 0);
  for (uint32_t i = 0; i < segments_; ++i) store_icrc(i, flow_, static_cast<uint16_t>(i));
}

void SendRun::describe_packet(uint32_t index, msghdr& message, iovec& data) {
  data = {block_ + size_t{index} * segment_bytes_, packet_at(index).size()};
  message = {&name_, name_.length(), &data, 1, control_.data(), control_bytes_, 0};
}

void SendRun::describe_single(uint32_t index, msghdr& message, iovec& data) {
  if (is_ipv4() && index != 0) store_icrc(index, flow_, 0);
  describe_packet(index, message, data);
}

void SendRun::describe_fragmented(uint32_t index, std::optional<uint16_t> identification, msghdr& message,
                                  iovec& data) {
  roce::IcrcFlow flow = flow_;
  flow.source_port = fragments_->socket().port;
  flow.may_fragment = identification.has_value();
  store_icrc(index, flow, identification.value_or(0));
  describe_packet(index, message, data);
}

}  // namespace verbena::net

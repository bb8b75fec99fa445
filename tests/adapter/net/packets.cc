// SPDX-License-Identifier: Apache-2.0
#include "adapter/net/packets.h"

#include <cstring>
#include <stdexcept>
#include <system_error>

#include <arpa/inet.h>
#include <poll.h>

#include "adapter/net/udp/socket_address.h"
#include "wire/roce/icrc.h"
#include "wire/roce/ip_header.h"

namespace verbena::net::testing {
namespace {

constexpr int kDeadlineMs = 5000;

[[noreturn]] void throw_errno(const char* what, int error = errno) {
  throw std::system_error(error, std::generic_category(), what);
}

uint16_t local_port(int fd) {
  SocketAddress local{};
  socklen_t length = sizeof local;
  if (getsockname(fd, &local.generic, &length) != 0) throw_errno("getsockname");
  return port_of(local);
}

}  // namespace

roce::Address address(const char* text) {
  uint8_t ipv4[4];
  if (inet_pton(AF_INET, text, ipv4) == 1) return roce::Address::from_ipv4(ipv4);
  roce::Address result;
  if (inet_pton(AF_INET6, text, result.bytes.data()) != 1) throw std::invalid_argument(text);
  return result;
}

roce::Path path(const char* source, const char* destination) {
  roce::Path result;
  result.source = address(source);
  result.destination = address(destination);
  return result;
}

std::vector<std::byte> pattern(size_t size, uint32_t seed) {
  std::vector<std::byte> bytes(size);
  uint32_t x = seed * 2654435761u + 1;
  for (std::byte& b : bytes) {
    x = x * 1664525u + 1013904223u;
    b = static_cast<std::byte>(x >> 24);
  }
  return bytes;
}

roce::Headers write_middle(uint32_t slot, uint32_t psn, uint32_t payload_bytes) {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kWriteMiddle);
  headers.destination = roce::Qpn::in_slot(slot, 17);
  headers.psn = roce::Psn(psn);
  headers.pad = roce::padding_of(payload_bytes);
  return headers;
}

roce::Headers acknowledge(uint32_t slot, uint32_t psn) {
  roce::Headers headers;
  headers.opcode = roce::make_opcode(roce::Service::kRc, roce::Operation::kAcknowledge);
  headers.destination = roce::Qpn::in_slot(slot, 17);
  headers.psn = roce::Psn(psn);
  headers.syndrome = 0x1f;
  return headers;
}

transport::SendStatus send(Port& port, const roce::Path& path, const roce::Headers& headers,
                           ConstBytes payload) {
  const ConstBytes pieces[] = {payload};
  return port.send({path, headers, pieces, static_cast<uint32_t>(payload.size())});
}

std::vector<std::byte> encode(const roce::Path& path, uint16_t source_port, uint16_t destination_port,
                              uint16_t identification, const roce::Headers& headers, ConstBytes payload) {
  std::vector<std::byte> bytes(roce::kMaxHeaderBytes + payload.size() + headers.pad + roce::kIcrcBytes);
  const uint32_t header_bytes = roce::encode(headers, bytes);
  if (!payload.empty()) std::memcpy(bytes.data() + header_bytes, payload.data(), payload.size());
  const size_t covered = header_bytes + payload.size() + headers.pad;
  bytes.resize(covered + roce::kIcrcBytes);
  std::memset(bytes.data() + header_bytes + payload.size(), 0, headers.pad);
  const roce::IcrcFlow flow = roce::icrc_flow(path, source_port, destination_port);
  roce::icrc_store(~roce::icrc_of(flow, identification, ConstBytes(bytes).first(covered)), &bytes[covered]);
  return bytes;
}

void Collector::on_packet(const transport::IncomingPacket& packet) {
  const ConstBytes payload = packet.packet.payload;
  packets.push_back({packet.packet.headers,
                     {payload.begin(), payload.end()},
                     packet.path,
                     packet.udp_bytes,
                     packet.source_port});
}

bool Collector::receive(Port& port, size_t wanted) {
  while (packets.size() < wanted) {
    if (port.receive(*this, 1024) == 0 && !wait_for(port.receive_fd(), POLLIN)) return false;
  }
  return true;
}

bool Collector::receive_drops(Port& port, DropReason reason, uint64_t dropped) {
  Collector ignored;
  while (port.counters().dropped[static_cast<size_t>(reason)] < dropped) {
    if (port.receive(ignored, 1024) == 0 && !wait_for(port.receive_fd(), POLLIN)) return false;
  }
  return true;
}

PortGroup::PortGroup(uint32_t slots, UdpPortOptions options) {
  std::vector<UniqueFd> sockets;
  for (uint32_t slot = 0; slot < slots; ++slot) {
    Result<UniqueFd> fd = open_receive_socket(port);
    if (!fd) throw_errno("open_receive_socket", fd.error().code);
    if (slot == 0) port = local_port(fd->get());
    if (const auto steered = attach_slot_steering(fd->get(), slot + 1); !steered) {
      throw_errno("attach_slot_steering", steered.error().code);
    }
    sockets.push_back(std::move(*fd));
  }
  for (uint32_t slot = 0; slot < slots; ++slot) {
    options.slot = slot;
    options.port = port;
    Result<std::unique_ptr<UdpPort>> made = UdpPort::create(std::move(sockets[slot]), options);
    if (!made) throw_errno("UdpPort::create", made.error().code);
    ports.push_back(std::move(*made));
  }
}

Stranger::Stranger(const char* source, const char* destination, uint16_t destination_port)
    : path(testing::path(source, destination)), destination_port_(destination_port) {
  roce::Path back = path;
  std::swap(back.source, back.destination);
  const SocketAddress here = destination_of(back, 0);
  const int family = here.generic.sa_family;
  fd_.reset(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // Makes the kernel send identification 0, so that the ICRC can be exact.
  const int discover = IP_PMTUDISC_DO;
  if (family == AF_INET) setsockopt(fd_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
  if (bind(fd_.get(), &here.generic, here.length()) != 0) throw_errno("bind");
  source_port_ = local_port(fd_.get());
}

void Stranger::send(ConstBytes udp_payload) {
  const SocketAddress to = destination_of(path, destination_port_);
  if (sendto(fd_.get(), udp_payload.data(), udp_payload.size(), 0, &to.generic, to.length()) < 0) {
    throw_errno("sendto");
  }
}

std::vector<std::byte> Stranger::encode(const roce::Headers& headers, ConstBytes payload) const {
  return testing::encode(path, source_port_, destination_port_, 0, headers, payload);
}

bool wait_for(int fd, short events) {
  pollfd waiting{fd, events, 0};
  return poll(&waiting, 1, kDeadlineMs) == 1;
}

}  // namespace verbena::net::testing

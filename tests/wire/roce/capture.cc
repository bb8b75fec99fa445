// SPDX-License-Identifier: Apache-2.0
#include "wire/roce/capture.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "wire/roce/packet.h"

namespace verbena::roce {
namespace {

constexpr uint32_t kPcapMagic = 0xa1b2c3d4;
constexpr size_t kPcapHeaderBytes = 24;
constexpr size_t kRecordHeaderBytes = 16;
constexpr size_t kEthernetBytes = 14;
constexpr size_t kUdpBytes = 8;

template <class T>
T load_le(const std::byte* from) {
  return byteswap(load_be<T>(from));
}

void require(bool condition, const std::string& where, const char* what) {
  if (!condition) throw std::runtime_error(where + ": " + what);
}

CapturedPacket read_frame(ConstBytes frame, std::string where) {
  CapturedPacket packet;
  require(frame.size() >= kEthernetBytes + 20 + kUdpBytes, where, "short frame");
  const auto ethertype = load_be<uint16_t>(frame.data() + 12);
  const ConstBytes ip = frame.subspan(kEthernetBytes);
  size_t total = 0;
  if (ethertype == 0x0800) {
    require(ip[0] == std::byte{0x45} && ip[9] == std::byte{17}, where, "no plain IPv4 with UDP");
    packet.ip_header_bytes = 20;
    total = load_be<uint16_t>(ip.data() + 2);
    packet.identification = load_be<uint16_t>(ip.data() + 4);
    std::copy_n(reinterpret_cast<const uint8_t*>(ip.data() + 12), 4, packet.flow.source.begin());
    std::copy_n(reinterpret_cast<const uint8_t*>(ip.data() + 16), 4, packet.flow.destination.begin());
  } else {
    require(ethertype == 0x86dd && ip[6] == std::byte{17}, where, "no plain IPv6 with UDP");
    packet.flow.ipv6 = true;
    packet.ip_header_bytes = 40;
    total = load_be<uint16_t>(ip.data() + 4) + packet.ip_header_bytes;
    std::copy_n(reinterpret_cast<const uint8_t*>(ip.data() + 8), 16, packet.flow.source.begin());
    std::copy_n(reinterpret_cast<const uint8_t*>(ip.data() + 24), 16, packet.flow.destination.begin());
  }
  require(ip.size() >= total, where, "cut off by the capture");
  packet.ip.assign(ip.begin(), ip.begin() + static_cast<ptrdiff_t>(total));
  const std::byte* const udp = packet.ip.data() + packet.ip_header_bytes;
  packet.flow.source_port = load_be<uint16_t>(udp);
  packet.flow.destination_port = load_be<uint16_t>(udp + 2);
  require(packet.flow.destination_port == kUdpPort, where, "not RoCEv2");
  packet.where = std::move(where);
  return packet;
}

void read_file(const std::filesystem::path& path, std::vector<CapturedPacket>& packets) {
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const ConstBytes file = std::as_bytes(std::span(chars));
  const std::string name = path.filename().string();
  require(file.size() >= kPcapHeaderBytes && load_le<uint32_t>(file.data()) == kPcapMagic, name, "no pcap");
  require(load_le<uint32_t>(file.data() + 20) == 1, name, "no Ethernet");
  size_t at = kPcapHeaderBytes;
  for (int number = 1; at < file.size(); ++number) {
    const std::string where = name + " packet " + std::to_string(number);
    require(file.size() - at >= kRecordHeaderBytes, where, "cut off");
    const size_t bytes = load_le<uint32_t>(file.data() + at + 8);
    at += kRecordHeaderBytes;
    require(file.size() - at >= bytes, where, "cut off");
    packets.push_back(read_frame(file.subspan(at, bytes), where));
    at += bytes;
  }
}

}  // namespace

const std::vector<CapturedPacket>& captured_packets() {
  static const std::vector<CapturedPacket> all = [] {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(VERBENA_CAPTURES)) {
      if (entry.path().extension() == ".pcap") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::vector<CapturedPacket> packets;
    for (const auto& file : files) read_file(file, packets);
    return packets;
  }();
  return all;
}

uint32_t icrc_by_definition(const CapturedPacket& packet) {
  std::vector<std::byte> covered(8 + packet.ip.size() - kIcrcBytes, std::byte{0xff});
  std::memcpy(covered.data() + 8, packet.ip.data(), packet.ip.size() - kIcrcBytes);
  std::byte* const ip = covered.data() + 8;
  std::byte* const udp = ip + packet.ip_header_bytes;
  const auto mask = [](std::byte* at) { *at = std::byte{0xff}; };
  if (packet.flow.ipv6) {
    ip[0] |= std::byte{0x0f};  // traffic class and flow label, which share bytes with the version
    mask(ip + 1), mask(ip + 2), mask(ip + 3), mask(ip + 7);
  } else {
    mask(ip + 1), mask(ip + 8), mask(ip + 10), mask(ip + 11);
  }
  mask(udp + 6), mask(udp + 7), mask(udp + 8 + 4);

  uint32_t state = 0xffffffff;
  for (const std::byte byte : covered) {
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t one = (state ^ static_cast<uint32_t>(byte) >> bit) & 1;
      state = state >> 1 ^ one * 0xedb88320;
    }
  }
  return ~state;
}

}  // namespace verbena::roce

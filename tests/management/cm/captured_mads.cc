// SPDX-License-Identifier: Apache-2.0
#include "management/cm/captured_mads.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "wire/roce/capture.h"
#include "wire/roce/packet.h"

namespace verbena::cm {
namespace {

roce::Address address_of(const std::array<uint8_t, 16>& bytes, bool ipv6) {
  if (!ipv6) return roce::Address::from_ipv4(bytes.data());
  roce::Address address;
  address.bytes = bytes;
  return address;
}

std::vector<CapturedMad> read_all() {
  std::vector<CapturedMad> mads;
  for (const roce::CapturedPacket& packet : roce::captured_packets()) {
    const auto parsed = roce::parse(packet.udp_payload());
    if (!parsed || parsed->headers.destination != roce::Qpn(kGsiQpn)) continue;
    CapturedMad captured;
    captured.where = packet.where;
    captured.file = packet.where.substr(0, packet.where.find(' '));
    captured.arrival.path.source = address_of(packet.flow.source, packet.flow.ipv6);
    captured.arrival.path.destination = address_of(packet.flow.destination, packet.flow.ipv6);
    captured.arrival.pkey = parsed->headers.pkey;
    captured.qkey = parsed->headers.qkey;
    captured.mad.assign(parsed->payload.begin(), parsed->payload.end());
    mads.push_back(std::move(captured));
  }
  if (mads.empty()) throw std::runtime_error("no CM datagram in any capture");
  return mads;
}

}  // namespace

const std::vector<CapturedMad>& captured_mads() {
  static const std::vector<CapturedMad> all = read_all();
  return all;
}

std::vector<CapturedMad> captured_mads(const std::string& file) {
  std::vector<CapturedMad> mads;
  std::copy_if(captured_mads().begin(), captured_mads().end(), std::back_inserter(mads),
               [&](const CapturedMad& mad) { return mad.file == file; });
  if (mads.empty()) throw std::runtime_error("no CM datagram in " + file);
  return mads;
}

}  // namespace verbena::cm

// SPDX-License-Identifier: Apache-2.0
#include "management/cm/parameters.h"

namespace verbena::cm {

namespace {

// Offsets in the header (annex A11, figure 4). Address fields have 16 bytes; IPv4 uses the last four.
constexpr size_t kVersionsAt = 0;  // major and minor version, a nibble each
constexpr size_t kFamilyAt = 1;    // IP version in the high nibble
constexpr size_t kPortAt = 2;
constexpr size_t kSourceAt = 4;
constexpr size_t kDestinationAt = 20;
constexpr size_t kAddressBytes = 16;
constexpr size_t kIpv4At = 12;

roce::Address decode_address(const std::byte* from, bool ipv4) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(from);
  if (ipv4) return roce::Address::from_ipv4(bytes + kIpv4At);
  roce::Address address;
  std::copy_n(bytes, kAddressBytes, address.bytes.begin());
  return address;
}

void encode_address(const roce::Address& address, bool ipv4, uint8_t* to) {
  if (ipv4) {
    std::copy_n(address.ipv4(), 4, to + kIpv4At);
  } else {
    std::copy_n(address.bytes.begin(), kAddressBytes, to);
  }
}

constexpr uint8_t kMaxRetries = 7;  // three bits

uint8_t retries(uint8_t wanted) {
  return std::min(wanted, kMaxRetries);
}

Ece ece_of(const ConnectionParameters& parameters) {
  return {parameters.ece_vendor, parameters.ece_options};
}

// Returns the private data of a message, and its ECE fields if it has any.
template <class Message>
ConnectionParameters common_in(const Message& message) {
  ConnectionParameters parameters{};
  [[maybe_unused]] const bool set = parameters.set_data(std::as_bytes(std::span(message.private_data)));
  if constexpr (requires { message.ece; }) {
    parameters.ece_vendor = message.ece.vendor;
    parameters.ece_options = message.ece.options;
  }
  return parameters;
}

}  // namespace

Result<IpService> parse_service_id(uint64_t service_id) {
  for (const PortSpace space : {PortSpace::kIpoib, PortSpace::kTcp, PortSpace::kUdp, PortSpace::kIb}) {
    const auto port = static_cast<uint16_t>(service_id);
    if (service_id == cm::service_id(space, port)) return IpService{space, port};
  }
  return fail(EINVAL);
}

Result<IpHeader> decode_ip_header(ConstBytes private_data) {
  if (private_data.size() < IpHeader::kBytes) return fail(EINVAL);
  const std::byte* const from = private_data.data();
  const auto versions = static_cast<uint8_t>(from[kVersionsAt]);
  const int family = static_cast<uint8_t>(from[kFamilyAt]) >> 4;
  if (versions >> 4 != 0 || (family != 4 && family != 6)) return fail(EINVAL);
  IpHeader header;
  header.minor_version = versions & 0x0f;
  header.source_port = load_be<uint16_t>(from + kPortAt);
  header.source = decode_address(from + kSourceAt, family == 4);
  header.destination = decode_address(from + kDestinationAt, family == 4);
  return header;
}

std::array<uint8_t, IpHeader::kBytes> encode_ip_header(const IpHeader& header) {
  std::array<uint8_t, IpHeader::kBytes> bytes{};
  const bool ipv4 = header.is_ipv4();
  bytes[kVersionsAt] = static_cast<uint8_t>(header.major_version << 4 | header.minor_version);
  bytes[kFamilyAt] = ipv4 ? 0x40 : 0x60;
  store_be(&bytes[kPortAt], header.source_port);
  encode_address(header.source, ipv4, &bytes[kSourceAt]);
  encode_address(header.destination, ipv4, &bytes[kDestinationAt]);
  return bytes;
}

bool say(const ConnectionParameters& parameters, Req& req) {
  req.ece = ece_of(parameters);
  req.local_qkey = parameters.qkey;
  req.local_qpn = parameters.qpn;
  req.initiator_depth = parameters.initiator_depth;
  req.flow_control = parameters.flow_control != 0;
  if (!req.is_xrc()) {  // an XRC initiator receives nothing: responder fields stay zero
    req.responder_resources = parameters.responder_resources;
    req.retry_count = retries(parameters.retry_count);
    req.rnr_retry_count = retries(parameters.rnr_retry_count);
    req.srq = parameters.srq != 0;
  }
  return put(parameters.data(), req.private_data);
}

bool say(const ConnectionParameters& parameters, bool from_xrc_target, Rep& rep) {
  rep.ece = ece_of(parameters);
  rep.local_qkey = parameters.qkey;
  rep.responder_resources = parameters.responder_resources;
  rep.rnr_retry_count = retries(parameters.rnr_retry_count);
  if (from_xrc_target) {
    rep.local_eecn = parameters.qpn;
    rep.srq = true;
  } else {
    rep.local_qpn = parameters.qpn;
    rep.initiator_depth = parameters.initiator_depth;
    rep.flow_control = parameters.flow_control != 0;
    rep.srq = parameters.srq != 0;
  }
  return put(parameters.data(), rep.private_data);
}

bool say(const ConnectionParameters& parameters, SidrReq& req) {
  return put(parameters.data(), req.private_data);
}

bool say(const ConnectionParameters& parameters, SidrRep& rep) {
  rep.ece = ece_of(parameters);
  rep.qpn = parameters.qpn;
  rep.qkey = parameters.qkey;
  return put(parameters.data(), rep.private_data);
}

ConnectionParameters heard_in(const Req& req) {
  ConnectionParameters parameters = common_in(req);
  parameters.qpn = req.local_qpn;
  parameters.responder_resources = req.initiator_depth;
  parameters.initiator_depth = req.responder_resources;
  parameters.flow_control = req.flow_control ? 1 : 0;
  parameters.retry_count = req.retry_count;
  parameters.rnr_retry_count = req.rnr_retry_count;
  parameters.srq = req.srq ? 1 : 0;
  return parameters;
}

ConnectionParameters heard_in(const Rep& rep, bool from_xrc_target) {
  ConnectionParameters parameters = common_in(rep);
  parameters.qpn = from_xrc_target ? rep.local_eecn : rep.local_qpn;
  parameters.responder_resources = rep.initiator_depth;
  parameters.initiator_depth = rep.responder_resources;
  parameters.flow_control = rep.flow_control ? 1 : 0;
  parameters.rnr_retry_count = rep.rnr_retry_count;
  parameters.srq = rep.srq ? 1 : 0;
  return parameters;
}

ConnectionParameters heard_in(const Rej& rej) {
  return common_in(rej);
}

ConnectionParameters heard_in(const SidrReq& req) {
  return common_in(req);
}

ConnectionParameters heard_in(const SidrRep& rep) {
  ConnectionParameters parameters = common_in(rep);
  parameters.qpn = rep.qpn;
  parameters.qkey = rep.qkey;
  return parameters;
}

ConnectionParameters without_ip_header(const ConnectionParameters& parameters) {
  ConnectionParameters rest = parameters;
  const ConstBytes data = parameters.data();
  [[maybe_unused]] const bool set = rest.set_data(data.subspan(std::min(data.size(), IpHeader::kBytes)));
  return rest;
}

}  // namespace verbena::cm

// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/raw_flow.h"

#include <algorithm>
#include <cstring>

#include <arpa/inet.h>

#include "commands/perf/failure.h"

namespace verbena::perf {
namespace {

constexpr std::uint32_t kWholeFlowLabel = 0xfffff;

template <class Spec>
Spec spec_of(ibv_flow_spec_type type) {
  Spec spec{};
  spec.type = type;
  spec.size = sizeof(Spec);
  return spec;
}

// Makes a rule compare the whole field. `mask`: the same field of the rule's mask.
template <class Field, class Value>
void match(Field& field, Field& mask, const Value& value) {
  std::memcpy(&field, &value, sizeof field);
  std::memset(&mask, 0xff, sizeof mask);
}

ibv_flow_spec_eth ethernet_spec(const FrameFields& fields) {
  auto spec = spec_of<ibv_flow_spec_eth>(IBV_FLOW_SPEC_ETH);
  match(spec.val.dst_mac, spec.mask.dst_mac, fields.destination);
  if (fields.ether_type) match(spec.val.ether_type, spec.mask.ether_type, htons(*fields.ether_type));
  return spec;
}

ibv_flow_spec_ipv4_ext ipv4_spec(const IpFields& ip) {
  auto spec = spec_of<ibv_flow_spec_ipv4_ext>(IBV_FLOW_SPEC_IPV4_EXT);
  match(spec.val.src_ip, spec.mask.src_ip, ip.source.bytes);
  match(spec.val.dst_ip, spec.mask.dst_ip, ip.destination.bytes);
  if (ip.traffic_class) match(spec.val.tos, spec.mask.tos, *ip.traffic_class);
  return spec;
}

ibv_flow_spec_ipv6 ipv6_spec(const IpFields& ip) {
  auto spec = spec_of<ibv_flow_spec_ipv6>(IBV_FLOW_SPEC_IPV6);
  match(spec.val.src_ip, spec.mask.src_ip, ip.source.bytes);
  match(spec.val.dst_ip, spec.mask.dst_ip, ip.destination.bytes);
  if (ip.traffic_class) match(spec.val.traffic_class, spec.mask.traffic_class, *ip.traffic_class);
  if (ip.flow_label != 0) {
    spec.val.flow_label = htonl(ip.flow_label);
    spec.mask.flow_label = htonl(kWholeFlowLabel);
  }
  return spec;
}

ibv_flow_spec_tcp_udp port_spec(const PortFields& ports) {
  auto spec = spec_of<ibv_flow_spec_tcp_udp>(ports.is_tcp ? IBV_FLOW_SPEC_TCP : IBV_FLOW_SPEC_UDP);
  match(spec.val.src_port, spec.mask.src_port, htons(ports.source));
  match(spec.val.dst_port, spec.mask.dst_port, htons(ports.destination));
  return spec;
}

}  // namespace

FlowRule::FlowRule(const FrameFields& fields, std::uint8_t port) {
  begin(IBV_FLOW_ATTR_NORMAL, port);
  add(ethernet_spec(fields));
  // With another EtherType the frame has no IP header for an adapter, and the rule would match nothing.
  if (!fields.ip || fields.ether_type) return;
  if (fields.ip->source.is_ipv6) {
    add(ipv6_spec(*fields.ip));
  } else {
    add(ipv4_spec(*fields.ip));
  }
  if (fields.ports) add(port_spec(*fields.ports));
}

FlowRule::FlowRule(ibv_flow_attr_type type, std::uint8_t port) {
  begin(type, port);
}

void FlowRule::begin(ibv_flow_attr_type type, std::uint8_t port) {
  ibv_flow_attr attributes{};
  attributes.type = type;
  attributes.port = port;
  attributes.size = sizeof attributes;
  words_.resize(sizeof attributes / sizeof(std::uint32_t));
  std::memcpy(words_.data(), &attributes, sizeof attributes);
}

template <class Spec>
void FlowRule::add(const Spec& spec) {
  static_assert(sizeof(Spec) % sizeof(std::uint32_t) == 0);
  const std::size_t before = words_.size();
  words_.resize(before + sizeof spec / sizeof(std::uint32_t));
  std::memcpy(words_.data() + before, &spec, sizeof spec);
  auto* const attributes = reinterpret_cast<ibv_flow_attr*>(words_.data());
  ++attributes->num_of_specs;
  attributes->size = static_cast<std::uint16_t>(attributes->size + sizeof spec);
}

Flow FlowRule::attach(const verbena::qp& pair) const {
  ibv_flow* const made = ibv_create_flow(pair.get(), const_cast<ibv_flow_attr*>(&get()));
  if (made == nullptr) fail("cannot make a flow rule");
  return Flow(made);
}

}  // namespace verbena::perf

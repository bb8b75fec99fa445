// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "adapter/objects/flows.h"

namespace verbena::adapter {
namespace {

using ethernet::FlowKey;
using ethernet::RuleKind;

// A flow attribute with specs behind it, as an application lays them out.
class FlowBuilder {
 public:
  FlowBuilder() : bytes_(sizeof(ibv_flow_attr)) {
    attr().port = 1;
    attr().size = sizeof(ibv_flow_attr);
  }
  ibv_flow_attr& attr() { return *reinterpret_cast<ibv_flow_attr*>(bytes_.data()); }

  template <class Spec>
  FlowBuilder& add(Spec spec, uint32_t type, size_t size = sizeof(Spec)) {
    spec.type = static_cast<ibv_flow_spec_type>(type);
    spec.size = static_cast<uint16_t>(size);
    const auto* from = reinterpret_cast<const std::byte*>(&spec);
    const size_t at = bytes_.size();
    bytes_.resize(at + size);
    std::memcpy(bytes_.data() + at, from, std::min(size, sizeof spec));
    ++attr().num_of_specs;
    attr().size = static_cast<uint16_t>(attr().size + size);
    return *this;
  }
  FlowBuilder& eth(ibv_flow_spec_eth spec = {}) { return add(spec, IBV_FLOW_SPEC_ETH); }
  FlowBuilder& ipv4(ibv_flow_spec_ipv4 spec = {}) { return add(spec, IBV_FLOW_SPEC_IPV4); }
  FlowBuilder& ipv4_ext(ibv_flow_spec_ipv4_ext spec = {}) { return add(spec, IBV_FLOW_SPEC_IPV4_EXT); }
  FlowBuilder& ipv6(ibv_flow_spec_ipv6 spec = {}) { return add(spec, IBV_FLOW_SPEC_IPV6); }
  FlowBuilder& udp(ibv_flow_spec_tcp_udp spec = {}) { return add(spec, IBV_FLOW_SPEC_UDP); }
  FlowBuilder& tcp(ibv_flow_spec_tcp_udp spec = {}) { return add(spec, IBV_FLOW_SPEC_TCP); }

  // Pads the attribute so that the head of the last spec can always be read, whatever its size field says.
  Result<FlowRequest> parse() {
    bytes_.resize(bytes_.size() + sizeof(ibv_flow_spec_eth));
    return parse_flow(attr());
  }
  int error() {
    const auto request = parse();
    return request ? 0 : request.error().code;
  }

 private:
  std::vector<std::byte> bytes_;
};

template <class Field>
void set_all(Field& field) {
  std::memset(static_cast<void*>(&field), 0xff, sizeof field);
}

TEST(FlowSpecs, EthernetAsksForAddressesTypeAndTag) {
  ibv_flow_spec_eth spec{};
  std::memcpy(spec.val.dst_mac, "\1\2\3\4\5\6", 6);
  std::memcpy(spec.val.src_mac, "\7\7\7\7\7\7", 6);
  set_all(spec.mask.dst_mac);
  spec.val.ether_type = htons(0x88b5);
  set_all(spec.mask.ether_type);
  spec.val.vlan_tag = htons(0x6005);
  spec.mask.vlan_tag = htons(0x0fff);
  const auto request = FlowBuilder().eth(spec).parse();
  ASSERT_TRUE(request);
  const FlowKey& value = request->rule.value;
  const FlowKey& mask = request->rule.mask;
  EXPECT_EQ(std::memcmp(value.destination.data(), "\1\2\3\4\5\6", 6), 0);
  EXPECT_EQ(value.source[0], 0) << "not asked for";
  EXPECT_EQ(value.ether_type, htons(0x88b5));
  EXPECT_EQ(value.vlan_tag, htons(0x0005)) << "only what the mask names";
  EXPECT_EQ(mask.vlan_tag, htons(0x0fff));
  EXPECT_EQ(value.layers, uint32_t{ethernet::kVlan}) << "a tag is needed";
}

TEST(FlowSpecs, ExtendedIpv4AsksForEachField) {
  ibv_flow_spec_ipv4_ext spec{};
  spec.val = {htonl(0x0a000001), htonl(0x0a000002), 17, 0x20, 9, 2};
  set_all(spec.mask);
  const auto request = FlowBuilder().ipv4_ext(spec).parse();
  ASSERT_TRUE(request);
  const FlowKey& value = request->rule.value;
  EXPECT_EQ(value.source_ip[3], 1);
  EXPECT_EQ(value.destination_ip[3], 2);
  EXPECT_EQ(value.protocol, 17);
  EXPECT_EQ(value.traffic_class, 0x20);
  EXPECT_EQ(value.hop_limit, 9);
  EXPECT_EQ(value.fragment, ethernet::kDontFragment);
  EXPECT_EQ(value.layers, uint32_t{ethernet::kIpv4});
}

TEST(FlowSpecs, Ipv6AsksForEachField) {
  ibv_flow_spec_ipv6 spec{};
  spec.val.src_ip[0] = 0xfd;
  spec.val.dst_ip[15] = 7;
  spec.val.flow_label = htonl(0x12345);
  spec.val.next_hdr = 6;
  spec.val.traffic_class = 3;
  spec.val.hop_limit = 4;
  set_all(spec.mask);
  spec.mask.flow_label = htonl(0xfffff);
  const auto request = FlowBuilder().ipv6(spec).parse();
  ASSERT_TRUE(request);
  const FlowKey& value = request->rule.value;
  EXPECT_EQ(value.source_ip[0], 0xfd);
  EXPECT_EQ(value.destination_ip[15], 7);
  EXPECT_EQ(value.flow_label, htonl(0x12345));
  EXPECT_EQ(value.protocol, 6);
  EXPECT_EQ(value.traffic_class, 3);
  EXPECT_EQ(value.hop_limit, 4);
}

TEST(FlowSpecs, PortsWithoutAnIpSpecAreOfEitherVersion) {
  ibv_flow_spec_tcp_udp spec{};
  spec.val = {htons(80), htons(81)};
  set_all(spec.mask);
  const auto request = FlowBuilder().tcp(spec).parse();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->rule.value.destination_port, htons(80));
  EXPECT_EQ(request->rule.value.source_port, htons(81));
  EXPECT_EQ(request->rule.mask.layers, uint32_t{ethernet::kTcp});
}

TEST(FlowSpecs, ActionsAreNoPartOfTheMatch) {
  ibv_flow_spec_action_tag tag{};
  tag.tag_id = 0xabcdef;
  ibv_counters counters{};
  ibv_flow_spec_counter_action count{};
  count.counters = &counters;
  const auto request = FlowBuilder()
                           .eth()
                           .add(tag, IBV_FLOW_SPEC_ACTION_TAG)
                           .add(ibv_flow_spec_action_drop{}, IBV_FLOW_SPEC_ACTION_DROP)
                           .add(count, IBV_FLOW_SPEC_ACTION_COUNT)
                           .parse();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->tag, 0xabcdefu);
  EXPECT_TRUE(request->drops);
  EXPECT_EQ(request->counters, &counters);
  EXPECT_EQ(request->rule.mask, FlowKey{});
}

TEST(FlowSpecs, OrderDoesNotMatter) {
  EXPECT_EQ(FlowBuilder().udp().ipv4().eth().parse()->rule.mask,
            FlowBuilder().eth().ipv4().udp().parse()->rule.mask);
}

TEST(FlowSpecs, TypesOfRules) {
  const std::pair<ibv_flow_attr_type, RuleKind> kTypes[] = {
      {IBV_FLOW_ATTR_NORMAL, RuleKind::kMatch},
      {IBV_FLOW_ATTR_ALL_DEFAULT, RuleKind::kAllDefault},
      {IBV_FLOW_ATTR_MC_DEFAULT, RuleKind::kMulticastDefault}};
  for (const auto& [type, kind] : kTypes) {
    FlowBuilder flow;
    flow.attr().type = type;
    flow.attr().priority = 3;
    const auto request = flow.parse();
    ASSERT_TRUE(request);
    EXPECT_EQ(request->rule.kind, kind);
    EXPECT_EQ(request->rule.priority, 3);
    EXPECT_FALSE(request->sniffs);
  }
  FlowBuilder sniffer;
  sniffer.attr().type = IBV_FLOW_ATTR_SNIFFER;
  EXPECT_TRUE(sniffer.parse()->sniffs);
}

TEST(FlowSpecs, SizeOfTheAttributeIsNotLookedAt) {
  FlowBuilder flow;  // nor is it in rdma-core
  flow.eth().attr().size = 0;
  EXPECT_EQ(flow.error(), 0);
}

TEST(FlowSpecs, SpecsNeedNoAlignment) {
  ibv_flow_spec_tcp_udp ports{};
  set_all(ports.mask.dst_port);
  ports.val.dst_port = htons(9);
  const auto request =
      FlowBuilder().add(ibv_flow_spec_eth{}, IBV_FLOW_SPEC_ETH, 38).add(ports, IBV_FLOW_SPEC_UDP).parse();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->rule.value.destination_port, htons(9));
}

TEST(FlowSpecs, SpecThatHasGrownIsUnderstoodIfItAsksForNothingNew) {
  // Value and mask each have eight more bytes, so the mask begins eight bytes later.
  struct Grown {
    uint32_t type;
    uint16_t size;
    uint16_t pad;
    ibv_flow_ipv4_ext_filter val;
    uint8_t new_val[8];
    ibv_flow_ipv4_ext_filter mask;
    uint8_t new_mask[8];
  };
  Grown grown{};
  grown.val.proto = 17;
  grown.mask.proto = 0xff;
  grown.new_val[3] = 1;
  const auto parse = [](const Grown& spec) {
    std::vector<std::byte> bytes(sizeof(ibv_flow_attr) + sizeof spec);
    auto& attr = *reinterpret_cast<ibv_flow_attr*>(bytes.data());
    attr.num_of_specs = 1;
    Grown copy = spec;
    copy.type = IBV_FLOW_SPEC_IPV4_EXT;
    copy.size = sizeof copy;
    std::memcpy(bytes.data() + sizeof attr, &copy, sizeof copy);
    return parse_flow(attr);
  };
  const auto request = parse(grown);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->rule.value.protocol, 17);
  EXPECT_EQ(request->rule.mask.protocol, 0xff);
  grown.new_mask[7] = 1;
  EXPECT_EQ(parse(grown).error().code, EOPNOTSUPP);
}

struct Refusal {
  const char* name;
  int error;
  std::function<void(FlowBuilder&)> build;
};

class FlowRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(FlowRefusal, Is) {
  FlowBuilder flow;
  GetParam().build(flow);
  EXPECT_EQ(flow.error(), GetParam().error);
}

ibv_flow_spec_eth of_type(uint16_t type) {
  ibv_flow_spec_eth spec{};
  spec.val.ether_type = htons(type);
  set_all(spec.mask.ether_type);
  return spec;
}

INSTANTIATE_TEST_SUITE_P(
    All, FlowRefusal,
    ::testing::Values(
        Refusal{"UnknownCompMask", EINVAL, [](FlowBuilder& f) { f.attr().comp_mask = 1; }},
        Refusal{"UnknownType", EINVAL, [](FlowBuilder& f) { set_all(f.attr().type); }},
        Refusal{"UnknownFlag", EINVAL, [](FlowBuilder& f) { f.attr().flags = 1 << 5; }},
        Refusal{"Egress", EOPNOTSUPP, [](FlowBuilder& f) { f.attr().flags = IBV_FLOW_ATTR_FLAGS_EGRESS; }},
        Refusal{"PortTwo", EINVAL, [](FlowBuilder& f) { f.attr().port = 2; }},
        Refusal{"TooManySpecs", EINVAL, [](FlowBuilder& f) { f.attr().num_of_specs = 11; }},
        Refusal{"DefaultThatDoesNotTrap", EINVAL,
                [](FlowBuilder& f) {
                  f.attr().type = IBV_FLOW_ATTR_ALL_DEFAULT;
                  f.attr().flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
                }},
        Refusal{"DefaultThatMatches", EINVAL,
                [](FlowBuilder& f) { f.eth().attr().type = IBV_FLOW_ATTR_MC_DEFAULT; }},
        Refusal{"SnifferThatMatches", EINVAL,
                [](FlowBuilder& f) { f.eth().attr().type = IBV_FLOW_ATTR_SNIFFER; }},
        Refusal{"UnknownSpec", EINVAL, [](FlowBuilder& f) { f.add(ibv_flow_spec_eth{}, 0x21); }},
        Refusal{"SpecWithoutSize", EINVAL,
                [](FlowBuilder& f) { f.add(ibv_flow_spec_eth{}, IBV_FLOW_SPEC_ETH, 0); }},
        Refusal{"EthernetTooShort", EINVAL,
                [](FlowBuilder& f) { f.add(ibv_flow_spec_eth{}, IBV_FLOW_SPEC_ETH, 37); }},
        Refusal{"Ipv4TooShort", EINVAL,
                [](FlowBuilder& f) { f.add(ibv_flow_spec_ipv4{}, IBV_FLOW_SPEC_IPV4, 23); }},
        Refusal{"ExtendedIpv4TooShort", EINVAL,
                [](FlowBuilder& f) { f.add(ibv_flow_spec_ipv4_ext{}, IBV_FLOW_SPEC_IPV4_EXT, 24); }},
        Refusal{"Ipv6TooShort", EINVAL,
                [](FlowBuilder& f) { f.add(ibv_flow_spec_ipv6{}, IBV_FLOW_SPEC_IPV6, 80); }},
        Refusal{"UdpTooShort", EINVAL,
                [](FlowBuilder& f) { f.add(ibv_flow_spec_tcp_udp{}, IBV_FLOW_SPEC_UDP, 13); }},
        Refusal{"FlowLabelTooWide", EINVAL,
                [](FlowBuilder& f) {
                  ibv_flow_spec_ipv6 spec{};
                  spec.mask.flow_label = htonl(0x100000);
                  f.ipv6(spec);
                }},
        Refusal{"SameLayerTwice", EINVAL, [](FlowBuilder& f) { f.eth().eth(); }},
        Refusal{"BothIpVersions", EINVAL, [](FlowBuilder& f) { f.ipv4().ipv6(); }},
        Refusal{"BothTransports", EINVAL, [](FlowBuilder& f) { f.tcp().udp(); }},
        Refusal{"EtherTypeIsNotIpv4s", EINVAL, [](FlowBuilder& f) { f.eth(of_type(0x86dd)).ipv4(); }},
        Refusal{"EtherTypeIsNotIpv6s", EINVAL, [](FlowBuilder& f) { f.eth(of_type(0x0800)).ipv6(); }},
        Refusal{"Inner", EOPNOTSUPP,
                [](FlowBuilder& f) { f.add(ibv_flow_spec_eth{}, IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER); }},
        Refusal{"InnerAction", EINVAL,
                [](FlowBuilder& f) {
                  f.add(ibv_flow_spec_action_drop{}, IBV_FLOW_SPEC_ACTION_DROP | IBV_FLOW_SPEC_INNER);
                }},
        Refusal{"Esp", EOPNOTSUPP, [](FlowBuilder& f) { f.add(ibv_flow_spec_esp{}, IBV_FLOW_SPEC_ESP); }},
        Refusal{"Vxlan", EOPNOTSUPP,
                [](FlowBuilder& f) { f.add(ibv_flow_spec_tunnel{}, IBV_FLOW_SPEC_VXLAN_TUNNEL); }},
        Refusal{"Gre", EOPNOTSUPP, [](FlowBuilder& f) { f.add(ibv_flow_spec_gre{}, IBV_FLOW_SPEC_GRE); }},
        Refusal{"Mpls", EOPNOTSUPP, [](FlowBuilder& f) { f.add(ibv_flow_spec_mpls{}, IBV_FLOW_SPEC_MPLS); }},
        Refusal{"ActionHandle", EOPNOTSUPP,
                [](FlowBuilder& f) { f.add(ibv_flow_spec_action_handle{}, IBV_FLOW_SPEC_ACTION_HANDLE); }},
        Refusal{"CountWithoutCounters", EINVAL,
                [](FlowBuilder& f) { f.add(ibv_flow_spec_counter_action{}, IBV_FLOW_SPEC_ACTION_COUNT); }}),
    [](const auto& refusal) { return refusal.param.name; });

}  // namespace
}  // namespace verbena::adapter

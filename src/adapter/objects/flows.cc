// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/flows.h"

#include <algorithm>
#include <cstddef>

#include "adapter/objects/limits.h"
#include "adapter/objects/queue_pairs.h"
#include "adapter/objects/software_context.h"
#include "adapter/transport/raw.h"
#include "base/bytes.h"
#include "base/failed_call.h"

namespace verbena::adapter {

namespace {

using ethernet::FlowKey;
using ethernet::Layer;
using ethernet::SteeringRule;

constexpr uint8_t kMaxSpecs = 10;  // IB_FLOW_SPEC_SUPPORT_LAYERS
constexpr uint32_t kKnownFlags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS;
constexpr uint32_t kFlowLabelBits = 20;
constexpr size_t kHeader = sizeof(ibv_flow_spec{}.hdr);
constexpr size_t kLeastSpec = offsetof(decltype(ibv_flow_spec{}.hdr), size) + sizeof(uint16_t);

// Reads one spec of the list and adds it to the request.
class SpecReader {
 public:
  // `at`: a spec of `size` bytes, with any alignment.
  SpecReader(const std::byte* at, uint16_t size, FlowRequest& request) : at_(at), request_(request) {
    std::memcpy(static_cast<void*>(&spec_), at, std::min<size_t>(size, sizeof spec_));
  }

  int ethernet() {
    if (!holds(offsetof(ibv_flow_spec_eth, mask) + sizeof(ibv_flow_eth_filter))) return too_short();
    fill(spec_.eth.val, spec_.eth.mask, [](FlowKey& key, const ibv_flow_eth_filter& filter) {
      std::memcpy(key.destination.data(), filter.dst_mac, 6);
      std::memcpy(key.source.data(), filter.src_mac, 6);
      key.ether_type = filter.ether_type;
      key.vlan_tag = filter.vlan_tag;
    });
    // A tag can be compared only in frames that have one.
    if (spec_.eth.mask.vlan_tag != 0) need(ethernet::kVlan);
    return 0;
  }

  int ipv4() {
    if (!holds(offsetof(ibv_flow_spec_ipv4, mask) + sizeof(ibv_flow_ipv4_filter))) return too_short();
    fill(spec_.ipv4.val, spec_.ipv4.mask, [](FlowKey& key, const ibv_flow_ipv4_filter& filter) {
      std::memcpy(key.source_ip.data(), &filter.src_ip, 4);
      std::memcpy(key.destination_ip.data(), &filter.dst_ip, 4);
    });
    return need(ethernet::kIpv4);
  }

  int ipv4_extended() {
    ibv_flow_ipv4_ext_filter value, mask;
    if (const int error = read_growing(value, mask); error != 0) return error;
    fill(value, mask, [](FlowKey& key, const ibv_flow_ipv4_ext_filter& filter) {
      std::memcpy(key.source_ip.data(), &filter.src_ip, 4);
      std::memcpy(key.destination_ip.data(), &filter.dst_ip, 4);
      key.protocol = filter.proto;
      key.traffic_class = filter.tos;
      key.hop_limit = filter.ttl;
      key.fragment = filter.flags;
    });
    return need(ethernet::kIpv4);
  }

  int ipv6() {
    ibv_flow_ipv6_filter value, mask;
    if (const int error = read_growing(value, mask); error != 0) return error;
    if (byteswap(mask.flow_label) >> kFlowLabelBits != 0)
      return because(EINVAL, "the mask of the flow label has more than {} bits", kFlowLabelBits);
    fill(value, mask, [](FlowKey& key, const ibv_flow_ipv6_filter& filter) {
      std::memcpy(key.source_ip.data(), filter.src_ip, 16);
      std::memcpy(key.destination_ip.data(), filter.dst_ip, 16);
      key.flow_label = filter.flow_label;
      key.protocol = filter.next_hdr;
      key.traffic_class = filter.traffic_class;
      key.hop_limit = filter.hop_limit;
    });
    return need(ethernet::kIpv6);
  }

  int tcp() { return transport(ethernet::kTcp); }
  int udp() { return transport(ethernet::kUdp); }

  int tag() {
    if (!holds(offsetof(ibv_flow_spec_action_tag, tag_id) + sizeof(uint32_t))) return too_short();
    request_.tag = spec_.flow_tag.tag_id;
    return 0;
  }
  int drop() {
    request_.drops = true;
    return 0;
  }
  int count() {
    if (!holds(sizeof(ibv_flow_spec_counter_action))) return too_short();
    if (spec_.flow_count.counters == nullptr)
      return because(EINVAL, "the counters of a flow's spec are null");
    request_.counters = spec_.flow_count.counters;
    return 0;
  }
  int unsupported() { return EOPNOTSUPP; }

 private:
  SteeringRule& rule() { return request_.rule; }
  bool holds(size_t bytes) const { return spec_.hdr.size >= bytes; }
  int too_short() const {
    return because(EINVAL, "the spec of type {:#x} has {} bytes, too few for its filter",
                   static_cast<unsigned>(spec_.hdr.type), spec_.hdr.size);
  }
  // Compares the fields that copy(key, filter) sets.
  template <class Filter, class Copy>
  void fill(const Filter& value, const Filter& mask, Copy copy) {
    copy(rule().value, value);
    copy(rule().mask, mask);
  }
  int need(Layer layer) {
    rule().value.layers |= layer;
    rule().mask.layers |= layer;
    return 0;
  }

  int transport(Layer layer) {
    if (!holds(offsetof(ibv_flow_spec_tcp_udp, mask) + sizeof(ibv_flow_tcp_udp_filter))) return too_short();
    fill(spec_.tcp_udp.val, spec_.tcp_udp.mask, [](FlowKey& key, const ibv_flow_tcp_udp_filter& filter) {
      key.source_port = filter.src_port;
      key.destination_port = filter.dst_port;
    });
    return need(layer);
  }

  // Reads value and mask of a spec whose filter may grow in later versions: each is half of the bytes behind
  // the header. The part of the mask that is unknown here must be zero.
  template <class Filter>
  int read_growing(Filter& value, Filter& mask) {
    if (spec_.hdr.size < kHeader) return too_short();
    const size_t bytes = (spec_.hdr.size - kHeader) / 2;
    if (bytes < sizeof(Filter)) return too_short();
    const std::byte* at = at_ + kHeader;
    std::memcpy(&value, at, sizeof value);
    std::memcpy(&mask, at + bytes, sizeof mask);
    const auto* rest = at + bytes + sizeof mask;
    const bool known = std::all_of(rest, at + 2 * bytes, [](std::byte b) { return b == std::byte{0}; });
    return known ? 0 : EOPNOTSUPP;
  }

  const std::byte* const at_;
  ibv_flow_spec spec_{};
  FlowRequest& request_;
};

// The types of specs, with the network layer that each describes. A rule has at most one spec per layer.
struct SpecKind {
  uint32_t type;
  uint8_t layer;  // 0: an action
  int (SpecReader::*read)();
};
constexpr SpecKind kKinds[] = {
    {IBV_FLOW_SPEC_ETH, 2, &SpecReader::ethernet},
    {IBV_FLOW_SPEC_IPV4, 3, &SpecReader::ipv4},
    {IBV_FLOW_SPEC_IPV4_EXT, 3, &SpecReader::ipv4_extended},
    {IBV_FLOW_SPEC_IPV6, 3, &SpecReader::ipv6},
    {IBV_FLOW_SPEC_TCP, 4, &SpecReader::tcp},
    {IBV_FLOW_SPEC_UDP, 4, &SpecReader::udp},
    {IBV_FLOW_SPEC_ESP, 4, &SpecReader::unsupported},
    {IBV_FLOW_SPEC_VXLAN_TUNNEL, 5, &SpecReader::unsupported},
    {IBV_FLOW_SPEC_GRE, 5, &SpecReader::unsupported},
    {IBV_FLOW_SPEC_MPLS, 5, &SpecReader::unsupported},
    {IBV_FLOW_SPEC_ACTION_TAG, 0, &SpecReader::tag},
    {IBV_FLOW_SPEC_ACTION_DROP, 0, &SpecReader::drop},
    {IBV_FLOW_SPEC_ACTION_COUNT, 0, &SpecReader::count},
    {IBV_FLOW_SPEC_ACTION_HANDLE, 0, &SpecReader::unsupported},
};

const SpecKind* kind_of(uint32_t type) {
  const auto* found = std::ranges::find(kKinds, type, &SpecKind::type);
  return found != std::end(kKinds) ? found : nullptr;
}

// Whether the ether type and an IP spec contradict each other, so that no frame can match. mlx5 refuses that,
// too.
bool contradicts_itself(const SteeringRule& rule) {
  if (rule.mask.ether_type != 0xffff) return false;
  const uint16_t type = byteswap(rule.value.ether_type);
  return (rule.value.has(ethernet::kIpv4) && type != ethernet::kTypeIpv4) ||
         (rule.value.has(ethernet::kIpv6) && type != ethernet::kTypeIpv6);
}

int read_specs(const ibv_flow_attr& attr, FlowRequest& request) {
  const auto* at = reinterpret_cast<const std::byte*>(&attr + 1);
  uint32_t layers_seen = 0;
  for (uint8_t i = 0; i < attr.num_of_specs; ++i) {
    uint32_t type;
    uint16_t size;
    std::memcpy(&type, at, sizeof type);
    std::memcpy(&size, at + sizeof type, sizeof size);
    const SpecKind* kind = kind_of(type & ~uint32_t{IBV_FLOW_SPEC_INNER});
    if (kind == nullptr) return because(EINVAL, "spec {}: there is no type {:#x}", i, type);
    if (size < kLeastSpec) return because(EINVAL, "spec {} has size {}, too little", i, size);
    if ((type & IBV_FLOW_SPEC_INNER) != 0)
      return because(kind->layer != 0 ? EOPNOTSUPP : EINVAL, "spec {} is an inner one", i);
    if (kind->layer != 0 && (layers_seen >> kind->layer & 1) != 0)
      return because(EINVAL, "spec {} is the second for its layer", i);
    if (kind->layer != 0) layers_seen |= 1u << kind->layer;
    SpecReader reader(at, size, request);
    if (const int error = (reader.*kind->read)(); error != 0) return error;
    at += size;
  }
  // Flows of other types take every frame, or every multicast frame.
  if (layers_seen != 0 && number_in(attr.type) != IBV_FLOW_ATTR_NORMAL)
    return because(EINVAL, "a flow of type {} takes no specs", number_in(attr.type));
  return contradicts_itself(request.rule)
             ? because(EINVAL, "the specs contradict each other: no frame fits all of them")
             : 0;
}

}  // namespace

Result<FlowRequest> parse_flow(const ibv_flow_attr& attr) {
  if (attr.comp_mask != 0) return fail(because(EINVAL, "comp_mask {:#x} is not 0", attr.comp_mask));
  if ((attr.flags & ~kKnownFlags) != 0)
    return fail(because(EINVAL, "flags {:#x} have bits that are unknown here", attr.flags));
  if (attr.num_of_specs > kMaxSpecs)
    return fail(because(EINVAL, "num_of_specs {} exceeds {}", attr.num_of_specs, kMaxSpecs));
  if (attr.port > kPorts) return fail(because(EINVAL, "port {} exceeds phys_port_cnt {}", attr.port, kPorts));
  if ((attr.flags & IBV_FLOW_ATTR_FLAGS_EGRESS) != 0) return fail(EOPNOTSUPP);
  const bool traps = (attr.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP) == 0;
  if (!traps && number_in(attr.type) != IBV_FLOW_ATTR_NORMAL)
    return fail(because(EINVAL, "IBV_FLOW_ATTR_FLAGS_DONT_TRAP is for flows of IBV_FLOW_ATTR_NORMAL"));

  FlowRequest request;
  request.rule.priority = attr.priority;
  request.rule.traps = traps;
  switch (number_in(attr.type)) {
    case IBV_FLOW_ATTR_NORMAL:
      break;
    case IBV_FLOW_ATTR_ALL_DEFAULT:
      request.rule.kind = ethernet::RuleKind::kAllDefault;
      break;
    case IBV_FLOW_ATTR_MC_DEFAULT:
      request.rule.kind = ethernet::RuleKind::kMulticastDefault;
      break;
    case IBV_FLOW_ATTR_SNIFFER:
      request.sniffs = true;
      break;
    default:
      return fail(because(EINVAL, "there is no flow of type {}", number_in(attr.type)));
  }
  if (const int error = read_specs(attr, request); error != 0) return fail(error);
  request.rule.value = request.rule.value & request.rule.mask;
  return request;
}

Result<ibv_counters*> SoftwareContext::create_counters(const ibv_counters_init_attr* attr) {
  if (device_->is_gone()) return fail(EIO);
  if (attr->comp_mask != 0) return fail(EOPNOTSUPP);
  auto counters = std::make_unique<Counters>(*device_);
  return counters_.add(std::move(counters));
}

int SoftwareContext::destroy_counters(ibv_counters* abi_counters) {
  Counters& counters = Counters::of(abi_counters);
  if (counters.users.load() != 0) return because(EBUSY, "{} flows use it", uint32_t{counters.users.load()});
  counters_.destroy(counters);
  return 0;
}

// Counters are attached before the flow that names them is created (IBV_FLOW_SPEC_ACTION_COUNT). As with
// mlx5, they cannot be attached to an existing flow.
int SoftwareContext::attach_counters(ibv_counters* abi_counters, const ibv_counter_attach_attr* attr,
                                     ibv_flow* flow) {
  if (flow != nullptr || attr->comp_mask != 0) return EOPNOTSUPP;
  if (number_in(attr->counter_desc) > IBV_COUNTER_BYTES) return EOPNOTSUPP;
  Counters& counters = Counters::of(abi_counters);
  const std::lock_guard attaching(counters.attaching);
  if (counters.users.load() != 0)
    return because(EBUSY, "{} flows use it already", uint32_t{counters.users.load()});
  counters.points.push_back({attr->counter_desc, attr->index});
  return 0;
}

int SoftwareContext::read_counters(ibv_counters* abi_counters, uint64_t* values, uint32_t count,
                                   uint32_t flags) {
  if ((flags & ~uint32_t{IBV_READ_COUNTERS_ATTR_PREFER_CACHED}) != 0)
    return because(EINVAL, "flags {:#x} have bits that are unknown here", flags);
  Counters& counters = Counters::of(abi_counters);
  const std::lock_guard attaching(counters.attaching);
  for (const Counters::Point& point : counters.points) {
    if (point.index >= count)
      return because(EINVAL, "ncounters {} is too small for the attached index {}", count, point.index);
  }
  for (uint32_t i = 0; i < count; ++i) values[i] = 0;
  for (const Counters::Point& point : counters.points) {
    const auto& total = point.what == IBV_COUNTER_PACKETS ? counters.totals.packets : counters.totals.bytes;
    values[point.index] += total.load(std::memory_order_relaxed);
  }
  return 0;
}

Result<ibv_flow*> SoftwareContext::create_flow(ibv_qp* abi_qp, const ibv_flow_attr* attr) {
  if (device_->is_gone()) return fail(EIO);
  Qp& qp = Qp::of(abi_qp);
  if (qp.init.qp_type == IBV_QPT_UD) return fail(EOPNOTSUPP);  // some adapters steer to UD QPs, too
  if (qp.raw == nullptr) return fail(because(EINVAL, "flows are for queue pairs of IBV_QPT_RAW_PACKET"));
  auto request = parse_flow(*attr);
  if (!request) return tl::unexpected(request.error());
  if (request->counters != nullptr && !device_->made(request->counters))
    return fail(because(EINVAL, "the counters are none of this ibv_context"));

  auto flow = std::make_unique<Flow>(*device_);
  flow->handle = device_->next_handle();
  flow->qp = &qp;
  engine::FlowTarget& target = flow->target;
  static_cast<ethernet::SteeringRule&>(target) = request->rule;
  target.receiver = request->drops ? nullptr : static_cast<transport::RawQueuePair*>(qp.transport);
  target.tag = request->tag;
  target.sniffs = request->sniffs;
  if (request->counters != nullptr) {
    flow->counters = &Counters::of(request->counters);
    const std::lock_guard attaching(flow->counters->attaching);
    // Without a point, nobody could read the counts.
    if (flow->counters->points.empty())
      return fail(because(EINVAL, "the counters have no counter attached (ibv_attach_counters_point_flow)"));
    ++flow->counters->users;
    target.totals = &flow->counters->totals;
  }
  if (auto added = qp.shard.exclusively([&] { return qp.raw->link->add(target); }); !added) {
    if (flow->counters != nullptr) --flow->counters->users;
    return tl::unexpected(added.error());
  }
  ++qp.raw->flows;
  return flows_.add(std::move(flow));
}

void Flow::retire() {
  qp->shard.exclusively([&] { qp->raw->link->remove(target); });
  if (counters != nullptr) --counters->users;
  --qp->raw->flows;
}

int SoftwareContext::destroy_flow(ibv_flow* abi_flow) {
  Flow& flow = Flow::of(abi_flow);
  flow.retire();
  flows_.destroy(flow);
  return 0;
}

}  // namespace verbena::adapter

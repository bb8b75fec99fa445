// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"

namespace verbena::ethernet {

inline constexpr uint32_t kHeaderBytes = 14;
inline constexpr uint32_t kVlanTagBytes = 4;
inline constexpr uint32_t kMaxVlanTags = 2;
// The minimum length of a frame on a wire, without the frame check sequence (IEEE 802.3, 4.2.3.3).
inline constexpr uint32_t kLeastFrameBytes = 60;

inline constexpr uint16_t kTypeIpv4 = 0x0800;
inline constexpr uint16_t kTypeIpv6 = 0x86dd;
inline constexpr uint16_t kTypeVlan = 0x8100;         // IEEE 802.1Q, customer tag
inline constexpr uint16_t kTypeServiceVlan = 0x88a8;  // IEEE 802.1ad

inline constexpr uint32_t kIpv4HeaderBytes = 20;
inline constexpr uint32_t kIpv6HeaderBytes = 40;
inline constexpr uint32_t kPortBytes = 4;
inline constexpr uint32_t kUdpHeaderBytes = 8;
inline constexpr uint32_t kTcpHeaderBytes = 20;  // without options
inline constexpr uint8_t kProtocolTcp = 6;
inline constexpr uint8_t kProtocolUdp = 17;

// The headers that a frame has, or that a flow rule matches.
enum Layer : uint32_t { kVlan = 1, kIpv4 = 2, kIpv6 = 4, kTcp = 8, kUdp = 16 };

// IPv4's fragmentation flags in the encoding of flow rules (the kernel's enum ib_ipv4_flags).
enum FragmentFlag : uint8_t { kDontFragment = 2, kMoreFragments = 4 };

// All header fields of a frame that a flow rule may match, in network byte order; absent fields are zero. A
// flow rule consists of a value and a mask of this type. The rule matches a frame if the frame's key & mask
// equals the value.
struct FlowKey {
  std::array<uint8_t, 6> destination{};
  std::array<uint8_t, 6> source{};
  uint16_t vlan_tag = 0;                // tag control information of the outermost VLAN tag
  uint16_t ether_type = 0;              // the EtherType that follows the last VLAN tag
  std::array<uint8_t, 16> source_ip{};  // an IPv4 address is the first four bytes
  std::array<uint8_t, 16> destination_ip{};
  uint32_t flow_label = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  uint8_t protocol = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint8_t fragment = 0;  // FragmentFlag bits; IPv4 only
  uint32_t layers = 0;   // Layer

  bool is_multicast() const { return (destination[0] & 1) != 0; }
  bool has(Layer layer) const { return (layers & layer) != 0; }

  friend bool operator==(const FlowKey&, const FlowKey&) = default;
};
static_assert(sizeof(FlowKey) == 64 && std::has_unique_object_representations_v<FlowKey>);

FlowKey operator&(const FlowKey& a, const FlowKey& b);
// Returns the number of bits set in a mask. A rule with more bits is more specific.
uint32_t weight(const FlowKey& mask);

// Hashes keys for hash tables.
struct FlowKeyHash {
  size_t operator()(const FlowKey& key) const;
};

// The headers of an untrusted frame: an incomplete or inconsistent header counts as absent.
struct FrameHeaders {
  FlowKey key;
  uint32_t network_offset = 0;    // of the header after Ethernet and VLAN tags, in bytes from the start
  uint32_t transport_offset = 0;  // of the header after the IP header; 0 if there is no IP header
};

// Finds the headers of a frame. Returns nullopt if the frame is shorter than an Ethernet header.
std::optional<FrameHeaders> parse_headers(ConstBytes frame);

// The frames that a rule is for (enum ibv_flow_attr_type). kMatch: frames that match value and mask.
// kAllDefault and kMulticastDefault: all frames, or all multicast frames, that no kMatch rule with `traps`
// has matched.
enum class RuleKind : uint8_t { kMatch, kAllDefault, kMulticastDefault };

// A rule of a steering table; callers derive their rule objects from it. REQUIRES: the rule does not change
// while it is in a table
struct SteeringRule {
  RuleKind kind = RuleKind::kMatch;
  uint16_t priority = 0;  // of a kMatch rule: the rules with the lowest number are tried first
  bool traps = true;      // frames that this rule matched are not offered to later rules
  FlowKey value;
  FlowKey mask;
};

// Finds the flow steering rules that get a frame, among the rules of one device. kMatch rules are tried in
// order of priority. Within one priority, rules whose mask has more bits come first. Every rule that matches
// gets the frame, until one with `traps` matches. That rule and the rules of equal priority, mask and value
// are the last to get the frame. A frame that matched no rule with `traps` also goes to all kAllDefault rules
// and, if it is a multicast frame, to all kMulticastDefault rules.
//
// Rules with the same mask share a hash table: a frame costs one look-up per mask, not one per rule. Not
// thread-safe.
class SteeringTable {
 public:
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }

  // Adds a rule. REQUIRES: the rule outlives the table or is removed before
  void add(SteeringRule& rule);
  void remove(SteeringRule& rule);

  // Calls visit(rule) for each rule that gets a frame with this key.
  template <class Visit>
  void steer(const FlowKey& key, Visit visit) const {
    for (const Group& group : groups_) {
      const auto found = group.rules.find(key & group.mask);
      if (found == group.rules.end()) continue;
      bool trapped = false;
      for (SteeringRule* rule : found->second) {
        visit(*rule);
        trapped |= rule->traps;
      }
      if (trapped) return;
    }
    for (SteeringRule* rule : defaults_) {
      if (rule->kind == RuleKind::kAllDefault || key.is_multicast()) visit(*rule);
    }
  }

  // Calls visit(rule) for each rule.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Group& group : groups_) {
      for (const auto& [value, rules] : group.rules) {
        for (const SteeringRule* rule : rules) visit(*rule);
      }
    }
    for (const SteeringRule* rule : defaults_) visit(*rule);
  }

 private:
  struct Group {
    uint16_t priority;
    uint32_t weight;
    FlowKey mask;
    std::unordered_map<FlowKey, std::vector<SteeringRule*>, FlowKeyHash> rules;
  };

  std::vector<Group> groups_;  // in matching order
  std::vector<SteeringRule*> defaults_;
  size_t count_ = 0;
};

inline constexpr size_t kHashKeyBytes = 40;

// Returns the Toeplitz hash, as in receive side scaling (RSS), of up to the first 36 bytes of `input`.
uint32_t toeplitz(const std::array<uint8_t, kHashKeyBytes>& key, ConstBytes input);

// The header fields to hash, in this order: source address, destination address, source and destination port.
enum HashField : uint8_t {
  kHashSourceIpv4 = 1,
  kHashDestinationIpv4 = 2,
  kHashSourceIpv6 = 4,
  kHashDestinationIpv6 = 8,
  kHashSourceTcp = 16,
  kHashDestinationTcp = 32,
  kHashSourceUdp = 64,
  kHashDestinationUdp = 128,
};

// Returns the hash over the `fields` (HashField bits) that the frame has; 0 if the frame has none of them.
uint32_t receive_hash(const std::array<uint8_t, kHashKeyBytes>& key, uint8_t fields, const FlowKey& frame);

}  // namespace verbena::ethernet

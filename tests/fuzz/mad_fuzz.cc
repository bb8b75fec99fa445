// SPDX-License-Identifier: Apache-2.0
// A host of the network, or a program, that sends arbitrary announcements and arbitrary management datagrams
// that the fabric answers. The fabric stays within its limits, LIDs are unique, answers have valid lengths,
// and a host that has announced itself is not displaced.
#include <algorithm>
#include <chrono>
#include <set>

#include "fuzz/choices.h"
#include "fuzz/require.h"
#include "management/mad/agent_messages.h"
#include "management/mad/performance.h"
#include "management/mad/subnet.h"
#include "management/mad/subnet_management.h"

namespace verbena::mad {
namespace {

constexpr uint64_t kOwnGuid = 1;
constexpr uint64_t kNeighbourGuid = 2;

Adapter adapter(uint64_t guid) {
  Adapter one;
  one.guid = guid;
  one.description = "host";
  return one;
}

roce::Address any_address(fuzz::Choices& choices) {
  if (choices.yes()) return default_gid(choices.byte());
  const uint8_t ipv4[4] = {10, 0, 0, choices.byte()};
  return choices.yes() ? roce::Address::from_ipv4(ipv4) : choices.number<roce::Address>();
}

// Returns a MAD whose header is valid in most cases.
Mad any_mad(fuzz::Choices& choices) {
  constexpr uint8_t kClasses[] = {kClassSubnLid, kClassSubnDirected, kClassSubnAdministration,
                                  kClassPerformance, kAnnouncementClass};
  Mad mad;
  mad.set_u8(kBaseVersionAt, roce::kMadBaseVersion);
  mad.set_u8(kClassAt, kClasses[choices.below(std::size(kClasses))]);
  mad.set_u8(kClassVersionAt, mad.u8(kClassAt) == kClassSubnAdministration ? 2 : 1);
  constexpr uint8_t kMethods[] = {kMethodGet, kMethodGetTable, kMethodSet, kMethodSend, 0x81};
  mad.set_u8(kMethodAt, kMethods[choices.below(std::size(kMethods))]);
  mad.set(kAttributeAt, static_cast<uint16_t>(choices.below(0x40)));
  mad.set(kModifierAt, choices.number<uint32_t>());
  while (!choices.empty() && choices.yes()) {
    const size_t at = choices.byte();
    mad.set_u8(at, choices.byte());
  }
  return mad;
}

void check(const Subnet& subnet) {
  VERBENA_REQUIRE(subnet.members().size() <= Subnet::kMaxMembers);
  VERBENA_REQUIRE(subnet.own().adapter.guid == kOwnGuid);
  std::set<uint16_t> lids{Subnet::kSwitchLid};
  std::set<uint64_t> guids;
  for (const auto& [port, member] : subnet.members()) {
    VERBENA_REQUIRE(port != 0 && member.switch_port == port);
    VERBENA_REQUIRE(member.lid != 0 && member.lid <= Subnet::kLastLid && lids.insert(member.lid).second);
    VERBENA_REQUIRE(guids.insert(member.adapter.guid).second);
    VERBENA_REQUIRE(member.adapter.description.size() <= kMaxDescriptionBytes);
  }
}

void ask(Subnet& subnet, Performance& performance, const Mad& mad, uint16_t lid) {
  const uint8_t management_class = mad.u8(kClassAt);
  if (management_class == kClassSubnLid || management_class == kClassSubnDirected) {
    const auto answer = answer_subnet_management(subnet, mad, lid);
    VERBENA_REQUIRE(!answer || header_of(*answer).is_response());
  } else if (management_class == kClassSubnAdministration) {
    wanted_destination(mad);
    const auto answer = answer_administration(subnet, mad);
    VERBENA_REQUIRE(!answer || answer->size() >= kAdministrationDataAt);
    VERBENA_REQUIRE(!answer || answer->size() <= kAdministrationDataAt + kMaxTableBytes);
  } else if (management_class == kClassPerformance) {
    PortCounters counters;
    counters.sent_packets = mad.get<uint64_t>(kMadBytes - 8);
    VERBENA_REQUIRE(header_of(performance.answer(mad, 1, counters, lid % 2 == 0)).is_response());
  }
}

void run(fuzz::Choices choices) {
  Subnet subnet(adapter(kOwnGuid));
  Performance performance;
  TimePoint now{std::chrono::hours(1)};
  subnet.hear(adapter(kNeighbourGuid), any_address(choices), now);
  while (!choices.empty()) {
    const uint32_t action = choices.below(8);
    if (action == 0) subnet.meet(any_address(choices), now);
    if (action == 1) subnet.look_for(any_address(choices), now);
    if (action == 2) now += std::chrono::seconds(choices.byte());
    if (action == 3) {
      for (uint32_t i = choices.byte(); i > 0; --i) subnet.hear(adapter(1000 + i), any_address(choices), now);
    }
    const Mad mad = any_mad(choices);
    if (const auto said = decode_announcement(mad)) {
      VERBENA_REQUIRE(decode_announcement(encode(*said)) == said);
      subnet.hear(said->adapter, any_address(choices), now);
    }
    ask(subnet, performance, mad, choices.yes() ? subnet.own().lid : choices.number<uint16_t>());
    check(subnet);
    VERBENA_REQUIRE(subnet.by_guid(kNeighbourGuid) != nullptr);
  }
  subnet.forget_before(now + std::chrono::hours(1));
  VERBENA_REQUIRE(subnet.members().size() == 1);
}

}  // namespace
}  // namespace verbena::mad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  verbena::mad::run(verbena::fuzz::Choices(data, size));
  return 0;
}

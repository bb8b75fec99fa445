// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes that a program sends to the kernel's RDMA subsystem. Answers are whole messages that fit
// their readers' buffers, and nothing changes without a request.
#include <cstring>

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>

#include "fuzz/choices.h"
#include "fuzz/require.h"
#include "preload/netlink/message.h"
#include "preload/netlink/service.h"

namespace verbena {
namespace {

using control::AdminResult;
using control::AgentStatus;
using protocol::ObjectKind;

constexpr size_t kReadersRoom = 4096;

AgentStatus busy() {
  control::Link link{.name = "rxe0", .device_index = 3, .netdev = "eth0", .interface_index = 2, .mac = {}};
  control::SlotStatus slot;
  slot.index = 1;
  slot.pid = 149;
  slot.program = "holder";
  slot.lists_objects = true;
  for (uint32_t i = 0; i < 60; ++i) {
    control::QpNumbers qp{.qpn = 17 + i * 2, .type = 2, .state = 3, .remote_qpn = 18, .device_index = 3};
    qp.details = {65537, 65539, i % 2, 0, 1000, 2000, 0, 0};
    slot.qps.push_back(qp);
    slot.objects.push_back({ObjectKind::kMr, 70000 + i, 3, {65537, 1, 2, 8192, 0}});
  }
  slot.objects.push_back({ObjectKind::kSrq, 65539, 3, {65537, 0, 0, 0}});
  AgentStatus status{.version = "1", .no_wire_reason = "", .links = {{link, "up", {}}}, .slots = {slot}};
  protocol::CmIdRecord id{};
  id.pid = 1;
  id.number = 9;
  id.device_index = 3;
  id.source.family = AF_INET;
  id.destination.family = AF_INET6;
  status.cm_ids.push_back(id);
  return status;
}

struct Devices final : rdma_netlink::Devices {
  AdminResult<AgentStatus> status() override { return now; }
  AdminResult<void> add_link(std::string_view name, std::string_view netdev) override {
    VERBENA_REQUIRE(name.find('\0') == name.npos &&
                    netdev.find('\0') == netdev.npos);  // a name ends at its zero
    return {};
  }
  AdminResult<void> delete_link(std::string_view name) override {
    VERBENA_REQUIRE(name == "rxe0");  // only an existing link is deleted
    return {};
  }
  AdminResult<void> rename_link(std::string_view name, std::string_view) override {
    VERBENA_REQUIRE(name == "rxe0");  // only an existing link is renamed
    return {};
  }
  const AgentStatus now = busy();
};

void check_attributes(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    nlattr header;
    VERBENA_REQUIRE(bytes.size() >= sizeof header);  // an attribute has a header
    std::memcpy(&header, bytes.data(), sizeof header);
    const size_t whole = NLA_ALIGN(header.nla_len);
    VERBENA_REQUIRE(header.nla_len >= sizeof header &&
                    whole <= bytes.size());  // an attribute ends before its message
    bytes = bytes.subspan(whole);
  }
}

void check(const rdma_netlink::Bytes& datagram) {
  nlmsghdr header;
  VERBENA_REQUIRE(datagram.size() >= sizeof header &&
                  datagram.size() <= kReadersRoom);  // a datagram fits the readers' buffers
  std::memcpy(&header, datagram.data(), sizeof header);
  VERBENA_REQUIRE(header.nlmsg_len == datagram.size());  // a message is as long as it says
  if (header.nlmsg_type >= NLMSG_MIN_TYPE) check_attributes(std::span(datagram).subspan(sizeof header));
}

// Returns requests as programs make them, some with wrong lengths or values, followed by random bytes.
rdma_netlink::Bytes any_datagram(fuzz::Choices& choices) {
  rdma_netlink::Bytes datagram;
  for (uint32_t requests = choices.below(3); requests > 0; --requests) {
    rdma_netlink::Attributes attributes;
    if (choices.yes()) attributes.put_u32(RDMA_NLDEV_ATTR_DEV_INDEX, 3);
    for (uint32_t more = choices.below(5); more > 0; --more) {
      const auto type = static_cast<uint16_t>(choices.below(RDMA_NLDEV_ATTR_MAX + 2));
      attributes.put(type, choices.bytes(choices.yes() ? sizeof(uint32_t) : choices.below(12)));
    }
    rdma_netlink::Bytes payload = attributes.bytes();
    if (choices.below(4) == 0 && !payload.empty())
      payload[choices.byte() % payload.size()] = std::byte{choices.byte()};
    nlmsghdr header{};
    header.nlmsg_len =
        static_cast<uint32_t>(sizeof header + payload.size()) + (choices.below(8) == 0 ? choices.byte() : 0);
    header.nlmsg_type =
        static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, choices.below(RDMA_NLDEV_NUM_OPS + 1)));
    header.nlmsg_flags =
        static_cast<uint16_t>(choices.yes() ? NLM_F_REQUEST | NLM_F_DUMP : NLM_F_REQUEST | NLM_F_ACK);
    const auto bytes = std::as_bytes(std::span(&header, 1));
    datagram.insert(datagram.end(), bytes.begin(), bytes.end());
    datagram.insert(datagram.end(), payload.begin(), payload.end());
  }
  const auto rest = choices.rest();
  datagram.insert(datagram.end(), rest.begin(), rest.end());
  datagram.shrink_to_fit();
  return datagram;
}

}  // namespace
}  // namespace verbena

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static verbena::Devices devices;
  verbena::rdma_netlink::Service service(devices);
  verbena::fuzz::Choices choices(data, size);
  const auto datagram = verbena::any_datagram(choices);
  for (const auto& answer : service.answer(datagram, 4242)) verbena::check(answer);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "preload/netlink/service.h"

#include <map>
#include <random>

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_netlink.h>

#include "control/client/example_status.h"
#include "preload/netlink/message.h"
#include "preload/netlink/messages.h"

namespace verbena::rdma_netlink {
namespace {

using control::AdminResult;
using control::AgentStatus;
using protocol::ObjectKind;

constexpr uint32_t kPort = 4242;
constexpr uint32_t kDevice = control::kExampleDevice;

struct FakeDevices final : Devices {
  AdminResult<AgentStatus> status() override { return now; }
  AdminResult<void> add_link(std::string_view name, std::string_view netdev) override {
    return change("add " + std::string(name) + " " + std::string(netdev));
  }
  AdminResult<void> delete_link(std::string_view name) override {
    return change("delete " + std::string(name));
  }
  AdminResult<void> rename_link(std::string_view name, std::string_view new_name) override {
    return change("rename " + std::string(name) + " " + std::string(new_name));
  }
  AdminResult<void> change(std::string what) {
    changes.push_back(std::move(what));
    if (refuses) return tl::unexpected(control::AdminError{EPERM, "only its owner may"});
    return {};
  }
  AgentStatus now = control::example_status();
  std::vector<std::string> changes;
  bool refuses = false;
};

class RdmaNetlink : public testing::Test {
 protected:
  std::vector<Bytes> send(uint16_t command, uint16_t flags, const Attributes& attributes) {
    return service_.answer(
        make_message(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), NLM_F_REQUEST | flags, attributes.bytes()),
        kPort);
  }
  // Requests one object, as `rdma` does. Expects the answer, then an acknowledgement with error 0.
  std::vector<Seen> get(uint16_t command, const Attributes& attributes) {
    kept_ = send(command, NLM_F_ACK, attributes);
    if (kept_.size() != 2 || read_message(kept_[1]).error() != 0) throw std::runtime_error("no answer");
    return read_message(kept_[0]).attributes();
  }
  // Returns the error of a refused request.
  int error_of(uint16_t command, uint16_t flags, const Attributes& attributes) {
    const auto answers = send(command, flags, attributes);
    return answers.size() == 1 ? read_message(answers[0]).error() : -1;
  }
  // Returns all entries of a dump's tables.
  std::vector<std::vector<Seen>> dump(uint16_t command, uint16_t table, const Attributes& attributes) {
    kept_ = send(command, NLM_F_DUMP | NLM_F_ACK, attributes);
    std::vector<std::vector<Seen>> entries;
    for (size_t i = 0; i + 1 < kept_.size(); ++i) {
      for (const Seen& one : read_message(kept_[i]).attributes()) {
        if (one.type != table) continue;
        for (const Seen& entry : read_attributes(one.value)) entries.push_back(read_attributes(entry.value));
      }
    }
    EXPECT_EQ(read_message(kept_.back()).header.nlmsg_type, NLMSG_DONE);
    return entries;
  }
  static Seen find(const std::vector<Seen>& seen, uint16_t type) {
    for (const Seen& one : seen) {
      if (one.type == type) return one;
    }
    throw std::runtime_error("there is no such attribute");
  }
  static bool has(const std::vector<Seen>& seen, uint16_t type) {
    return std::ranges::any_of(seen, [&](const Seen& one) { return one.type == type; });
  }
  static Attributes of_device(uint32_t index = kDevice) {
    Attributes attributes;
    return attributes.put_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index);
  }
  static Attributes of_port(uint32_t port = 1) {
    return of_device().put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, port);
  }

  FakeDevices devices_;
  Service service_{devices_};
  std::vector<Bytes> kept_;
};

TEST_F(RdmaNetlink, AnswersAreForTheSocketAndTheRequest) {
  for (const Bytes& datagram : send(RDMA_NLDEV_CMD_GET, NLM_F_DUMP, {})) {
    const Message message = read_message(datagram);
    EXPECT_EQ(message.header.nlmsg_pid, kPort);
    EXPECT_EQ(message.header.nlmsg_seq, 7U);
    EXPECT_EQ(message.header.nlmsg_flags & NLM_F_MULTI, NLM_F_MULTI);
  }
}

TEST_F(RdmaNetlink, ShowsADevice) {
  const auto device = get(RDMA_NLDEV_CMD_GET, of_device());
  EXPECT_EQ(find(device, RDMA_NLDEV_ATTR_DEV_INDEX).number<uint32_t>(), kDevice);
  EXPECT_EQ(find(device, RDMA_NLDEV_ATTR_DEV_NAME).text(), "rxe0");
  EXPECT_EQ(find(device, RDMA_NLDEV_ATTR_PORT_INDEX).number<uint32_t>(), 1U);
  EXPECT_EQ(find(device, RDMA_NLDEV_ATTR_NODE_GUID).number<uint64_t>(), 0x505400fffe770001u);
  EXPECT_EQ(find(device, RDMA_NLDEV_ATTR_DEV_NODE_TYPE).number<uint8_t>(), IBV_NODE_CA);
}

TEST_F(RdmaNetlink, ShowsAPortAndItsNetworkDevice) {
  const auto port = get(RDMA_NLDEV_CMD_PORT_GET, of_port());
  EXPECT_EQ(find(port, RDMA_NLDEV_ATTR_PORT_STATE).number<uint8_t>(), IBV_PORT_ACTIVE);
  EXPECT_EQ(find(port, RDMA_NLDEV_ATTR_PORT_PHYS_STATE).number<uint8_t>(), 5);
  EXPECT_EQ(find(port, RDMA_NLDEV_ATTR_NDEV_NAME).text(), "eth0");
  EXPECT_EQ(find(port, RDMA_NLDEV_ATTR_NDEV_INDEX).number<uint32_t>(), 2U);
  devices_.now.links[0].wire = "down: port 4791 is in use";
  const auto down = get(RDMA_NLDEV_CMD_PORT_GET, of_port());
  EXPECT_EQ(find(down, RDMA_NLDEV_ATTR_PORT_STATE).number<uint8_t>(), IBV_PORT_DOWN);
}

TEST_F(RdmaNetlink, ListsDevicesByTheirIndex) {
  devices_.now.links.push_back(devices_.now.links[0]);
  devices_.now.links[1].link.device_index = 1;
  const auto answers = send(RDMA_NLDEV_CMD_GET, NLM_F_DUMP, {});
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(find(read_message(answers[0]).attributes(), RDMA_NLDEV_ATTR_DEV_INDEX).number<uint32_t>(), 1U);
  EXPECT_EQ(find(read_message(answers[1]).attributes(), RDMA_NLDEV_ATTR_DEV_INDEX).number<uint32_t>(),
            kDevice);
}

TEST_F(RdmaNetlink, WithoutDevicesADumpEndsAtOnce) {
  devices_.now.links.clear();
  const auto answers = send(RDMA_NLDEV_CMD_GET, NLM_F_DUMP, {});
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(read_message(answers[0]).header.nlmsg_type, NLMSG_DONE);
}

TEST_F(RdmaNetlink, CountsResources) {
  const auto summary = get(RDMA_NLDEV_CMD_RES_GET, of_device());
  std::vector<std::pair<std::string, uint64_t>> counts;
  for (const Seen& entry : read_attributes(find(summary, RDMA_NLDEV_ATTR_RES_SUMMARY).value)) {
    const auto one = read_attributes(entry.value);
    counts.emplace_back(find(one, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME).text(),
                        find(one, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR).number<uint64_t>());
  }
  const std::vector<std::pair<std::string, uint64_t>> wanted = {
      {"pd", 1}, {"cq", 1}, {"qp", 2}, {"cm_id", 1}, {"mr", 1}, {"ctx", 1}, {"srq", 1}};
  EXPECT_EQ(counts, wanted);
}

TEST_F(RdmaNetlink, ListsQpsOfAPortOrAll) {
  const auto all = dump(RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, of_device());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_FALSE(has(all[1], RDMA_NLDEV_ATTR_PORT_INDEX));
  EXPECT_FALSE(has(all[1], RDMA_NLDEV_ATTR_RES_RQPN));
  const auto of_one = dump(RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, of_port());
  ASSERT_EQ(of_one.size(), 1U);
  EXPECT_EQ(find(of_one[0], RDMA_NLDEV_ATTR_RES_LQPN).number<uint32_t>(), 17U);
  EXPECT_EQ(find(of_one[0], RDMA_NLDEV_ATTR_RES_RQPN).number<uint32_t>(), 18U);
  EXPECT_EQ(find(of_one[0], RDMA_NLDEV_ATTR_RES_SQ_PSN).number<uint32_t>(), 1000U);
  EXPECT_EQ(find(of_one[0], RDMA_NLDEV_ATTR_RES_RQ_PSN).number<uint32_t>(), 2000U);
  EXPECT_EQ(find(of_one[0], RDMA_NLDEV_ATTR_RES_PDN).number<uint32_t>(), 65537U);
  EXPECT_EQ(find(of_one[0], RDMA_NLDEV_ATTR_RES_PID).number<uint32_t>(), 149U);
}

TEST_F(RdmaNetlink, ShowsAnObjectByItsNumber) {
  const auto mr = get(RDMA_NLDEV_CMD_RES_MR_GET, of_device().put_u32(RDMA_NLDEV_ATTR_RES_MRN, 65540));
  EXPECT_EQ(find(mr, RDMA_NLDEV_ATTR_DEV_NAME).text(), "rxe0");
  EXPECT_EQ(find(mr, RDMA_NLDEV_ATTR_RES_MRLEN).number<uint64_t>(), 8192U);
  EXPECT_EQ(find(mr, RDMA_NLDEV_ATTR_RES_RKEY).number<uint32_t>(), 0x2e4U);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_RES_MR_GET, 0, of_device().put_u32(RDMA_NLDEV_ATTR_RES_MRN, 1)), ENOENT);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_RES_MR_GET, 0, of_device()), EINVAL);
}

TEST_F(RdmaNetlink, ListsAnIdentifierWithItsAddresses) {
  const auto ids = dump(RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_ATTR_RES_CM_ID, of_device());
  ASSERT_EQ(ids.size(), 1U);
  const Seen source = find(ids[0], RDMA_NLDEV_ATTR_RES_SRC_ADDR);
  ASSERT_EQ(source.value.size(), sizeof(sockaddr_storage));
  sockaddr_in address;
  std::memcpy(&address, source.value.data(), sizeof address);
  EXPECT_EQ(address.sin_family, AF_INET);
  EXPECT_EQ(ntohs(address.sin_port), 7471);
  EXPECT_EQ(ntohl(address.sin_addr.s_addr), 0xc0000201U);
  EXPECT_FALSE(has(ids[0], RDMA_NLDEV_ATTR_RES_DST_ADDR));
  EXPECT_TRUE(dump(RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_ATTR_RES_CM_ID, of_port()).empty());
}

TEST_F(RdmaNetlink, ListsTheQpsOfASharedReceiveQueueAsRangesWhereTheyAreMany) {
  const auto qps_of_srq = [&] {
    const auto srqs = dump(RDMA_NLDEV_CMD_RES_SRQ_GET, RDMA_NLDEV_ATTR_RES_SRQ, of_device());
    return read_attributes(find(srqs.at(0), RDMA_NLDEV_ATTR_RES_QP).value);
  };
  auto few = qps_of_srq();
  ASSERT_EQ(few.size(), 1U);
  EXPECT_EQ(find(read_attributes(few[0].value), RDMA_NLDEV_ATTR_RES_LQPN).number<uint32_t>(), 20U);
  control::QpNumbers more = devices_.now.slots[0].qps[1];
  for (uint32_t qpn : {21, 22, 30}) {
    more.qpn = qpn;
    devices_.now.slots[0].qps.push_back(more);
  }
  for (more.qpn = 100; more.qpn < 200; ++more.qpn) devices_.now.slots[0].qps.push_back(more);
  std::vector<std::pair<uint32_t, uint32_t>> ranges;
  for (const Seen& one : qps_of_srq()) {
    const auto range = read_attributes(one.value);
    ranges.emplace_back(find(range, RDMA_NLDEV_ATTR_MIN_RANGE).number<uint32_t>(),
                        find(range, RDMA_NLDEV_ATTR_MAX_RANGE).number<uint32_t>());
  }
  const std::vector<std::pair<uint32_t, uint32_t>> wanted = {{20, 22}, {30, 30}, {100, 199}};
  EXPECT_EQ(ranges, wanted);
}

TEST_F(RdmaNetlink, CountsByPortByQpAndNotByRegion) {
  const auto port = get(RDMA_NLDEV_CMD_STAT_GET, of_port());
  EXPECT_GT(read_attributes(find(port, RDMA_NLDEV_ATTR_STAT_HWCOUNTERS).value).size(), 10U);
  const auto qps = dump(RDMA_NLDEV_CMD_STAT_GET, RDMA_NLDEV_ATTR_STAT_COUNTER,
                        of_port().put_u32(RDMA_NLDEV_ATTR_STAT_RES, RDMA_NLDEV_ATTR_RES_QP));
  ASSERT_EQ(qps.size(), 2U);
  std::map<std::string, uint64_t> counters;
  for (const Seen& one : read_attributes(find(qps[0], RDMA_NLDEV_ATTR_STAT_HWCOUNTERS).value)) {
    const auto counter = read_attributes(one.value);
    counters[find(counter, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME).text()] =
        find(counter, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE).number<uint64_t>();
  }
  EXPECT_EQ(counters.at(transport::kQpCounterNames[transport::kRetransmittedPackets]), 5U);
  const auto mrs = dump(RDMA_NLDEV_CMD_STAT_GET, RDMA_NLDEV_ATTR_RES_MR,
                        of_device().put_u32(RDMA_NLDEV_ATTR_STAT_RES, RDMA_NLDEV_ATTR_RES_MR));
  ASSERT_EQ(mrs.size(), 1U);
  EXPECT_EQ(find(mrs[0], RDMA_NLDEV_ATTR_RES_MRN).number<uint32_t>(), 65540U);
}

TEST_F(RdmaNetlink, CountersAreAllOnAndStaySo) {
  const auto off = of_port()
                       .put_u32(RDMA_NLDEV_ATTR_STAT_RES, RDMA_NLDEV_ATTR_RES_QP)
                       .put_u32(RDMA_NLDEV_ATTR_STAT_MODE, RDMA_COUNTER_MODE_AUTO)
                       .put_u32(RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK, 0);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_STAT_SET, NLM_F_ACK, off), 0);
  Attributes on = off;
  on.put_u32(RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK, RDMA_COUNTER_MASK_QP_TYPE);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_STAT_SET, NLM_F_ACK, on), EOPNOTSUPP);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_STAT_DEL, NLM_F_ACK, of_port()), EOPNOTSUPP);
}

TEST_F(RdmaNetlink, AddsRenamesAndDeletesLinks) {
  Attributes link;
  link.put_text(RDMA_NLDEV_ATTR_DEV_NAME, "r1").put_text(RDMA_NLDEV_ATTR_LINK_TYPE, "rxe");
  link.put_text(RDMA_NLDEV_ATTR_NDEV_NAME, "eth1");
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_NEWLINK, NLM_F_ACK, link), 0);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_SET, NLM_F_ACK, of_device().put_text(RDMA_NLDEV_ATTR_DEV_NAME, "r2")), 0);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_DELLINK, NLM_F_ACK, of_device()), 0);
  EXPECT_EQ(devices_.changes, (std::vector<std::string>{"add r1 eth1", "rename rxe0 r2", "delete rxe0"}));
}

TEST_F(RdmaNetlink, ChangesThatCannotBeDoNothing) {
  Attributes other;
  other.put_text(RDMA_NLDEV_ATTR_DEV_NAME, "s").put_text(RDMA_NLDEV_ATTR_LINK_TYPE, "siw");
  other.put_text(RDMA_NLDEV_ATTR_NDEV_NAME, "eth1");
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_NEWLINK, 0, other), EINVAL);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_NEWLINK, 0, {}), EINVAL);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_SET, 0, of_device().put_u32(RDMA_NLDEV_NET_NS_FD, 5)), EOPNOTSUPP);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_SET, 0, of_device().put_u8(RDMA_NLDEV_ATTR_DEV_DIM, 1)), EOPNOTSUPP);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_SYS_SET, 0, Attributes().put_u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 1)),
            EOPNOTSUPP);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_DELLINK, 0, of_device(99)), EINVAL);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_DELLINK, 0, {}), EINVAL);
  EXPECT_TRUE(devices_.changes.empty());
}

TEST_F(RdmaNetlink, SaysWhyTheAgentRefuses) {
  devices_.refuses = true;
  const auto answers = send(RDMA_NLDEV_CMD_DELLINK, NLM_F_ACK, of_device());
  ASSERT_EQ(answers.size(), 1U);
  const Message message = read_message(answers[0]);
  EXPECT_EQ(message.error(), EPERM);
  EXPECT_EQ(message.header.nlmsg_flags, NLM_F_CAPPED | NLM_F_ACK_TLVS);
  const auto reasons = read_attributes(message.payload.subspan(sizeof(nlmsgerr)));
  EXPECT_EQ(find(reasons, NLMSGERR_ATTR_MSG).text(), "only its owner may");
}

TEST_F(RdmaNetlink, RefusesWhatIsNotThere) {
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_GET, 0, of_device(99)), EINVAL);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_PORT_GET, 0, of_port(2)), EINVAL);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_PORT_GET, 0, of_port(0)), EINVAL);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_PORT_GET, 0, of_device()), EINVAL);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_GET_CHARDEV, 0, {}), EOPNOTSUPP);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_RES_QP_GET_RAW, 0, of_device()), EOPNOTSUPP);
  EXPECT_EQ(error_of(RDMA_NLDEV_CMD_SYS_GET, NLM_F_DUMP, {}), EOPNOTSUPP);
  EXPECT_EQ(error_of(1000, 0, {}), EINVAL);
}

TEST_F(RdmaNetlink, AnswersNobodyWhoAsksNothing) {
  const uint16_t type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET);
  EXPECT_TRUE(service_.answer({}, kPort).empty());
  EXPECT_TRUE(service_.answer(make_message(type, NLM_F_DUMP & ~NLM_F_REQUEST, {}), kPort).empty());
  EXPECT_TRUE(service_.answer(make_message(NLMSG_NOOP, NLM_F_REQUEST, {}), kPort).empty());
  EXPECT_EQ(service_.answer(make_message(NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, {}), kPort).size(), 1U);
  Bytes longer_than_it_is = make_message(type, NLM_F_REQUEST | NLM_F_DUMP, {});
  const uint32_t length = 1000;
  std::memcpy(longer_than_it_is.data(), &length, sizeof length);
  EXPECT_TRUE(service_.answer(longer_than_it_is, kPort).empty());
}

TEST_F(RdmaNetlink, AnswersEveryRequestOfADatagram) {
  Bytes both =
      make_message(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET), NLM_F_REQUEST, of_device().bytes());
  const Bytes second =
      make_message(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SYS_GET), NLM_F_REQUEST, {}, 8);
  both.insert(both.end(), second.begin(), second.end());
  const auto answers = service_.answer(both, kPort);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(read_message(answers[1]).header.nlmsg_seq, 8U);
}

// Readers with libmnl have a buffer of one page for a datagram, and lose the rest of a longer one.
TEST_F(RdmaNetlink, LongListsComeInDatagramsThatReadersTake) {
  auto& slot = devices_.now.slots[0];
  for (uint32_t i = 0; i < 5000; ++i) {
    slot.objects.push_back({ObjectKind::kMr, 70000 + i, kDevice, {65537, i, i, 4096, 0}});
    control::QpNumbers qp = slot.qps[0];
    qp.qpn = 1000 + i;
    slot.qps.push_back(qp);
  }
  const auto longest = [&] {
    return std::ranges::max_element(kept_, {}, [](const Bytes& one) { return one.size(); })->size();
  };
  EXPECT_EQ(dump(RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR, of_device()).size(), 5001U);
  EXPECT_LE(longest(), 4096U);
  EXPECT_LT(kept_.size(), 200U);
  EXPECT_EQ(dump(RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, of_device()).size(), 5002U);
  EXPECT_LE(longest(), 4096U);
  const auto by_qp = of_port().put_u32(RDMA_NLDEV_ATTR_STAT_RES, RDMA_NLDEV_ATTR_RES_QP);
  EXPECT_EQ(dump(RDMA_NLDEV_CMD_STAT_GET, RDMA_NLDEV_ATTR_STAT_COUNTER, by_qp).size(), 5002U);
  EXPECT_LE(longest(), 4096U);
}

TEST_F(RdmaNetlink, WhateverComesTheAnswerIsWellFormed) {
  auto random = [engine = std::mt19937(2)]() mutable { return static_cast<uint32_t>(engine()); };
  size_t answered = 0;
  for (int round = 0; round < 100'000; ++round) {
    Attributes attributes;
    if (random() % 4 != 0)
      attributes.put_u32(RDMA_NLDEV_ATTR_DEV_INDEX, random() % 8 == 0 ? random() : kDevice);
    if (random() % 2 != 0) attributes.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, random() % 3);
    for (unsigned more = random() % 3; more > 0; --more) {
      const auto type = static_cast<uint16_t>(random() % RDMA_NLDEV_ATTR_MAX);
      random() % 2 == 0 ? attributes.put_u32(type, random() % 100) : attributes.put_text(type, "name");
    }
    const auto command = static_cast<uint16_t>(random() % (RDMA_NLDEV_NUM_OPS + 1));
    const uint16_t flags = random() % 2 == 0 ? NLM_F_DUMP : NLM_F_ACK;
    Bytes datagram =
        make_message(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), NLM_F_REQUEST | flags, attributes.bytes());
    if (random() % 4 == 0) datagram[random() % datagram.size()] = static_cast<std::byte>(random());
    if (random() % 8 == 0) datagram.resize(random() % (datagram.size() + 1));
    datagram.shrink_to_fit();
    for (const Bytes& one : service_.answer(datagram, kPort)) {
      const Message message = read_message(one);
      ++answered;
      if (message.header.nlmsg_type == NLMSG_ERROR) {
        ASSERT_LT(message.error(), 4096);
        ASSERT_GE(message.error(), 0);
      } else if (message.header.nlmsg_type != NLMSG_DONE) {
        ASSERT_NO_THROW(message.attributes());
      }
      ASSERT_LE(one.size(), 4096U);
    }
  }
  EXPECT_GT(answered, 50'000U);
}

}  // namespace
}  // namespace verbena::rdma_netlink

// SPDX-License-Identifier: Apache-2.0
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <nlohmann/json.hpp>

#include "adapter/net/port.h"
#include "adapter/transport/counters.h"
#include "commands/verbena/names.h"
#include "commands/verbena/status_output.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"

namespace verbena::commands {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

control::AgentStatus example() {
  constexpr uint8_t kAddress[] = {192, 0, 2, 1};
  control::Link link{.name = "rxe_eth0",
                     .device_index = 3,
                     .netdev = "eth0",
                     .interface_index = 2,
                     .mac = {0x52, 0x54, 0, 0x77, 0, 1},
                     .mtu = 1500,
                     .up = true,
                     .automatic = true,
                     .gids = {{.index = 1, .gid = roce::Address::from_ipv4(kAddress)}}};
  control::QpNumbers qp{
      .qpn = 0x1011, .type = IBV_QPT_RC, .state = IBV_QPS_RTS, .remote_qpn = 0x2012, .device_index = 3};
  qp.counters[transport::kSentPackets] = 77;
  control::SlotStatus slot{
      .index = 1, .pid = 1234, .uid = 1000, .program = "ib_write_bw", .has_wire = true, .qps = {qp}};
  slot.port[protocol::kPortSentPackets] = 78;
  slot.port[protocol::kPortFirstDropReason + static_cast<size_t>(net::DropReason::kBadIcrc)] = 5;
  control::DeviceCounters counters;
  counters[transport::kSentOctets] = 4096;
  counters[transport::kNoticesSent] = 9;
  counters[transport::kOutOfSequence] = 6;
  counters.link_downed = 2;
  protocol::CmStatus cm{};
  cm.identifiers = 4;
  cm.listening = 1;
  cm.connections[static_cast<size_t>(cm::State::kEstablished)] = 3;
  cm.sent[static_cast<size_t>(cm::MessageType::kRep)] = 5;
  cm.received[static_cast<size_t>(cm::MessageType::kReq)] = 6;
  cm.dropped[static_cast<size_t>(cm::DropReason::kNotAdmitted)] = 1;
  return {.pid = 99,
          .uid = 1000,
          .version = "0.1.0",
          .no_wire_reason = "",
          .links = {{link, "up", counters}},
          .slots = {slot},
          .connection_management = cm};
}

TEST(StatusJson, ShowsEverything) {
  const json whole = json::parse(status_as_json(example()));
  EXPECT_EQ(whole["agent"]["pid"], 99);
  EXPECT_EQ(whole["agent"]["wire"], true);
  EXPECT_EQ(whole["links"][0]["name"], "rxe_eth0");
  EXPECT_EQ(whole["links"][0]["guid"], "5054:00ff:fe77:0001");
  EXPECT_EQ(whole["links"][0]["gids"][0],
            json({{"index", 1}, {"gid", "::ffff:192.0.2.1"}, {"type", "RoCE v2"}}));
  const json& process = whole["processes"][0];
  EXPECT_EQ(process["pid"], 1234);
  EXPECT_EQ(process["port"]["sent_packets"], 78);
  EXPECT_EQ(process["port"]["dropped"][net::kDropReasonNames[static_cast<size_t>(net::DropReason::kBadIcrc)]],
            5);
  const json& qp = process["queue_pairs"][0];
  EXPECT_EQ(qp["qpn"], 0x1011);
  EXPECT_EQ(qp["type"], "RC");
  EXPECT_EQ(qp["state"], "RTS");
  EXPECT_EQ(qp["link"], "rxe_eth0");
  EXPECT_EQ(qp["counters"]["sent_packets"], 77);
}

TEST(StatusJson, CountsConnectionsAndTheirMessages) {
  const json cm = json::parse(status_as_json(example()))["connection_management"];
  EXPECT_EQ(cm["identifiers"], 4);
  EXPECT_EQ(cm["connections"]["ESTABLISHED"], 3);
  EXPECT_EQ(cm["connections"]["TIMEWAIT"], 0);
  EXPECT_EQ(cm["messages"]["REP"], json({{"sent", 5}, {"received", 0}}));
  EXPECT_EQ(cm["dropped"]["not_admitted"], 1);
}

TEST(StatusJson, HasCountersOfLinksByTheNamesInSys) {
  const json link = json::parse(status_as_json(example()))["links"][0];
  EXPECT_EQ(link["counters"]["port_xmit_data"], 1024);
  EXPECT_EQ(link["counters"]["link_downed"], 2);
  EXPECT_EQ(link["hw_counters"]["out_of_seq_request"], 6);
  EXPECT_EQ(link["hw_counters"]["out_of_sequence"], 6);
  EXPECT_EQ(link["hw_counters"]["np_cnp_sent"], 9);
  EXPECT_EQ(link["hw_counters"]["sent_bytes"], 4096);
  EXPECT_EQ(link["hw_counters"].size() + link["counters"].size(), control::kNamedCounters.size());
}

TEST(StatusJson, HasTheSameMembersWithoutAnAgent) {
  const json whole = json::parse(status_as_json(std::nullopt));
  EXPECT_TRUE(whole["agent"].is_null());
  EXPECT_EQ(whole["links"], json::array());
  EXPECT_EQ(whole["processes"], json::array());
}

TEST(StatusJson, StaysValidWhenNamesAreNoUtf8) {
  auto status = example();
  status.slots[0].program = "\xff\"\n\\";
  const json whole = json::parse(status_as_json(status));
  EXPECT_EQ(whole["processes"][0]["program"], "\xEF\xBF\xBD\"\n\\");
}

TEST(StatusJson, ShowsUnknownNumbersAsUnknown) {
  auto status = example();
  status.slots[0].qps[0].state = 4711;
  status.slots[0].qps[0].device_index = 8;
  const json qp = json::parse(status_as_json(status))["processes"][0]["queue_pairs"][0];
  EXPECT_EQ(qp["state"], "unknown(4711)");
  EXPECT_EQ(qp["link"], "-");
}

TEST(StatusSummary, HasALineForEachProcess) {
  control::AgentStatus status = example();
  status.slots[0].qps.push_back(status.slots[0].qps[0]);
  status.slots[0].qps[1].type = IBV_QPT_UD;
  status.slots[0].qps[0].counters[transport::kSentBytes] = 1'500'000;
  status.slots[0].qps[1].counters[transport::kRetransmittedPackets] = 3;
  const std::string text = summary_as_text(status);
  EXPECT_THAT(text, HasSubstr("rxe_eth0"));
  EXPECT_THAT(text, testing::ContainsRegex("1234 +ib_write_bw +1000 +1 RC RTS, 1 UD RTS +1.5MB +0B +"));
  EXPECT_THAT(text, HasSubstr("retransmitted_packets 3, packets dropped 5"));
  EXPECT_THAT(text, Not(HasSubstr("0x001011"))) << "queue pairs one by one are for -v";
}

TEST(StatusSummary, TellsOfCompletionQueuesThatHaveOverrun) {
  control::AgentStatus status = example();
  control::ObjectNumbers cq{.kind = protocol::ObjectKind::kCq};
  status.slots[0].objects = {cq};
  EXPECT_THAT(summary_as_text(status), Not(HasSubstr("overrun")));
  cq.values[protocol::kCqOverrun] = 1;
  status.slots[0].objects.push_back(cq);
  EXPECT_THAT(summary_as_text(status), HasSubstr("CQ overruns 1"));
  EXPECT_THAT(status_as_text(status), HasSubstr("CQ overrun: 1 completion queue was full"));
  EXPECT_EQ(json::parse(status_as_json(status))["processes"][0]["cq_overruns"], 1);
}

TEST(StatusFilter, LeavesWhatIsAskedFor) {
  control::AgentStatus status = example();
  status.slots.push_back(status.slots[0]);
  status.slots[1].pid = 4321;
  status.slots[1].program = "rping";
  status.slots[1].qps[0].qpn = 0x2011;
  status.slots[1].qps[0].state = IBV_QPS_ERR;
  const auto pids = [&](const StatusFilter& filter) {
    std::vector<pid_t> left;
    for (const auto& slot : only(status, filter).slots) left.push_back(slot.pid);
    return left;
  };
  using Pids = std::vector<pid_t>;
  EXPECT_EQ(pids({}), (Pids{1234, 4321}));
  EXPECT_EQ(pids({.pids = {4321}}), Pids{4321});
  EXPECT_EQ(pids({.programs = {"ib_write_bw", "rping"}}), (Pids{1234, 4321}));
  EXPECT_EQ(pids({.qpns = {0x2011}}), Pids{4321});
  EXPECT_EQ(pids({.states = {"rts"}}), Pids{1234});
  EXPECT_EQ(pids({.pids = {1234}, .states = {"ERR"}}), Pids{});
  EXPECT_EQ(pids({.links = {"rxe_eth0"}}), (Pids{1234, 4321}));
  EXPECT_EQ(pids({.links = {"rxe_lo"}}), Pids{});
}

TEST(StatusFilter, OfALinkShowsNoOther) {
  control::AgentStatus status = example();
  status.links.push_back(status.links[0]);
  status.links[1].link.name = "rxe_lo";
  const control::AgentStatus left = only(status, {.links = {"rxe_lo"}});
  ASSERT_EQ(left.links.size(), 1u);
  EXPECT_EQ(left.links[0].link.name, "rxe_lo");
  EXPECT_EQ(only(status, {}).connection_management.listening, 1u);
  EXPECT_EQ(left.connection_management.listening, 0u) << "which is the whole host's";
}

TEST(StatusText, ShowsWhatPeopleAskFor) {
  const std::string text = status_as_text(example());
  EXPECT_THAT(text, HasSubstr("rxe_eth0"));
  EXPECT_THAT(text, HasSubstr("::ffff:192.0.2.1"));
  EXPECT_THAT(text, HasSubstr("Process 1234 (ib_write_bw)"));
  EXPECT_THAT(text, HasSubstr("RTS"));
  EXPECT_THAT(text, testing::ContainsRegex("\n    sent_packets +77\n"));
}

TEST(StatusText, HasALineForEachCounterAndNamesBytesWithHeadersDifferently) {
  const std::string text = status_as_text(example());
  EXPECT_THAT(text,
              testing::ContainsRegex("packets on the wire, with headers:\n    wire_sent_packets +78\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\n    wire_dropped_[a-z_]+ +5\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\nrxe_eth0\n  port_xmit_data +1024\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

TEST(LinksText, HasALineForEachLinkWithBothMtusAndItsGids) {
  control::AgentStatus status = example();
  EXPECT_THAT(links_as_text(status),
              testing::ContainsRegex("rxe_eth0 +eth0 +ACTIVE +1500 +1024 +up +1 ::ffff:192\\.0\\.2\\.1\n"));
  status.links[0].link.peers = {*roce::parse_prefix("10.91.0.9/32")};
  EXPECT_THAT(links_as_text(status), HasSubstr("rxe_eth0 accepts RoCE packets only from 10.91.0.9/32\n"));
  status.links.clear();
  EXPECT_THAT(links_as_text(status), HasSubstr("unless its link was deleted"));
}

TEST(LinksJson, HasBothMtus) {
  const json links = json::parse(links_as_json(example()));
  EXPECT_EQ(links[0]["mtu"], 1500);
  EXPECT_EQ(links[0]["active_mtu"], 1024);
  EXPECT_EQ(links[0]["gids"][0]["gid"], "::ffff:192.0.2.1");
}

TEST(Status, SaysWhyThePeersMemoryIsNotReached) {
  control::AgentStatus status = example();
  control::QpNumbers& qp = status.slots[0].qps[0];
  const auto shown = [&] { return json::parse(status_as_json(status))["processes"][0]["queue_pairs"][0]; };
  EXPECT_EQ(shown()["route"], "wire");
  EXPECT_EQ(shown()["peer_memory"], nullptr);
  qp.way = protocol::QpWay::kAllReached;
  EXPECT_EQ(shown()["route"], "local");
  EXPECT_EQ(shown()["peer_memory"], "reached");
  EXPECT_THAT(status_as_text(status), Not(HasSubstr("not reached")));
  qp.way = protocol::QpWay::kOnlyShared;
  EXPECT_EQ(shown()["peer_memory"], "shared");
  EXPECT_THAT(status_as_text(status),
              HasSubstr("memory is not reached by 1 queue pair: the kernel allows it only"));
}

TEST(Status, ShowsThePathsThatMayLosePackets) {
  auto status = example();
  EXPECT_TRUE(json::parse(status_as_json(status))["processes"][0]["queue_pairs"][0]["path"].is_null());
  auto& path = status.slots[0].qps[0].path;
  path[transport::kPathRoundTrip] = 12'345'678;
  path[transport::kPathUsualRoundTrip] = 98'765;
  path[transport::kPathWindow] = 64'000;
  path[transport::kPathRate] = 117'300'000;
  path[transport::kPathLostPackets] = 3;
  path[transport::kPathCongestionNotices] = 2;
  EXPECT_THAT(status_as_text(status),
              HasSubstr("round trip 12 ms (usual 98 us), window 64 kB, 117.3 MB/s, lost 3, notices 2"));
  const json shown = json::parse(status_as_json(status))["processes"][0]["queue_pairs"][0]["path"];
  EXPECT_EQ(shown["round_trip_ns"], 12'345'678);
  EXPECT_EQ(shown["rate_bytes_per_second"], 117'300'000);
  EXPECT_EQ(shown["congestion_notices"], 2);
}

TEST(StatusText, CountsConnectionsWhereThereAreAny) {
  const std::string text = status_as_text(example());
  EXPECT_THAT(text, HasSubstr("ESTABLISHED 3, listening 1"));
  EXPECT_THAT(text, HasSubstr("REQ 0/6, REP 5/0"));
  auto status = example();
  status.connection_management = {};
  EXPECT_THAT(status_as_text(status), Not(HasSubstr("Connections")));
}

TEST(StatusText, ShowsWhosePacketsAreForwarded) {
  control::AgentStatus status = example();
  EXPECT_THAT(status_as_text(status), Not(HasSubstr("handed over")));
  status.slots[0].is_forwarded = true;
  EXPECT_THAT(status_as_text(status), HasSubstr("(slot 1), packets forwarded by the agent"));
  EXPECT_EQ(json::parse(status_as_json(status))["processes"][0]["handed_over"], true);
}

TEST(StatusText, SaysWhyThereIsNoWire) {
  auto status = example();
  status.no_wire_reason = "UDP port 4791 is taken.";
  EXPECT_THAT(status_as_text(status), HasSubstr("Wire: none. UDP port 4791 is taken."));
}

TEST(StatusText, KeepsControlCharactersFromTheTerminal) {
  auto status = example();
  status.slots[0].program = "evil\x1b[2J";
  EXPECT_THAT(status_as_text(status), Not(HasSubstr("\x1b")));
}

TEST(Status, ShowsAProcessWithSeveralSlotsAsOne) {
  control::AgentStatus status = example();
  status.slots.push_back(status.slots[0]);
  status.slots[1].index = 4;
  status.slots.push_back(status.slots[0]);
  status.slots[2].index = 5;
  status.slots[2].pid = 4321;
  const std::vector<ProcessStatus> processes = processes_of(status.slots);
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0].slots, (std::vector<uint32_t>{1, 4}));
  EXPECT_EQ(processes[0].qps.size(), 2u);
  EXPECT_EQ(processes[0].port[protocol::kPortSentPackets], 2 * 78u);
  EXPECT_EQ(processes[1].pid, 4321);
  EXPECT_THAT(status_as_text(status), HasSubstr("slots 1, 4"));
}

}  // namespace
}  // namespace verbena::commands

// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "commands/rdma/row.h"
#include "commands/rdma/run.h"
#include "control/client/example_status.h"

namespace verbena::commands::rdma {
namespace {

using control::AdminResult;
using control::AgentStatus;
using nlohmann::json;
using testing::HasSubstr;

class FakeSystem final : public System {
 public:
  AdminResult<AgentStatus> status() override {
    ++asked;
    return now;
  }
  AdminResult<void> add_link(std::string_view name, std::string_view netdev) override {
    changes.push_back(std::string("add ").append(name).append(" ").append(netdev));
    return answer;
  }
  AdminResult<void> delete_link(std::string_view name) override {
    changes.push_back(std::string("delete ").append(name));
    return answer;
  }
  AdminResult<void> rename_link(std::string_view name, std::string_view new_name) override {
    changes.push_back(std::string("rename ").append(name).append(" ").append(new_name));
    return answer;
  }
  AdminResult<void> watch_links(const std::function<bool(const Links&)>& visit) override {
    for (const Links& links : seen) {
      if (!visit(links)) break;
    }
    return answer;
  }

  AgentStatus now = control::example_status();
  AdminResult<void> answer;
  std::vector<std::string> changes;
  std::vector<Links> seen;
  int asked = 0;
};

Answer answer_to(const std::string& line, FakeSystem& system) {
  std::vector<std::string> words = {"/usr/bin/rdma"};
  std::istringstream stream(line);
  for (std::string word; stream >> word;) words.push_back(word);
  return run(words, system);
}

std::string output_of(const std::string& line) {
  FakeSystem system;
  const Answer answer = answer_to(line, system);
  EXPECT_EQ(answer.complaints, "") << line;
  EXPECT_EQ(answer.status, 0) << line;
  return answer.out;
}

// The layouts of iproute2 6.1's output (rdma_golden.json), trailing blanks included.

TEST(RdmaLink, ShowsAPortAsIproute2Does) {
  constexpr const char* kLine = "link rxe0/1 state ACTIVE physical_state LINK_UP netdev eth0 \n";
  for (const char* words : {"link", "l s", "link show rxe0/1", "lin list"})
    EXPECT_EQ(output_of(words), kLine);
  EXPECT_EQ(output_of("-d link"),
            "link rxe0/1 state ACTIVE physical_state LINK_UP netdev eth0 netdev_index 2 \n");
  EXPECT_EQ(output_of("-j link"),
            R"([{"ifindex":3,"ifname":"rxe0","port":1,"state":"ACTIVE","physical_state":"LINK_UP",)"
            R"("netdev":"eth0","netdev_index":2}])"
            "\n");
}

TEST(RdmaPrinter, PrettyJsonIsLaidOutAsIproute2Does) {
  EXPECT_EQ(output_of("-jp res show ctx"),
            "[ {\n        \"ifindex\": 3,\n        \"ifname\": \"rxe0\",\n        \"ctxn\": 65536,\n"
            "        \"pid\": 149,\n        \"comm\": \"holder\"\n    } ]\n");
  EXPECT_EQ(output_of("-jp res show qp pid 1"), "[ ]\n");
  EXPECT_EQ(output_of("-j res show qp pid 1"), "[]\n");
}

TEST(RdmaPrinter, NamesOfOthersCannotBreakIt) {
  FakeSystem system;
  system.now.slots[0].program = "a\"b\\\x1b[2J\xff";
  EXPECT_EQ(json::parse(answer_to("-j res show ctx", system).out)[0]["comm"], "a\"b\\?[2J?");
  EXPECT_THAT(answer_to("res show ctx", system).out, testing::Not(HasSubstr("\x1b")));
}

TEST(RdmaResource, ShowsQpsByPort) {
  EXPECT_EQ(output_of("res show qp"),
            "link rxe0/- lqpn 20 type UD state RESET sq-psn 77 pdn 65537 pid 149 comm holder \n"
            "link rxe0/1 lqpn 17 rqpn 18 type RC state RTS rq-psn 2000 sq-psn 1000 path-mig-state MIGRATED "
            "pdn 65537 pid 149 comm holder \n");
  EXPECT_THAT(output_of("res show qp link rxe0/1"), testing::StartsWith("link rxe0/1 lqpn 17"));
  EXPECT_THAT(output_of("res show qp link rxe0/-"), testing::StartsWith("link rxe0/- lqpn 20"));
}

TEST(RdmaResource, ShowsWhatElseProgramsHave) {
  EXPECT_EQ(output_of("res show pd"),
            "dev rxe0 pdn 65537 local_dma_lkey 0x0 users 7 ctxn 65536 pid 149 comm holder \n");
  EXPECT_EQ(output_of("res show cq"),
            "dev rxe0 cqn 65538 cqe 128 users 4 adaptive-moderation off ctxn 65536 pid 149 comm holder \n");
  EXPECT_EQ(output_of("res show mr"),
            "dev rxe0 mrn 65540 rkey 0x2e4 lkey 0x2e4 mrlen 8192 pdn 65537 pid 149 comm holder \n");
  EXPECT_EQ(output_of("res show srq"),
            "dev rxe0 srqn 65539 type BASIC lqpn 20 pdn 65537 pid 149 comm holder \n");
  EXPECT_EQ(json::parse(output_of("-j res show srq"))[0]["lqpn"], json::array({"20"}));
  EXPECT_EQ(output_of("res show cm_id"),
            "link rxe0/- cm-idn 9 state LISTEN ps TCP pid 150 comm ucmatose src-addr 192.0.2.1:7471 \n");
  EXPECT_EQ(output_of("res"), "3: rxe0: pd 1 cq 1 qp 2 cm_id 1 mr 1 ctx 1 srq 1 \n");
}

TEST(RdmaResource, OfALibraryThatListsNothingShowsWhatIsKnown) {
  FakeSystem system;
  system.now.slots[0].lists_objects = false;
  system.now.slots[0].objects.clear();
  for (control::QpNumbers& qp : system.now.slots[0].qps) qp.details = {};
  EXPECT_THAT(answer_to("res show qp lqpn 17", system).out,
              "link rxe0/- lqpn 17 rqpn 18 type RC state RTS pid 149 comm holder \n");
}

TEST(RdmaResource, Filters) {
  const auto lines = [](const std::string& words) {
    const std::string out = output_of("res show " + words);
    return std::count(out.begin(), out.end(), '\n');
  };
  EXPECT_EQ(lines("qp lqpn 17"), 1);
  EXPECT_EQ(lines("qp link rxe0 lqpn 5-19"), 1);
  EXPECT_EQ(lines("qp lqpn 17,20"), 2);
  EXPECT_EQ(lines("qp type ud,rc"), 2);
  EXPECT_EQ(lines("qp type R"), 0);
  EXPECT_EQ(lines("qp rqpn 0-100"), 1);  // datagrams have no peer
  EXPECT_EQ(lines("qp link rxe0/1 state rts pid 149"), 1);
  EXPECT_EQ(lines("srq lqpn 20"), 1);
  EXPECT_EQ(lines("cm_id src-addr 192.0.2.1 src-port 7000-8000"), 1);
  EXPECT_EQ(lines("cm_id src-port 1"), 0);
  EXPECT_EQ(lines("mr mrlen 1-5000"), 0);
}

TEST(RdmaFilters, NumbersInRangesAreIn) {
  for (const uint64_t in : {5, 7, 9}) EXPECT_TRUE(contains_number("5-9", in));
  for (const uint64_t out : {4, 10}) EXPECT_FALSE(contains_number("5-9", out));
  EXPECT_TRUE(contains_number(",3,5-9,12", 12));
  EXPECT_FALSE(contains_number("", 0));
  EXPECT_FALSE(contains_number("99999999999999999999999", 3));
  EXPECT_FALSE(contains_number("5-9-11", 10));
}

TEST(RdmaStatistic, CountsEachQp) {
  const json qps = json::parse(output_of("-j stat qp show link rxe0/1 lqpn 17"));
  ASSERT_EQ(qps.size(), 1u);
  EXPECT_EQ(qps[0]["lqpn"], json::array({17}));
  EXPECT_EQ(qps[0]["retransmitted_packets"], 5);
  EXPECT_EQ(output_of("stat qp mode"), "link rxe0/1 mode qp auto off \n");
  EXPECT_EQ(output_of("stat mr"), "dev rxe0 mrn 65540 \n");
}

TEST(RdmaChanges, AreAskedOfTheAgent) {
  FakeSystem system;
  for (const char* line : {"link add new type rxe netdev eth1", "link del rxe0", "dev set rxe0 name other"}) {
    EXPECT_EQ(answer_to(line, system).status, 0) << line;
  }
  EXPECT_THAT(system.changes, testing::ElementsAre("add new eth1", "delete rxe0", "rename rxe0 other"));
  system.answer = tl::unexpected(control::AdminError{EEXIST, "eth1 has a link"});
  const Answer refused = answer_to("link add new type rxe netdev eth1", system);
  EXPECT_EQ(refused.status, 1);
  EXPECT_EQ(refused.complaints, "error: File exists (eth1 has a link)\n");
}

TEST(RdmaChanges, WhatCannotBeIsRefusedAsTheKernelDoes) {
  FakeSystem system;
  for (const char* line :
       {"dev set rxe0 adaptive-moderation on", "system set netns shared", "stat qp bind link rxe0/1 lqpn 17",
        "-r res show qp", "link add r type siw netdev eth0"}) {
    const Answer refused = answer_to(line, system);
    EXPECT_EQ(refused.status, 1) << line;
    EXPECT_THAT(refused.complaints, testing::StartsWith("error: ")) << line;
  }
  EXPECT_TRUE(system.changes.empty());
}

// Unknown words cause a complaint and exit status 0, as in iproute2.
TEST(RdmaGrammar, UnknownWordsAreComplainedOf) {
  FakeSystem system;
  EXPECT_EQ(answer_to("frobnicate", system).complaints, "Unknown object 'frobnicate'.\n");
  EXPECT_EQ(answer_to("link shov", system).complaints, "Unknown link command 'shov'.\n");
  EXPECT_EQ(answer_to("link shov", system).status, 0);
  EXPECT_EQ(answer_to("link show rxe0/1 extra", system).complaints, "Unknown parameter 'extra'.\n");
  EXPECT_EQ(answer_to("-x", system).status, 1);
}

TEST(RdmaGrammar, HelpAsksNobody) {
  FakeSystem system;
  for (const char* line :
       {"", "help", "link help", "res help", "stat help", "sys help", "dev help", "mon help"}) {
    EXPECT_THAT(answer_to(line, system).out, testing::StartsWith("Usage: rdma")) << line;
  }
  EXPECT_EQ(system.asked, 0);
}

TEST(RdmaGrammar, ADevicesPortIsCheckedAsIproute2Does) {
  FakeSystem system;
  for (const char* line :
       {"link show rxe0", "link show rxe0/0", "link show rxe0/2", "link show rxe0/x", "link show no/1",
        "res show qp link rxe0/0", "res show qp link rxe0/99999999999999999999"}) {
    EXPECT_EQ(answer_to(line, system).complaints, "Wrong device name\n") << line;
    EXPECT_EQ(answer_to(line, system).status, 1) << line;
  }
}

TEST(RdmaMonitor, TellsWhatHasChanged) {
  FakeSystem system;
  control::Link link = system.now.links[0].link;
  control::Link renamed = link;
  renamed.name = "new0";
  system.seen = {{}, {link}, {renamed}, {}};
  EXPECT_EQ(answer_to("monitor", system).out,
            "[REGISTER]\tdev 3 rxe0\n[NETDEV_ATTACH]\tdev 3 rxe0 port 1 netdev 2 eth0\n[RENAME]\tdev 3 new0\n"
            "[UNREGISTER]\tdev 3 new0\n");
}

TEST(RdmaBatch, LinesHaveCommentsContinuationsAndQuotes) {
  std::istringstream text("link # all\n\nres show \\\nqp\n'a b' \"c\"\n'open\n");
  BatchLine line;
  std::vector<std::vector<std::string>> read;
  while (line.read(text) && line.words()) read.push_back(*line.words());
  EXPECT_THAT(read, testing::ElementsAre(testing::ElementsAre("link"), testing::IsEmpty(),
                                         testing::ElementsAre("res", "show", "qp"),
                                         testing::ElementsAre("a b", "c")));
  EXPECT_FALSE(line.words());
  EXPECT_EQ(line.number(), 6);
}

}  // namespace
}  // namespace verbena::commands::rdma

// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "management/mad/agent_messages.h"

namespace verbena::mad {
namespace {

AgentInfo example() {
  constexpr uint8_t kAddress[] = {192, 0, 2, 1};
  return {.version = "1.2.3",
          .description = "host rxe_eth0",
          .path_mtu = 3,
          .asked_by = roce::Address::from_ipv4(kAddress)};
}

TEST(AgentInfo, IsAnsweredWithVersionLinkAndTheAddressOfTheRequest) {
  const Mad request = agent_info_request(7);
  EXPECT_TRUE(is_agent_info_request(header_of(request)));
  const Mad answer = answer_agent_info(request, example());
  EXPECT_EQ(header_of(answer).transaction, 7u);
  EXPECT_TRUE(header_of(answer).is_response());
  EXPECT_EQ(decode_agent_info(answer), example());
}

TEST(AgentInfo, OthersAnswersAreNone) {
  const Mad request = agent_info_request(7);
  EXPECT_FALSE(decode_agent_info(request));
  EXPECT_FALSE(decode_agent_info(begin_answer(request, MadStatus::kUnsupportedAttribute))) << "a kernel's";
  EXPECT_FALSE(decode_agent_info(begin_answer(request))) << "without what it should have";
}

TEST(AgentInfo, LongAndUnprintableTextsAreCutAndReplaced) {
  AgentInfo info = example();
  info.version = std::string(100, '9');
  info.description = "evil\x1b[2J" + std::string(200, 'x');
  const auto read = decode_agent_info(answer_agent_info(agent_info_request(1), info));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->version, std::string(31, '9'));
  EXPECT_EQ(read->description.substr(0, 8), "evil?[2J");
  EXPECT_LE(read->description.size(), kMadBytes);
}

}  // namespace
}  // namespace verbena::mad

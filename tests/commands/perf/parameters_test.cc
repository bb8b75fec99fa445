// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/parameters.h"

#include <chrono>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "commands/perf/endpoint.h"
#include "commands/perf/options.h"

namespace verbena::perf {
namespace {

Parameters parsed(const char* test, std::vector<std::string> words) {
  std::vector<char*> arguments;
  words.insert(words.begin(), test);
  for (std::string& each : words) arguments.push_back(each.data());
  arguments.push_back(nullptr);
  auto found = parse(*find_test(test), test, static_cast<int>(words.size()), arguments.data());
  if (!found.parameters) throw std::invalid_argument("no parameters");
  return *found.parameters;
}

std::vector<std::string> joined(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(PerfParameters, HavePerftestsDefaults) {
  const Parameters write = parsed("ib_write_bw", {"host"});
  EXPECT_EQ(write.size, 65536U);
  EXPECT_EQ(write.iterations, 5000U);
  EXPECT_EQ(write.moderation, 1U) << "large messages complete one by one";
  EXPECT_TRUE(write.is_client() && write.sends() && !write.receives());
  const Parameters latency = parsed("ib_send_lat", {});
  EXPECT_EQ(latency.size, 2U);
  EXPECT_EQ(latency.receive_depth, 512U);
  EXPECT_TRUE(!latency.is_client() && latency.sends() && latency.receives());
  EXPECT_EQ(parsed("ib_send_bw", {"-s", "64"}).moderation, 100U);
  EXPECT_EQ(parsed("ib_send_bw", {"-c", "UD", "-s", "64"}).receive_depth, 1000U);
  EXPECT_FALSE(parsed("ib_write_bw", {"-n", "20001"}).has_peak);
}

TEST(PerfParameters, TakeSizesWithAUnit) {
  EXPECT_EQ(parsed("ib_send_bw", {"-s", "4K"}).size, 4096U);
  EXPECT_EQ(parsed("ib_send_bw", {"--size=2M"}).size, 2U << 20);
  EXPECT_THROW(parsed("ib_send_bw", {"-s", "4G"}), std::invalid_argument);
  EXPECT_THROW(parsed("ib_send_bw", {"-s", "4096M"}), std::invalid_argument);
}

TEST(PerfParameters, NameTheFileOfPerftest) {
  EXPECT_EQ(parsed("ib_send_bw", {}).json_file, "");
  EXPECT_EQ(parsed("ib_send_bw", {"--out_json"}).json_file, "perftest_out.json");
  EXPECT_EQ(parsed("ib_send_bw", {"--out_json_file=own", "--out_json"}).json_file, "own");
  EXPECT_EQ(parsed("ib_send_bw", {"--out_json", "--out_json_file=own"}).json_file, "own");
  EXPECT_THROW(parsed("ib_send_bw", {"--out_json", "--clients=2"}), std::invalid_argument);
  EXPECT_THROW(parsed("ib_send_bw", {"--out_json", "--sweep=sizes", "host"}), std::invalid_argument);
}

TEST(PerfParameters, LetReceivesBeWholeLists) {
  EXPECT_EQ(parsed("ib_send_bw", {"--recv_post_list", "10"}).receives_of_pair(), 510U);
  EXPECT_EQ(parsed("ib_send_bw", {"--recv_post_list=10", "--use-srq", "-q", "3"}).receives_of_pair(), 170U);
  EXPECT_THROW(parsed("ib_send_bw", {"--recv_post_list=3"}), std::invalid_argument) << "of 1000 messages";
  EXPECT_THROW(parsed("ib_send_bw", {"--recv_post_list=20", "-r", "10"}), std::invalid_argument);
  EXPECT_THROW(parsed("ib_send_lat", {"--recv_post_list=2"}), std::invalid_argument);
  EXPECT_THROW(parsed("ib_write_bw", {"--recv_post_list=2"}), std::invalid_argument);
}

TEST(PerfParameters, OfEndlessTestsHaveADurationWithoutMargins) {
  const Parameters endless = parsed("ib_write_bw", {"--run_infinitely"});
  EXPECT_EQ(endless.duration, std::chrono::seconds(5));
  EXPECT_EQ(endless.margin, std::chrono::seconds(0));
  EXPECT_EQ(parsed("ib_send_bw", {"--run_infinitely", "-D", "2"}).duration, std::chrono::seconds(2));
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-b"}, {"-e"}, {"--json"}, {"--sweep=sizes"}, {"--plot"}}) {
    EXPECT_THROW(parsed("ib_send_bw", joined(words, {"--run_infinitely"})), std::invalid_argument)
        << words.front();
  }
  EXPECT_THROW(parsed("ib_send_lat", {"--run_infinitely"}), std::invalid_argument);
}

TEST(PerfParameters, OfXrcHaveQueuePairsForEachDirection) {
  const Parameters one_way = parsed("ib_send_bw", {"-c", "XRC", "-q", "3"});
  EXPECT_EQ(one_way.pairs_made(), 3U);
  EXPECT_TRUE(one_way.uses_srq);
  EXPECT_EQ(parsed("ib_write_bw", {"-c", "XRC", "-b", "-q", "3"}).pairs_made(), 6U);
  EXPECT_EQ(parsed("ib_read_lat", {"-c", "XRC"}).pairs_made(), 2U);
  EXPECT_EQ(parsed("ib_read_lat", {}).pairs_made(), 1U);
  EXPECT_THROW(parsed("ib_send_bw", {"-c", "XRC", "-R"}), std::invalid_argument);
}

TEST(PerfParameters, TakeAMulticastGroupAsTextOrAsItsBytes) {
  const Parameters group = parsed("ib_send_bw", {"-g", "-M", "ff05::4791"});
  EXPECT_EQ(group.transport, verbena::ud);
  EXPECT_TRUE(group.joins_group());
  EXPECT_EQ(group.group.raw[15], 0x91);
  const Parameters numbers =
      parsed("ib_send_lat", {"-g", "-M", "255:5:0:0:0:0:0:0:0:0:0:0:0:0:0x47:145", "host"});
  EXPECT_TRUE(numbers.joins_group()) << "both ends of a latency test receive";
  EXPECT_EQ(std::vector(std::begin(numbers.group.raw), std::end(numbers.group.raw)),
            std::vector(std::begin(group.group.raw), std::end(group.group.raw)));
  EXPECT_FALSE(parsed("ib_send_bw", {"-g", "host"}).joins_group());
  EXPECT_EQ(parsed("ib_send_lat", {"-g"}).group.raw[15], 0);
  EXPECT_EQ(parsed("ib_send_lat", {"-g", "host"}).group.raw[15], 1) << "perftest's group of the client";
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"-b"}, {"-q", "2"}, {"-R"}, {"--sweep=sizes"}, {"-M", "256:0"}, {"-M", "1:2:3"}, {"-M", "x"}}) {
    EXPECT_THROW(parsed("ib_send_bw", joined(words, {"-g"})), std::invalid_argument) << words.front();
  }
  EXPECT_THROW(parsed("ib_send_bw", {"-M", "ff05::1"}), std::invalid_argument) << "without -g";
  EXPECT_THROW(parsed("ib_write_bw", {"-g"}), std::invalid_argument);
}

TEST(PerfParameters, LetOnlyAServerOfBandwidthHaveSeveralClients) {
  EXPECT_EQ(parsed("ib_read_bw", {"--clients", "3"}).clients, 3U);
  EXPECT_THROW(parsed("ib_read_bw", {"--clients", "3", "host"}), std::invalid_argument);
  EXPECT_THROW(parsed("ib_read_lat", {"--clients", "3"}), std::invalid_argument);
  for (const char* each : {"-g", "-R", "-z", "--run_infinitely", "--sweep=qps", "--plot", "--mmap=file"})
    EXPECT_THROW(parsed("ib_send_bw", {"--clients=2", each}), std::invalid_argument) << each;
}

TEST(PerfParameters, TakeAFileForPlotsAnywhereBehindTheTest) {
  const Parameters plotting = parsed("ib_send_lat", {"--plot", "a.svg", "host"});
  EXPECT_TRUE(plotting.plots);
  EXPECT_EQ(plotting.plot_file, "a.svg");
  EXPECT_EQ(plotting.server, "host");
  EXPECT_EQ(parsed("ib_send_lat", {"--plot", "host"}).plot_file, "");
  EXPECT_EQ(parsed("ib_send_lat", {"host.svg"}).server, "host.svg");
  EXPECT_THROW(parsed("ib_send_lat", {"--plot", "--json"}), std::invalid_argument);
  EXPECT_NO_THROW(parsed("ib_send_lat", {"--plot", "--json", "a.svg"}));
}

TEST(PerfParameters, ThatContradictEachOtherAreRefused) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"-c", "UD"},
                                                                                     {"-c", "UC"},
                                                                                     {"-s", "4"},
                                                                                     {"-a"},
                                                                                     {"-I", "4"},
                                                                                     {"-D", "4", "-f", "2"},
                                                                                     {"-l", "3"},
                                                                                     {"-D", "4", "-e"},
                                                                                     {"-R", "-c", "UC"},
                                                                                     {"-T", "3"},
                                                                                     {"--use-srq"},
                                                                                     {"--aes_xts"},
                                                                                     {"one", "two"}}) {
    EXPECT_THROW(parsed("ib_atomic_bw", words), std::invalid_argument) << words.front();
  }
  EXPECT_THROW(parsed("ib_send_lat", {"-b"}), std::invalid_argument);
  EXPECT_THROW(parsed("ib_send_lat", {"-q", "2"}), std::invalid_argument);
}

const std::vector<std::string> kRawServer{"--server", "-B", "02:00:00:00:00:01"};
const std::vector<std::string> kRawClient{"--client", "-B", "02:00:00:00:00:02", "-E", "02:00:00:00:00:01"};

TEST(RawParameters, SayWhichSideThisEndIs) {
  const Parameters server = parsed("raw_ethernet_bw", kRawServer);
  EXPECT_TRUE(!server.is_client() && !server.sends() && server.receives());
  EXPECT_EQ(server.receive_depth, 512U);
  const Parameters client = parsed("raw_ethernet_bw", kRawClient);
  EXPECT_TRUE(client.is_client() && client.sends() && !client.receives());
  EXPECT_FALSE(parsed("raw_ethernet_bw", joined(kRawClient, {"--reversed"})).is_client());
}

TEST(RawParameters, OfLatencyTestsSendAndReceiveAtBothEnds) {
  for (const char* test : {"raw_ethernet_lat", "raw_ethernet_burst_lat"}) {
    const Parameters server = parsed(test, joined(kRawServer, {"-E", "02:00:00:00:00:02"}));
    EXPECT_TRUE(server.sends() && server.receives()) << test;
    EXPECT_THROW(parsed(test, kRawServer), std::invalid_argument) << "no destination of answers";
  }
  EXPECT_EQ(parsed("raw_ethernet_lat", kRawClient).send_depth, 1U);
  EXPECT_EQ(parsed("raw_ethernet_burst_lat", kRawClient).send_depth, 128U);
}

TEST(RawParameters, OfBurstsNeedAnswers) {
  EXPECT_EQ(parsed("raw_ethernet_burst_lat", joined(kRawClient, {"--reply_every", "200"})).raw->reply_every,
            200U);
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--reply_every", "201"}, {"-D", "2"}, {"-e"}, {"--latency_gap", "5"}}) {
    EXPECT_THROW(parsed("raw_ethernet_burst_lat", joined(kRawClient, words)), std::invalid_argument)
        << words.front();
  }
  EXPECT_THROW(parsed("raw_ethernet_lat", joined(kRawClient, {"--reply_every", "2"})), std::invalid_argument);
}

TEST(RawParameters, LetTheAdapterPaceInKilobits) {
  const std::vector<std::string> pacing{"--rate_limit_type=PP", "--rate_limit=2", "--rate_units=M"};
  const Parameters paced = parsed("raw_ethernet_bw", joined(kRawClient, pacing));
  EXPECT_EQ(paced.raw->pacing, 16384U);
  EXPECT_EQ(paced.rate_limit, 0) << "the program does not limit the rate, too";
  EXPECT_THROW(parsed("raw_ethernet_bw", joined(kRawClient, {"--rate_limit_type=PP", "--rate_limit=2"})),
               std::invalid_argument);
  EXPECT_THROW(parsed("ib_send_bw", {"--rate_limit_type=PP"}), std::invalid_argument);
}

TEST(RawParameters, LetAForwarderSendAsManyFramesAsItReceives) {
  const Parameters forwarder = parsed("raw_ethernet_bw", joined(kRawServer, {"-v", "-r", "64"}));
  EXPECT_TRUE(forwarder.sends() && forwarder.receives());
  EXPECT_EQ(forwarder.send_depth, 64U);
  EXPECT_EQ(forwarder.moderation, 1U);
  EXPECT_THROW(parsed("raw_ethernet_bw", joined(kRawServer, {"-v", "-e"})), std::invalid_argument);
  EXPECT_THROW(parsed("raw_ethernet_lat", joined(kRawClient, {"-v"})), std::invalid_argument);
}

TEST(RawParameters, GiveTheFramesOfBothEndsTheSameFields) {
  const std::vector<std::string> headers{"-J", "10.9.0.1", "-j", "10.9.0.2", "-K", "4000", "-k", "4001"};
  const Parameters client = parsed("raw_ethernet_bw", joined(kRawClient, headers));
  const Parameters server = parsed("raw_ethernet_bw", joined(kRawServer, headers));
  const FrameFields sent = sent_frame(client, 0), expected = received_frame(server, 0);
  EXPECT_EQ(sent.source, (MacAddress{2, 0, 0, 0, 0, 2}));
  EXPECT_EQ(sent.destination, (MacAddress{2, 0, 0, 0, 0, 1}));
  EXPECT_EQ(sent.destination, expected.destination);
  EXPECT_EQ(text_of(sent.ip->source), "10.9.0.2");
  EXPECT_EQ(sent.ip->source, expected.ip->source);
  EXPECT_EQ(sent.ports->destination, 4000);
  EXPECT_EQ(expected.ports->destination, 4000);
}

TEST(RawParameters, TakeTheOtherNamesOfAddressesAndPorts) {
  const Parameters client =
      parsed("raw_ethernet_bw", {"--client", "--local_mac", "02:00:00:00:00:02", "--remote_mac",
                                 "02:00:00:00:00:01", "--local_ip", "10.9.0.2", "--remote_ip", "10.9.0.1",
                                 "--local_port", "4001", "--remote_port", "4000"});
  const FrameFields sent = sent_frame(client, 0);
  EXPECT_EQ(text_of(sent.ip->destination), "10.9.0.1");
  EXPECT_EQ(sent.ports->source, 4001);
}

TEST(RawParameters, LetEachFlowHaveItsOwnPorts) {
  const Parameters client =
      parsed("raw_ethernet_bw", joined(kRawClient, {"-J", "10.9.0.1", "-j", "10.9.0.2", "-K", "4000", "-k",
                                                    "5000", "--flows", "3", "--flows_burst", "2"}));
  EXPECT_EQ(client.raw->frames(), 6U);
  EXPECT_EQ(sent_frame(client, 1).ports->destination, 4000);
  EXPECT_EQ(sent_frame(client, 2).ports->destination, 4001);
  EXPECT_EQ(sent_frame(client, 5).ports->source, 5002);
  EXPECT_EQ(sent_frame(client, 6).ports->destination, 4000);
}

TEST(RawParameters, VaryThePriorityOfVlanTags) {
  const Parameters client = parsed("raw_ethernet_bw", joined(kRawClient, {"--vlan_pcp", "8"}));
  EXPECT_EQ(client.raw->frames(), 8U);
  EXPECT_EQ(sent_frame(client, 3).vlan_priority, 3);
  EXPECT_EQ(sent_frame(parsed("raw_ethernet_bw", joined(kRawClient, {"--vlan_en"})), 3).vlan_priority, 1);
}

TEST(RawParameters, SendToTheMulticastAddressOfTheGroup) {
  const Parameters client =
      parsed("raw_ethernet_bw", {"--client", "-B", "02:00:00:00:00:02", "-J", "239.129.2.3", "--raw_mcast"});
  EXPECT_EQ(sent_frame(client, 0).destination, (MacAddress{0x01, 0x00, 0x5e, 0x01, 2, 3}));
}

TEST(RawParameters, ThatContradictEachOtherAreRefused) {
  EXPECT_THROW(parsed("raw_ethernet_bw", {"-B", "02:00:00:00:00:02"}), std::invalid_argument) << "no side";
  EXPECT_THROW(parsed("raw_ethernet_bw", {"--server"}), std::invalid_argument) << "no MAC address";
  EXPECT_THROW(parsed("raw_ethernet_bw", {"--client", "-B", "02:00:00:00:00:02"}), std::invalid_argument)
      << "no destination";
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-K", "4000"},
                                             {"-K", "4000", "-k", "4001"},
                                             {"--tcp"},
                                             {"-J", "10.9.0"},
                                             {"--raw_ipv6", "-J", "10.9.0.1"},
                                             {"--flows", "2"},
                                             {"--flow_label", "1"},
                                             {"-c", "UC"},
                                             {"-R"},
                                             {"-a"},
                                             {"-x", "1"},
                                             {"-G"},
                                             {"--verify"},
                                             {"--sweep=sizes"},
                                             {"--vlan_pcp", "9"}}) {
    EXPECT_THROW(parsed("raw_ethernet_bw", joined(kRawClient, words)), std::invalid_argument)
        << words.front();
  }
  EXPECT_THROW(parsed("ib_send_bw", {"-L", "3"}), std::invalid_argument);
}

TEST(PerfLayout, LetsSmallMessagesCycleThroughABuffer) {
  const Layout layout{4096, 64};
  EXPECT_EQ(layout.step(1), 64U);
  EXPECT_EQ(layout.length(1), 64U);
  EXPECT_EQ(layout.length(2048), 2U);
  EXPECT_EQ(layout.length(2049), 1U);
  EXPECT_EQ(layout.buffer(1), 4096U);
  EXPECT_EQ(layout.buffer(65537), 65600U);
}

}  // namespace
}  // namespace verbena::perf

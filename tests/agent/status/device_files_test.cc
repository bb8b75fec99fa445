// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "agent/status/state_tree.h"
#include "base/format.h"
#include "control/model/device_counters.h"
#include "management/mad/subnet.h"

namespace verbena::agent {
namespace {

control::Link example() {
  control::Link link;
  link.name = "rxe_eth0";
  link.device_index = 3;
  link.netdev = "eth0";
  link.interface_index = 2;
  link.mac = {0x52, 0x54, 0x00, 0x77, 0x00, 0x01};
  link.mtu = 1500;
  link.up = true;
  const uint8_t ipv4[4] = {10, 77, 0, 11};
  roce::Address link_local;
  link_local.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0, 0xff, 0xfe, 0x77, 0, 1};
  link.gids = {{0, link_local}, {2, roce::Address::from_ipv4(ipv4)}};
  return link;
}

std::map<std::string, std::string> contents(const Folder& folder) {
  std::map<std::string, std::string> by_path;
  for (const FolderEntry& entry : folder) by_path[entry.path] = entry.text;
  return by_path;
}

TEST(DeviceFiles, AreInTheKernelsFormats) {
  const auto files = contents(device_folder(example(), "1.2.3"));
  const std::map<std::string, std::string> expected = {
      {"infiniband/rxe_eth0/node_type", "1: CA\n"},
      {"infiniband/rxe_eth0/node_guid", "5054:00ff:fe77:0001\n"},
      {"infiniband/rxe_eth0/sys_image_guid", "5054:00ff:fe77:0001\n"},
      {"infiniband/rxe_eth0/fw_ver", "1.2.3\n"},
      {"infiniband/rxe_eth0/parent", "eth0\n"},
      {"infiniband/rxe_eth0/board_id", "verbena\n"},
      {"infiniband/rxe_eth0/device", "../../../rxe_eth0"},
      {"infiniband/rxe_eth0/subsystem", "../../../../../class/infiniband"},
      {"infiniband/rxe_eth0/ports/1/state", "4: ACTIVE\n"},
      {"infiniband/rxe_eth0/ports/1/phys_state", "5: LinkUp\n"},
      {"infiniband/rxe_eth0/ports/1/rate", "10 Gb/sec (1X FDR10)\n"},
      {"infiniband/rxe_eth0/ports/1/lid",
       verbena::format("{:#x}\n", mad::Subnet::usual_lid(0x5054'00ff'fe77'0001))},
      {"infiniband/rxe_eth0/ports/1/sm_lid", "0x1\n"},
      {"infiniband/rxe_eth0/ports/1/cap_mask", "0x00010000\n"},
      {"infiniband/rxe_eth0/ports/1/link_layer", "Ethernet\n"},
      {"infiniband/rxe_eth0/ports/1/pkeys/0", "0xffff\n"},
      {"infiniband/rxe_eth0/ports/1/gids/0", "fe80:0000:0000:0000:5054:00ff:fe77:0001\n"},
      {"infiniband/rxe_eth0/ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n"},
      {"infiniband/rxe_eth0/ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:0a4d:000b\n"},
      {"infiniband/rxe_eth0/ports/1/gids/15", "0000:0000:0000:0000:0000:0000:0000:0000\n"},
      {"infiniband/rxe_eth0/ports/1/gid_attrs/types/2", "RoCE v2\n"},
      {"infiniband/rxe_eth0/ports/1/gid_attrs/ndevs/2", "eth0\n"},
      {"net/eth0/address", "52:54:00:77:00:01\n"},
      {"net/eth0/mtu", "1500\n"},
  };
  for (const auto& [path, text] : expected)
    EXPECT_EQ(files.count(path) ? files.at(path) : "missing", text) << path;
  EXPECT_EQ(files.count("infiniband/rxe_eth0/ports/1/gids/16"), 0u);
}

// The files can be opened but not read, as in the kernel.
TEST(DeviceFiles, OfAnEmptyIndexOfTheGidTableCannotBeRead) {
  const Folder folder = device_folder(example(), "1");
  int found = 0;
  for (const FolderEntry& entry : folder) {
    if (!entry.path.ends_with("gid_attrs/types/1") && !entry.path.ends_with("gid_attrs/ndevs/15")) continue;
    ++found;
    EXPECT_TRUE(entry.is_link);
    std::ifstream file(entry.text);
    EXPECT_TRUE(file.is_open()) << entry.text;
    char byte = 0;
    errno = 0;
    file.read(&byte, 1);
    EXPECT_EQ(errno, EINVAL) << entry.text;
  }
  EXPECT_EQ(found, 2);
}

TEST(DeviceFiles, SayWhenThePortIsDown) {
  control::Link link = example();
  link.up = false;
  const auto files = contents(device_folder(link, "1"));
  EXPECT_EQ(files.at("infiniband/rxe_eth0/ports/1/state"), "1: DOWN\n");
  EXPECT_EQ(files.at("infiniband/rxe_eth0/ports/1/phys_state"), "3: Disabled\n");
}

TEST(DeviceFiles, NameTheDeviceOfAVerbsDevice) {
  EXPECT_EQ(uverbs_name(example()), "uverbs3");
  const auto files = contents(device_folder(example(), "1"));
  EXPECT_EQ(files.at("infiniband_verbs/uverbs3/ibdev"), "rxe_eth0\n");
  EXPECT_EQ(files.at("infiniband_verbs/uverbs3/dev"), "231:195\n");
  EXPECT_EQ(files.at("infiniband_verbs/uverbs3/abi_version"), "1\n");
  EXPECT_EQ(files.at("infiniband_verbs/uverbs3/device"), "../../../rxe_eth0");
  EXPECT_EQ(files.at("infiniband_mad/umad3/ibdev"), "rxe_eth0\n");
  EXPECT_EQ(files.at("infiniband_mad/issm3/dev"), "231:67\n");
}

TEST(Guid, OfANetdevWithoutAMacAddressIsMadeFromItsIndex) {
  control::Link link = example();
  link.mac = {};
  const auto guid = control::guid_of(link);
  EXPECT_EQ(guid[0] & 2, 2);
  EXPECT_EQ(guid[7], 2);
  link.interface_index = 3;
  EXPECT_NE(control::guid_of(link), guid);
}

TEST(NamedCounters, DoNotGoBelowZero) {
  control::DeviceCounters counters;
  counters[transport::kMulticastSent] = 5;  // read a moment later than the total of packets
  counters[transport::kSentPackets] = 4;
  for (const control::NamedCounter& counter : control::kNamedCounters) {
    EXPECT_LT(counter.value(counters), 6u) << counter.path;
  }
}

}  // namespace
}  // namespace verbena::agent

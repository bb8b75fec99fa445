// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "commands/doctor/peer.h"

namespace verbena::commands::doctor {
namespace {

using testing::HasSubstr;
using testing::Not;

PeerLook answered() {
  PeerLook look;
  look.address = "192.0.2.2";
  look.source = "192.0.2.1";
  look.has_link = true;
  look.link = "rxe_eth0";
  look.path_mtu = 1024;
  look.kind = PeerKind::kVerbena;
  look.info = {.version = VERBENA_VERSION, .description = "there rxe_eth0", .path_mtu = 3, .asked_by = {}};
  look.round_trip = std::chrono::microseconds(120);
  look.echoes = true;
  look.widest = 1024;
  return look;
}

PeerLook silent() {
  PeerLook look = answered();
  look.kind = PeerKind::kNone;
  return look;
}

std::string report_of(const PeerLook& look, int expected_status) {
  Findings findings;
  report_peer(look, findings);
  EXPECT_EQ(exit_status(findings), expected_status) << as_text(findings);
  return as_text(findings);
}

TEST(DoctorPeer, SaysWhatAnswersAndWhatFits) {
  const std::string text = report_of(answered(), 0);
  EXPECT_THAT(text,
              HasSubstr("192.0.2.2 answers on UDP port 4791, so packets go both ways by rxe_eth0: Verbena"));
  EXPECT_THAT(text, HasSubstr("120 us"));
  EXPECT_THAT(text, HasSubstr("a path MTU of 1024 fits on the way"));
  EXPECT_THAT(text, Not(HasSubstr("versions differ")));
}

TEST(DoctorPeer, TellsOtherStacksApart) {
  PeerLook look = answered();
  look.kind = PeerKind::kOther;
  EXPECT_THAT(report_of(look, 0), HasSubstr("RoCEv2 of a kernel, such as rdma_rxe"));
  look.kind = PeerKind::kPerformance;
  EXPECT_THAT(report_of(look, 0), HasSubstr("an RDMA adapter"));
  look = answered();
  look.info.version = "0.0.1";
  EXPECT_THAT(report_of(look, 0), HasSubstr("the versions differ, which works: 0.0.1 there"));
}

TEST(DoctorPeer, APathMtuThatDoesNotFitIsAFault) {
  PeerLook look = answered();
  look.widest = 512;
  const std::string text = report_of(look, 1);
  EXPECT_THAT(text, HasSubstr("packets of 1104 bytes none come back; a path MTU of 512 fits"));
  EXPECT_THAT(text, HasSubstr("perftest -m 512"));
  look.widest = 0;
  EXPECT_THAT(report_of(look, 1), HasSubstr("not even those of a path MTU of 256"));
}

TEST(DoctorPeer, DifferentPathMtusCostSomething) {
  PeerLook look = answered();
  look.info.path_mtu = 2;
  EXPECT_THAT(report_of(look, 1), HasSubstr("the path MTU here is 1024, there 512"));
}

TEST(DoctorPeer, WithoutEchoesTheSizeIsUnknown) {
  PeerLook look = answered();
  look.widest.reset();
  look.echoes = false;
  EXPECT_THAT(report_of(look, 0), HasSubstr("answers no ICMP echoes"));
  look.echoes.reset();
  EXPECT_THAT(report_of(look, 0), HasSubstr("ping_group_range"));
}

TEST(DoctorPeer, SilenceHasItsReason) {
  PeerLook look = silent();
  look.udp_error = ECONNREFUSED;
  EXPECT_THAT(report_of(look, 1), HasSubstr("nobody listens on UDP port 4791"));
  look.udp_error = EHOSTUNREACH;
  EXPECT_THAT(report_of(look, 1), HasSubstr("no host answers at 192.0.2.2"));
  look.udp_error = EPERM;
  EXPECT_THAT(report_of(look, 1), HasSubstr("firewall lets nothing out"));
  look.udp_error = 0;
  EXPECT_THAT(report_of(look, 1), HasSubstr("let UDP port 4791 in at both ends"));
  EXPECT_THAT(report_of(look, 1), HasSubstr("on a host with rdma_rxe, 'rdma link'"));
  look.echoes = false;
  EXPECT_THAT(report_of(look, 1), HasSubstr("neither from UDP port 4791 nor an ICMP echo"));
}

TEST(DoctorPeer, SaysWhatIsAmissAtThisEnd) {
  PeerLook look = silent();
  look.is_refused = true;
  EXPECT_THAT(report_of(look, 1), HasSubstr("verbena link set rxe_eth0 peers any"));
  look.is_up = false;
  EXPECT_THAT(report_of(look, 1), HasSubstr("link rxe_eth0, which leads to 192.0.2.2, is down"));
  look.has_link = false;
  EXPECT_THAT(report_of(look, 1), HasSubstr("leave from 192.0.2.1, which is no link's address"));
  look.no_wire = "it is taken";
  EXPECT_THAT(report_of(look, 1), HasSubstr("no UDP port 4791: it is taken"));
  look.route_error = ENETUNREACH;
  EXPECT_THAT(report_of(look, 1), HasSubstr("no way to 192.0.2.2: Network is unreachable"));
}

}  // namespace
}  // namespace verbena::commands::doctor

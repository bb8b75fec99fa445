// SPDX-License-Identifier: Apache-2.0
// Multicast groups: argument checks, delivery of copies, and the kernel's group membership.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/objects/support/endpoint.h"
#include "adapter/objects/support/environment.h"
#include "adapter/objects/support/helper.h"
#include "agent/network_namespace.h"
#include "wire/roce/capture.h"
#include "wire/roce/icrc.h"
#include "wire/roce/packet.h"

namespace verbena::adapter::testing {
namespace {

constexpr size_t kGrh = 40;
constexpr const char* kGroup = "::ffff:239.1.2.3";

ibv_gid gid_of(const char* text) {
  ibv_gid gid{};
  EXPECT_EQ(inet_pton(AF_INET6, text, gid.raw), 1) << text;
  return gid;
}

int attach(Endpoint& endpoint, const char* group = kGroup, uint16_t lid = 0) {
  const ibv_gid gid = gid_of(group);
  return ibv_attach_mcast(endpoint.qp.get(), &gid, lid);
}
int detach(Endpoint& endpoint, const char* group = kGroup, uint16_t lid = 0) {
  const ibv_gid gid = gid_of(group);
  return ibv_detach_mcast(endpoint.qp.get(), &gid, lid);
}

// An endpoint that is ready to send to the group and to receive; not attached.
struct Member : Endpoint {
  explicit Member(const char* group = kGroup, Options with = {.type = IBV_QPT_UD}) : Endpoint(with) {
    Address to{};
    to.gid = gid_of(group);
    to.qpn = 0xffffff;
    connect(to);
    for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(post_receive(i, piece(2048 * (i + 1), 2048)), 0);
  }
  // Sends a datagram of this size to the group.
  void send(size_t bytes) {
    const ibv_sge data = piece(0, bytes);
    ASSERT_EQ(post_send(send_request(99), {&data, 1}), 0);
    const ibv_wc wc = completion_of(IBV_WC_SEND);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  ibv_wc received() { return completion_of(IBV_WC_RECV); }
  const std::byte* datagram(const ibv_wc& wc) { return buffer() + 2048 * (wc.wr_id + 1); }

 private:
  // The copy of one's own datagram may come before its send completion.
  ibv_wc completion_of(ibv_wc_opcode opcode) {
    const auto kept =
        std::find_if(early_.begin(), early_.end(), [&](const ibv_wc& wc) { return wc.opcode == opcode; });
    if (kept != early_.end()) {
      const ibv_wc wc = *kept;
      early_.erase(kept);
      return wc;
    }
    for (;;) {
      const ibv_wc wc = completion();
      if (wc.opcode == opcode || wc.status == IBV_WC_GENERAL_ERR) return wc;
      early_.push_back(wc);
    }
  }
  std::vector<ibv_wc> early_;
};

// Whether the kernel is a member of the group on any device of this namespace.
bool joined_ipv4(const char* group) {
  in_addr address{};
  inet_pton(AF_INET, group, &address);
  std::ostringstream hex;  // as in /proc/net/igmp
  hex << std::hex << std::uppercase;
  hex.width(8);
  hex.fill('0');
  hex << address.s_addr;
  std::ifstream file("/proc/thread-self/net/igmp");
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  return all.find(hex.str()) != std::string::npos;
}

// ---- argument checks

TEST(MulticastAttachment, IsForDatagramsAndGroups) {
  Endpoint reliable({.type = IBV_QPT_RC});
  EXPECT_EQ(attach(reliable), EINVAL);
  Endpoint endpoint({.type = IBV_QPT_UD});
  EXPECT_EQ(attach(endpoint, "::ffff:10.0.0.1"), EINVAL);
  EXPECT_EQ(attach(endpoint, "fe80::1"), EINVAL);
  EXPECT_EQ(attach(endpoint, "::"), EINVAL);
  EXPECT_EQ(detach(endpoint), EINVAL) << "attached to nothing";
}

TEST(MulticastAttachment, NeedsNoStateOfTheQueuePair) {
  Endpoint endpoint({.type = IBV_QPT_UD});
  EXPECT_EQ(endpoint.state(), IBV_QPS_RESET);
  EXPECT_EQ(attach(endpoint), 0);
  EXPECT_EQ(detach(endpoint), 0);
}

TEST(MulticastAttachment, TwiceIsOnce) {
  Endpoint endpoint({.type = IBV_QPT_UD});
  EXPECT_EQ(attach(endpoint), 0);
  EXPECT_EQ(attach(endpoint), 0);
  EXPECT_EQ(detach(endpoint), 0);
  EXPECT_EQ(detach(endpoint), EINVAL);
}

TEST(MulticastAttachment, IsKnownByItsLidToo) {
  Endpoint endpoint({.type = IBV_QPT_UD});
  EXPECT_EQ(attach(endpoint, kGroup, 0xc001), 0);
  EXPECT_EQ(attach(endpoint, kGroup, 0xc002), 0);
  EXPECT_EQ(detach(endpoint, kGroup, 0xc003), EINVAL);
  EXPECT_EQ(detach(endpoint, kGroup, 0xc001), 0);
  EXPECT_TRUE(joined_ipv4("239.1.2.3"));
  EXPECT_EQ(detach(endpoint, kGroup, 0xc002), 0);
  EXPECT_FALSE(joined_ipv4("239.1.2.3"));
}

TEST(MulticastAttachment, KeepsTheQueuePairBusy) {
  Endpoint endpoint({.type = IBV_QPT_UD});
  ASSERT_EQ(attach(endpoint), 0);
  EXPECT_EQ(ibv_destroy_qp(endpoint.qp.get()), EBUSY);
  ASSERT_EQ(detach(endpoint), 0);
}

TEST(MulticastAttachment, EndsWithTheContext) {
  {
    Endpoint endpoint({.type = IBV_QPT_UD});
    ASSERT_EQ(attach(endpoint), 0);
    // Closing the context destroys the rest, so the other owners release theirs.
    endpoint.qp.release();  // NOLINT(bugprone-unused-return-value)
    endpoint.cq.release();  // NOLINT(bugprone-unused-return-value)
    endpoint.mr.release();  // NOLINT(bugprone-unused-return-value)
    endpoint.pd.release();  // NOLINT(bugprone-unused-return-value)
  }
  EXPECT_FALSE(joined_ipv4("239.1.2.3"));
}

TEST(MulticastLimits, AreReported) {
  Context context = open_device();
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(context.get(), &attr), 0);
  EXPECT_GE(attr.max_mcast_grp, 512);
  EXPECT_GE(attr.max_mcast_qp_attach, 56);
  EXPECT_GE(attr.max_total_mcast_qp_attach, attr.max_mcast_grp);
}

// ---- membership

TEST(MulticastMembership, IsOfTheGroupsUsersTogether) {
  Endpoint a({.type = IBV_QPT_UD});
  Endpoint b({.type = IBV_QPT_UD});
  EXPECT_FALSE(joined_ipv4("239.1.2.4"));
  ASSERT_EQ(attach(a, "::ffff:239.1.2.4"), 0);
  ASSERT_EQ(attach(b, "::ffff:239.1.2.4"), 0);
  EXPECT_TRUE(joined_ipv4("239.1.2.4"));
  ASSERT_EQ(detach(a, "::ffff:239.1.2.4"), 0);
  EXPECT_TRUE(joined_ipv4("239.1.2.4"));
  ASSERT_EQ(detach(b, "::ffff:239.1.2.4"), 0);
  EXPECT_FALSE(joined_ipv4("239.1.2.4"));
}

const HelperBody listener("multicast-listener", [](Line& line) {
  Member member;
  ASSERT_EQ(attach(member), 0);
  line.tell(true);
  const uint32_t wanted = line.hear<uint32_t>();
  for (uint32_t i = 0; i < wanted; ++i) {
    const ibv_wc wc = member.received();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    line.tell(wc.byte_len);
  }
  line.await_end();
  ASSERT_EQ(detach(member), 0);
});

TEST(MulticastMembership, EndsWithAKilledProcess) {
  Helper helper = Helper::start("multicast-listener");
  helper.line().hear<bool>();
  ASSERT_TRUE(joined_ipv4("239.1.2.3"));
  helper.kill(SIGKILL);
  helper.wait();
  EXPECT_TRUE(eventually([] { return !joined_ipv4("239.1.2.3"); })) << "somebody keeps a copy of the socket";
}

TEST(MulticastMembership, IsNotAForkedChilds) {
  Endpoint endpoint({.type = IBV_QPT_UD});
  ASSERT_EQ(attach(endpoint), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (;;) ::pause();
  }
  EXPECT_EQ(detach(endpoint), 0);
  EXPECT_TRUE(eventually([] { return !joined_ipv4("239.1.2.3"); })) << "the child has inherited it";
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

// ---- delivery

TEST(MulticastDelivery, GoesToEveryAttachedQueuePairAndNobodyElse) {
  Member sender;
  Member a;
  Member b;
  Member other_group("::ffff:239.1.2.9");
  Member unattached;
  ASSERT_EQ(attach(a), 0);
  ASSERT_EQ(attach(b), 0);
  ASSERT_EQ(attach(other_group, "::ffff:239.1.2.9"), 0);
  fill_random(sender.bytes().first(1000), 5);
  sender.send(1000);
  for (Member* member : {&a, &b}) {
    const ibv_wc wc = member->received();
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, kGrh + 1000);
    EXPECT_EQ(wc.src_qp, sender.qp->qp_num);
    EXPECT_EQ(std::memcmp(member->datagram(wc) + kGrh, sender.buffer(), 1000), 0);
  }
  EXPECT_TRUE(other_group.quiet());
  EXPECT_TRUE(unattached.quiet());
  EXPECT_TRUE(sender.quiet());
  for (Member* member : {&a, &b}) EXPECT_EQ(detach(*member), 0);
  EXPECT_EQ(detach(other_group, "::ffff:239.1.2.9"), 0);
}

TEST(MulticastDelivery, ShowsTheGroupInTheGlobalRouteHeader) {
  Member sender;
  Member receiver;
  ASSERT_EQ(attach(receiver), 0);
  sender.send(4);
  const ibv_wc wc = receiver.received();
  iphdr header;
  std::memcpy(&header, receiver.datagram(wc) + 20, sizeof header);
  EXPECT_EQ(header.daddr, inet_addr("239.1.2.3"));
  EXPECT_EQ(header.saddr, inet_addr("127.0.0.1"));
  EXPECT_TRUE((wc.wc_flags & IBV_WC_GRH) != 0);
  EXPECT_EQ(detach(receiver), 0);
}

TEST(MulticastDelivery, ComesBackToASenderThatIsAttached) {
  Member member;
  ASSERT_EQ(attach(member), 0);
  member.send(10);
  EXPECT_EQ(member.received().src_qp, member.qp->qp_num);
  EXPECT_EQ(detach(member), 0);
}

TEST(MulticastDelivery, DoesNotComeBackToASenderThatBlocksIt) {
  Member blocking(kGroup, {.type = IBV_QPT_UD, .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB});
  Member other;
  ASSERT_EQ(attach(blocking), 0);
  ASSERT_EQ(attach(other), 0);
  blocking.send(10);
  EXPECT_EQ(other.received().src_qp, blocking.qp->qp_num);
  other.send(11);
  EXPECT_EQ(blocking.received().src_qp, other.qp->qp_num) << "and nothing of its own before";
  EXPECT_EQ(detach(blocking), 0);
  EXPECT_EQ(detach(other), 0);
}

TEST(MulticastDelivery, ChecksTheKeyOfEachReceiver) {
  Member sender;
  Member stranger;
  Member friendly;
  ibv_qp_attr attr{};
  attr.qkey = kQkey + 1;
  ASSERT_EQ(ibv_modify_qp(stranger.qp.get(), &attr, IBV_QP_QKEY), 0);
  ASSERT_EQ(attach(stranger), 0);
  ASSERT_EQ(attach(friendly), 0);
  sender.send(7);
  EXPECT_EQ(friendly.received().byte_len, kGrh + 7);
  EXPECT_TRUE(stranger.quiet());
  EXPECT_EQ(detach(stranger), 0);
  EXPECT_EQ(detach(friendly), 0);
}

TEST(MulticastDelivery, EndsWithDetaching) {
  Member sender;
  Member left;
  Member stays;
  ASSERT_EQ(attach(left), 0);
  ASSERT_EQ(attach(stays), 0);
  ASSERT_EQ(detach(left), 0);
  sender.send(3);
  EXPECT_EQ(stays.received().byte_len, kGrh + 3);
  EXPECT_TRUE(left.quiet());
  EXPECT_EQ(detach(stays), 0);
}

TEST(MulticastDelivery, ReachesOtherProcesses) {
  Helper one = Helper::start("multicast-listener");
  Helper two = Helper::start("multicast-listener");
  for (Helper* helper : {&one, &two}) {
    helper->line().hear<bool>();
    helper->line().tell(uint32_t{3});
  }
  Member sender;
  for (uint32_t i = 0; i < 3; ++i) {
    sender.send(100 + i);
    for (Helper* helper : {&one, &two}) EXPECT_EQ(helper->line().hear<uint32_t>(), kGrh + 100 + i);
  }
}

TEST(MulticastDelivery, WakesAReceiverThatSleeps) {
  Member sender;
  Member receiver(kGroup, {.type = IBV_QPT_UD, .with_channel = true});
  ASSERT_EQ(attach(receiver), 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(ibv_req_notify_cq(receiver.cq.get(), 0), 0);
    sender.send(1);
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(receiver.channel.get(), &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    EXPECT_EQ(receiver.received().status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(detach(receiver), 0);
}

// ---- IPv6, on a device with IPv6

void with_veth() {
  for (const char* command :
       {"ip link add v0 type veth peer name v1", "ip addr add 10.47.92.1/24 dev v0",
        "ip -6 addr add fd47:92::1/64 dev v0 nodad", "ip link set v0 up", "ip link set v1 up"}) {
    if (!test::shell(command)) std::abort();
  }
}

void exchange_over_veth(const char* group, const Options& options) {
  Member sender(group, options);
  Member receiver(group, options);
  ASSERT_EQ(attach(receiver, group), 0);
  sender.send(300);
  const ibv_wc wc = receiver.received();
  ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, kGrh + 300);
  const ibv_gid gid = gid_of(group);
  EXPECT_EQ(std::memcmp(receiver.datagram(wc) + 24, gid.raw, 16), 0) << "the destination is the group";
  EXPECT_EQ(detach(receiver, group), 0);
}

TEST(MulticastIpv6, GoesToTheGroup) {
  isolated(
      [] {
        for (const char* group : {"ff05::4791", "ff02::4791", "ff01:0:2c9:85::"}) {
          SCOPED_TRACE(group);
          exchange_over_veth(group, {.type = IBV_QPT_UD, .ipv4 = false, .device = "rxe_v0"});
        }
      },
      with_veth);
}

// perftest takes the best GID, an IPv4 address, for a group of IPv6.
TEST(MulticastIpv6, LeavesFromAnAddressOfTheGroupsFamily) {
  isolated([] { exchange_over_veth("ff05::4791", {.type = IBV_QPT_UD, .ipv4 = true, .device = "rxe_v0"}); },
           with_veth);
}

// ---- packets of the kernel

constexpr uint32_t kKernelsQkey = 0x01234567;  // RDMA_UDP_QKEY

// Adds the capture's source address to this host.
void with_kernels_address() {
  with_veth();
  if (!test::shell("ip addr add 10.77.0.12/24 dev v0")) std::abort();
}

std::vector<roce::CapturedPacket> kernels_datagrams() {
  std::vector<roce::CapturedPacket> found;
  for (const roce::CapturedPacket& packet : roce::captured_packets()) {
    if (packet.where.find("mckey") != std::string::npos) found.push_back(packet);
  }
  return found;
}

// Returns a member of the capture's group, with the Q_Key that the kernel uses.
std::unique_ptr<Member> kernels_peer() {
  auto receiver = std::make_unique<Member>(kGroup, Options{.type = IBV_QPT_UD, .device = "rxe_v0"});
  ibv_qp_attr attr{};
  attr.qkey = kKernelsQkey;
  EXPECT_EQ(ibv_modify_qp(receiver->qp.get(), &attr, IBV_QP_QKEY), 0);
  EXPECT_EQ(attach(*receiver), 0);
  return receiver;
}

// Sends a captured packet with a plain socket, from the address and port that its ICRC covers.
void replay(const roce::CapturedPacket& packet) {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in from{};
  from.sin_family = AF_INET;
  from.sin_port = htons(packet.flow.source_port);
  std::memcpy(&from.sin_addr, packet.flow.source.data(), 4);
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from), 0);
  ip_mreqn out{};
  out.imr_address = from.sin_addr;
  ASSERT_EQ(::setsockopt(fd.get(), IPPROTO_IP, IP_MULTICAST_IF, &out, sizeof out), 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(packet.flow.destination_port);
  std::memcpy(&to.sin_addr, packet.flow.destination.data(), 4);
  const ConstBytes bytes = packet.udp_payload();
  ASSERT_EQ(
      ::sendto(fd.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to),
      static_cast<ssize_t>(bytes.size()));
}

TEST(MulticastCapture, KernelsDatagramsArriveWhole) {
  isolated(
      [] {
        const auto receiver = kernels_peer();
        const auto packets = kernels_datagrams();
        EXPECT_EQ(packets.size(), 2u);
        for (const roce::CapturedPacket& packet : packets) {
          replay(packet);
          const ibv_wc wc = receiver->received();
          ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
          EXPECT_EQ(wc.byte_len, kGrh + 100);
          EXPECT_EQ(wc.src_qp, 0x47u);
          EXPECT_EQ(ntohl(wc.imm_data), 0x47u);
          // The GRH of an IPv4 packet contains its header without identification and checksum.
          EXPECT_EQ(std::memcmp(receiver->datagram(wc) + 20 + 12, packet.ip.data() + 12, 8), 0);
          EXPECT_EQ(std::memcmp(receiver->datagram(wc) + kGrh, packet.udp_payload().data() + 24, 100), 0);
        }
        EXPECT_EQ(detach(*receiver), 0);
      },
      with_kernels_address);
}

// ---- hostile packets

// Returns the datagram with one byte changed and a correct ICRC.
roce::CapturedPacket changed(roce::CapturedPacket packet, size_t at, uint8_t value) {
  std::byte* payload = packet.ip.data() + packet.ip_header_bytes + 8;
  payload[at] = std::byte{value};
  const size_t covered = packet.udp_payload().size() - roce::kIcrcBytes;
  const uint32_t icrc =
      roce::icrc_of(packet.flow, packet.identification, packet.udp_payload().first(covered));
  roce::icrc_store(~icrc, payload + covered);
  return packet;
}

TEST(MulticastHostile, NobodyIsGivenWhatIsNotWholeOrNotForTheGroup) {
  isolated(
      [] {
        const auto receiver = kernels_peer();
        const roce::CapturedPacket good = kernels_datagrams().front();
        for (size_t bit = 0; bit < good.udp_payload().size() * 8; bit += 7) {
          if (bit / 8 == 4) continue;  // the network may change this byte, and the ICRC does not cover it
          roce::CapturedPacket bad = good;
          bad.ip[bad.ip_header_bytes + 8 + bit / 8] ^= std::byte{static_cast<uint8_t>(1u << bit % 8)};
          replay(bad);
        }
        for (const size_t length : {0u, 1u, 11u, 12u, 23u, 24u, 30u}) {
          roce::CapturedPacket cut = good;
          cut.ip.resize(cut.ip_header_bytes + 8 + length);
          replay(cut);
        }
        const uint32_t qpn = receiver->qp->qp_num;
        const auto to_one = [&](const roce::CapturedPacket& packet) {
          return changed(
              changed(changed(packet, 5, static_cast<uint8_t>(qpn >> 16)), 6, static_cast<uint8_t>(qpn >> 8)),
              7, static_cast<uint8_t>(qpn));
        };
        replay(to_one(good));             // for one QP, sent to the group's address
        replay(changed(good, 0, 0x04));   // RC SEND ONLY
        replay(changed(good, 0, 0x1f));   // an undefined opcode
        replay(changed(good, 2, 0x12));   // a wrong partition
        replay(changed(good, 12, 0x77));  // a wrong Q_Key
        replay(changed(good, 1, 0x0f));   // a wrong version
        replay(good);
        EXPECT_EQ(receiver->received().byte_len, kGrh + 100) << "and this one alone";
        EXPECT_TRUE(receiver->quiet());
        EXPECT_EQ(detach(*receiver), 0);
      },
      with_kernels_address);
}

}  // namespace
}  // namespace verbena::adapter::testing

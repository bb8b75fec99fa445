// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "interop/peer/cases.h"

namespace verbena::interop {
namespace {

constexpr PairRules kDatagrams{.type = IBV_QPT_UD};
constexpr std::uint32_t kGrh = 40;
constexpr std::uint32_t kMulticastQpn = 0xffffff;
constexpr int kArrives = 2000, kDoesNot = 300;  // milliseconds

// A datagram that may be dropped, followed by one that arrives. Their immediate data are 1 and 2.
struct Datagram {
  const char* name;
  std::uint32_t length = 64;
  std::uint32_t room = 4096;
  std::uint32_t qkey = kQkey;
  std::uint32_t qpn_flip = 0;
  bool arrives = true;
};

const Datagram kDatagramCases[] = {
    {.name = "UD send"},
    {.name = "UD send, 0 bytes", .length = 0},
    {.name = "UD send, 256 bytes", .length = 256},
    {.name = "UD send, wrong key", .qkey = kQkey + 1, .arrives = false},
    {.name = "UD send, nobody of this number", .qpn_flip = 0x800000, .arrives = false},
    {.name = "UD send, receive too short", .room = kGrh + 16, .arrives = false},
};

ibv_send_wr message(ibv_sge& piece, ibv_ah* route, std::uint32_t qpn, std::uint32_t qkey,
                    std::uint32_t number) {
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, piece);
  wr.imm_data = htobe32(number);
  wr.wr.ud = {.ah = route, .remote_qpn = qpn, .remote_qkey = qkey};
  return wr;
}

void send(Session& session, ibv_qp* pair, ibv_send_wr wr) {
  if (const int error = post(pair, wr))
    session.note("post " + std::to_string(error));
  else
    session.note_completions(1);
}

void run(Session& session, const Datagram& datagram) {
  Region region{session.domain(), kAllRights};
  fill(region, session.is_client());
  const Pair pair = session.make_pair(kDatagrams);
  const Remote remote = session.connect(pair.get(), region, kDatagrams);
  if (session.is_client()) {
    session.peer().meet();
    const Route route = session.route_to(remote.gid);
    ibv_sge piece = region.piece(datagram.length);
    ibv_sge small = region.piece(8);
    send(session, pair.get(), message(piece, route.get(), remote.qpn ^ datagram.qpn_flip, datagram.qkey, 1));
    send(session, pair.get(), message(small, route.get(), remote.qpn, kQkey, 2));
  } else {
    for (std::uint32_t i = 0; i < 3; ++i) post_receive(pair.get(), region.piece(datagram.room, 8192 * i));
    session.peer().meet();
    const std::size_t expected = datagram.arrives ? 2 : 1;
    session.note_completions(expected, kArrives);
    session.note_end(pair.get(), 3 - expected, false);
    // Clears the GRH in front of the data: its hop limit and similar fields differ between implementations.
    for (std::uint32_t i = 0; i < 3; ++i) std::memset(region.bytes.data() + std::size_t{8192} * i, 0, kGrh);
    session.note(mark_of(region));
  }
  session.peer().meet();
}

ibv_gid group_of(const Session& session) {
  ibv_gid group{};
  const bool ipv4 = IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(session.gid().raw));
  inet_pton(AF_INET6, ipv4 ? "::ffff:239.47.91.9" : "ff05::4799", group.raw);
  return group;
}

// rdma_rxe leaves it to others (rdma_cm) to make the host join the group; here the program does so.
int join(const ibv_gid& group) {
  const unsigned device = if_nametoindex("eth0") ? if_nametoindex("eth0") : if_nametoindex("tap0");
  in6_addr address;
  std::memcpy(&address, group.raw, sizeof address);
  const bool ipv4 = IN6_IS_ADDR_V4MAPPED(&address);
  const int fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (ipv4) {
    ip_mreqn wanted{};
    std::memcpy(&wanted.imr_multiaddr, group.raw + 12, 4);
    wanted.imr_ifindex = static_cast<int>(device);
    setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &wanted, sizeof wanted);
  } else {
    const ipv6_mreq wanted{.ipv6mr_multiaddr = address, .ipv6mr_interface = device};
    setsockopt(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &wanted, sizeof wanted);
  }
  return fd;
}

// Sends to a group with two QPs, then to the same group after one has left.
void multicast(Session& session) {
  Region region{session.domain(), kAllRights};
  const ibv_gid group = group_of(session);
  const Pair first = session.make_pair(kDatagrams);
  const Pair second = session.make_pair(kDatagrams);
  session.connect(first.get(), region, kDatagrams);
  session.connect(second.get(), region, kDatagrams);
  ibv_sge piece = region.piece(200);
  if (session.is_client()) {
    const Route route = session.route_to(group);
    session.peer().meet();
    send(session, first.get(), message(piece, route.get(), kMulticastQpn, kQkey, 1));
    session.peer().meet();
    send(session, first.get(), message(piece, route.get(), kMulticastQpn, kQkey, 2));
    session.peer().meet();
    return;
  }
  const int membership = join(group);
  const ibv_qp* pairs[] = {first.get(), second.get()};
  for (const ibv_qp* pair : pairs) {
    if (const int error = ibv_attach_mcast(const_cast<ibv_qp*>(pair), &group, 0))
      session.note("attach " + std::to_string(error));
    for (int i = 0; i < 2; ++i) post_receive(const_cast<ibv_qp*>(pair), region.piece(2048));
  }
  session.peer().meet();
  session.note_completions(2, kArrives);
  if (const int error = ibv_detach_mcast(second.get(), &group, 0))
    session.note("detach " + std::to_string(error));
  session.peer().meet();
  session.note_completions(1, kArrives);
  session.note_end(first.get(), 0, false);
  session.note_end(second.get(), 1, false);
  ibv_detach_mcast(first.get(), &group, 0);
  close(membership);
  session.peer().meet();
}

}  // namespace

std::vector<Case> datagram_cases() {
  std::vector<Case> cases;
  for (const Datagram& datagram : kDatagramCases)
    cases.push_back({datagram.name, [&datagram](Session& session) { run(session, datagram); }});
  cases.push_back({"UD multicast", multicast});
  return cases;
}

}  // namespace verbena::interop

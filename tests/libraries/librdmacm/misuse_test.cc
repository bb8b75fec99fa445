// SPDX-License-Identifier: Apache-2.0
// Errors of wrong calls: -1 and the errno of the man pages, or of the kernel where the pages do not say.
#include <cctype>
#include <cerrno>
#include <functional>
#include <string>

#include "adapter/objects/support/environment.h"
#include "libraries/librdmacm/support/connection.h"

namespace verbena::rdmacm::testing {
namespace {

struct Scene {
  OwnChannel channel = make_channel();
  OwnId fresh = make_id(channel.get());
  OwnId datagrams = make_id(channel.get(), RDMA_PS_UDP);
  Listener listener;
  Caller resolved{listener.port};
  sockaddr_in loopback = ipv4("127.0.0.1", 0);
  sockaddr_in elsewhere = ipv4("192.0.2.1", 0);
  sockaddr_in group = ipv4("239.1.2.3", 0);
  sockaddr unknown{.sa_family = AF_UNIX, .sa_data = {}};
  ibv_qp_init_attr qp = small_qp();
  rdma_conn_param parameters = with_data("");
};

struct Misuse {
  const char* name;
  int expected;
  std::function<int(Scene&)> call;
};

const Misuse kMisuses[] = {
    {"create an identifier nowhere", EINVAL,
     [](Scene& s) { return rdma_create_id(s.channel.get(), nullptr, nullptr, RDMA_PS_TCP); }},
    {"create an identifier of an unknown port space", EINVAL,
     [](Scene& s) {
       rdma_cm_id* id;
       return rdma_create_id(s.channel.get(), &id, nullptr, static_cast<rdma_port_space>(0x0107));
     }},
    {"destroy nothing", EINVAL, [](Scene&) { return rdma_destroy_id(nullptr); }},
    {"acknowledge nothing", EINVAL, [](Scene&) { return rdma_ack_cm_event(nullptr); }},
    {"get an event nowhere", EINVAL, [](Scene& s) { return rdma_get_cm_event(s.channel.get(), nullptr); }},
    {"bind to no address", EINVAL, [](Scene& s) { return rdma_bind_addr(s.fresh.get(), nullptr); }},
    {"bind to another family", EINVAL, [](Scene& s) { return rdma_bind_addr(s.fresh.get(), &s.unknown); }},
    {"bind to another's address", EADDRNOTAVAIL,
     [](Scene& s) { return rdma_bind_addr(s.fresh.get(), generic(s.elsewhere)); }},
    {"bind to a port that is taken", EADDRNOTAVAIL,  // loopback counts as a wildcard
     [](Scene& s) {
       s.loopback.sin_port = htons(s.listener.port);
       return rdma_bind_addr(s.fresh.get(), generic(s.loopback));
     }},
    {"bind twice", EINVAL,
     [](Scene& s) {
       EXPECT_EQ(rdma_bind_addr(s.fresh.get(), generic(s.loopback)), 0);
       return rdma_bind_addr(s.fresh.get(), generic(s.loopback));
     }},
    {"resolve no address", EINVAL,
     [](Scene& s) { return rdma_resolve_addr(s.fresh.get(), nullptr, nullptr, 100); }},
    {"resolve from another family", EINVAL,
     [](Scene& s) { return rdma_resolve_addr(s.fresh.get(), &s.unknown, generic(s.loopback), 100); }},
    {"resolve a route before an address", EINVAL,
     [](Scene& s) { return rdma_resolve_route(s.fresh.get(), 100); }},
    {"listen after resolving", EINVAL, [](Scene& s) { return rdma_listen(s.resolved.id.get(), 1); }},
    {"connect before resolving", EINVAL, [](Scene& s) { return rdma_connect(s.fresh.get(), &s.parameters); }},
    {"connect with neither QP nor parameters", EINVAL,
     [](Scene& s) { return rdma_connect(s.resolved.id.get(), nullptr); }},
    {"connect with more reads than the device has", EINVAL,
     [](Scene& s) {
       s.parameters.initiator_depth = 254;
       return rdma_connect(s.resolved.id.get(), &s.parameters);
     }},
    {"connect with more private data than a REQ holds", EINVAL,
     [](Scene& s) {
       const std::string data(57, 'x');
       s.parameters = with_data(data);
       return rdma_connect(s.resolved.id.get(), &s.parameters);
     }},
    {"accept what is no request", EINVAL,
     [](Scene& s) { return rdma_accept(s.resolved.id.get(), &s.parameters); }},
    {"reject what is no request", EINVAL,
     [](Scene& s) { return rdma_reject(s.resolved.id.get(), nullptr, 0); }},
    {"establish before the response", EINVAL, [](Scene& s) { return rdma_establish(s.resolved.id.get()); }},
    {"establish what one was asked for", EINVAL,
     [](Scene& s) {
       s.resolved.connect();
       const OwnId request(hear(s.listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
       const int answer = rdma_establish(request.get());
       const int error = errno;
       EXPECT_FALSE(readable(s.resolved.channel.get(), 50)) << "the caller was answered";
       errno = error;
       return answer;
     }},
    {"disconnect without a device", EINVAL, [](Scene& s) { return rdma_disconnect(s.fresh.get()); }},
    {"notify of an event that is none of its", EINVAL,
     [](Scene& s) { return rdma_notify(s.resolved.id.get(), IBV_EVENT_SM_CHANGE); }},
    {"create a QP without a device", EINVAL,
     [](Scene& s) { return rdma_create_qp(s.fresh.get(), nullptr, &s.qp); }},
    {"create a second QP", EINVAL,
     [](Scene& s) {
       EXPECT_EQ(rdma_create_qp(s.resolved.id.get(), nullptr, &s.qp), 0);
       return rdma_create_qp(s.resolved.id.get(), nullptr, &s.qp);
     }},
    {"ask for attributes without a device", EINVAL,
     [](Scene& s) {
       ibv_qp_attr attributes{};
       int mask;
       attributes.qp_state = IBV_QPS_INIT;
       return rdma_init_qp_attr(s.fresh.get(), &attributes, &mask);
     }},
    {"ask for attributes of a connection that was refused", EINVAL,
     [](Scene& s) {
       s.resolved.connect();
       const OwnId request(hear(s.listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST).id);
       EXPECT_EQ(rdma_reject(request.get(), nullptr, 0), 0);
       hear(s.resolved.channel.get(), RDMA_CM_EVENT_REJECTED);
       ibv_qp_attr attributes{};
       int mask;
       attributes.qp_state = IBV_QPS_INIT;
       return rdma_init_qp_attr(s.resolved.id.get(), &attributes, &mask);
     }},
    {"join without an address", EINVAL,
     [](Scene& s) { return rdma_join_multicast(s.datagrams.get(), nullptr, nullptr); }},
    {"leave a group that was not joined", EADDRNOTAVAIL,
     [](Scene& s) { return rdma_leave_multicast(s.datagrams.get(), generic(s.group)); }},
    {"join with attributes that are not known", ENOTSUP,
     [](Scene& s) {
       rdma_cm_join_mc_attr_ex join{};
       join.comp_mask = RDMA_CM_JOIN_MC_ATTR_RESERVED;
       return rdma_join_multicast_ex(s.datagrams.get(), &join, nullptr);
     }},
    {"join without flags", EINVAL,
     [](Scene& s) {
       rdma_cm_join_mc_attr_ex join{};
       join.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS;
       join.addr = generic(s.group);
       return rdma_join_multicast_ex(s.datagrams.get(), &join, nullptr);
     }},
    {"set an option of no level", ENOSYS,
     [](Scene& s) {
       int one = 1;
       return rdma_set_option(s.fresh.get(), 7, 0, &one, sizeof one);
     }},
    {"set an option of another size", EINVAL,
     [](Scene& s) {
       int one = 1;
       return rdma_set_option(s.fresh.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &one, sizeof one);
     }},
    {"set an unknown option", ENOSYS,
     [](Scene& s) {
       int one = 1;
       return rdma_set_option(s.fresh.get(), RDMA_OPTION_ID, 99, &one, sizeof one);
     }},
    {"set an ACK timeout of a datagram identifier", EINVAL,
     [](Scene& s) {
       uint8_t timeout = 14;
       return rdma_set_option(s.datagrams.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1);
     }},
    {"set local options of no vendor", EINVAL,
     [](Scene& s) {
       ibv_ece ece{};
       return rdma_set_local_ece(s.fresh.get(), &ece);
     }},
    {"get a request of an asynchronous listener", EINVAL,
     [](Scene& s) {
       rdma_cm_id* id;
       return rdma_get_request(s.listener.id.get(), &id);
     }},
    {"look up nothing", EINVAL,
     [](Scene&) {
       rdma_addrinfo* found;
       return rdma_getaddrinfo(nullptr, nullptr, nullptr, &found);
     }},
};

class MisusedCalls : public ::testing::TestWithParam<Misuse> {};
INSTANTIATE_TEST_SUITE_P(All, MisusedCalls, ::testing::ValuesIn(kMisuses), [](const auto& param) {
  std::string name = param.param.name;
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
});

TEST_P(MisusedCalls, AnswerMinusOneAndErrno) {
  Scene scene;
  errno = 0;
  EXPECT_EQ(GetParam().call(scene), -1);
  EXPECT_EQ(errno, GetParam().expected) << std::strerror(errno);
}

}  // namespace
}  // namespace verbena::rdmacm::testing

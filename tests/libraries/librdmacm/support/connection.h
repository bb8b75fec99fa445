// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

namespace verbena::rdmacm::testing {

inline constexpr int kPatienceMs = 10000;

inline sockaddr_in ipv4(const char* address, uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  ::inet_pton(AF_INET, address, &result.sin_addr);
  return result;
}
inline sockaddr* generic(sockaddr_in& address) {
  return reinterpret_cast<sockaddr*>(&address);
}

// An rdma_cm event that is already acknowledged.
struct Heard {
  int type = -1;  // enum rdma_cm_event_type
  int status = 0;
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listener = nullptr;
  std::string data;
  rdma_conn_param connection{};
  rdma_ud_param datagram{};
};

struct DestroysChannel {
  void operator()(rdma_event_channel* channel) const { rdma_destroy_event_channel(channel); }
};
struct DestroysId {
  void operator()(rdma_cm_id* id) const {
    rdma_destroy_qp(id);
    rdma_destroy_srq(id);
    rdma_destroy_id(id);
  }
};
using OwnChannel = std::unique_ptr<rdma_event_channel, DestroysChannel>;
using OwnId = std::unique_ptr<rdma_cm_id, DestroysId>;

inline OwnChannel make_channel() {
  return OwnChannel(rdma_create_event_channel());
}
inline OwnId make_id(rdma_event_channel* channel, rdma_port_space space = RDMA_PS_TCP,
                     void* context = nullptr) {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(channel, &id, context, space), 0) << std::strerror(errno);
  return OwnId(id);
}

inline bool readable(const rdma_event_channel* channel, int timeout_ms) {
  pollfd entry{channel->fd, POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

// Waits for the next event and acknowledges it. Fails the test if none comes.
inline Heard hear(rdma_event_channel* channel) {
  Heard heard;
  if (!readable(channel, kPatienceMs)) {
    ADD_FAILURE() << "no event came";
    return heard;
  }
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel, &event) != 0) {
    ADD_FAILURE() << std::strerror(errno);
    return heard;
  }
  std::memcpy(&heard.type, &event->event, sizeof heard.type);
  heard.status = event->status;
  heard.id = event->id;
  heard.listener = event->listen_id;
  const bool datagram = event->id->qp_type == IBV_QPT_UD;
  if (datagram) {
    heard.datagram = event->param.ud;
  } else {
    heard.connection = event->param.conn;
  }
  const bool multicast =
      heard.type == RDMA_CM_EVENT_MULTICAST_JOIN || heard.type == RDMA_CM_EVENT_MULTICAST_ERROR;
  const void* data = datagram ? event->param.ud.private_data : event->param.conn.private_data;
  const size_t length = datagram ? event->param.ud.private_data_len : event->param.conn.private_data_len;
  if (data != nullptr && !multicast) heard.data.assign(static_cast<const char*>(data), length);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  return heard;
}

// Converts an int to the enum. A later header has values that ours does not know, so a cast would be
// undefined.
inline rdma_cm_event_type event_type(int value) {
  rdma_cm_event_type type;
  std::memcpy(&type, &value, sizeof type);
  return type;
}

inline Heard hear(rdma_event_channel* channel, int expected) {
  Heard heard = hear(channel);
  EXPECT_STREQ(rdma_event_str(event_type(heard.type)), rdma_event_str(event_type(expected)))
      << "status " << heard.status;
  return heard;
}

inline ibv_qp_init_attr small_qp(ibv_qp_type type = IBV_QPT_RC) {
  ibv_qp_init_attr attributes{};
  attributes.qp_type = type;
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 4;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  return attributes;
}

// Returns connection parameters with private data. REQUIRES: the data outlives the result.
inline rdma_conn_param with_data(std::string_view data) {
  rdma_conn_param parameters{};
  parameters.private_data = data.data();
  parameters.private_data_len = static_cast<uint8_t>(data.size());
  parameters.responder_resources = parameters.initiator_depth = 1;
  parameters.retry_count = parameters.rnr_retry_count = 7;
  return parameters;
}

// Resolves an address, which gives the identifier a device. A loopback address alone does not determine one.
inline void resolve_to(rdma_event_channel* channel, rdma_cm_id* id, sockaddr_in address) {
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(address), 2000), 0) << std::strerror(errno);
  hear(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_NE(id->verbs, nullptr);
}

// A non-blocking listener on 127.0.0.1, on a free port.
struct Listener {
  explicit Listener(rdma_port_space space = RDMA_PS_TCP, int backlog = 8)
      : id(make_id(channel.get(), space)) {
    sockaddr_in address = ipv4("127.0.0.1", 0);
    EXPECT_EQ(rdma_bind_addr(id.get(), generic(address)), 0) << std::strerror(errno);
    EXPECT_EQ(rdma_listen(id.get(), backlog), 0) << std::strerror(errno);
    port = ntohs(rdma_get_src_port(id.get()));
  }
  OwnChannel channel = make_channel();
  OwnId id;
  uint16_t port = 0;
};

// An identifier with a resolved route to a port on 127.0.0.1.
struct Caller {
  explicit Caller(uint16_t port, rdma_port_space space = RDMA_PS_TCP) : id(make_id(channel.get(), space)) {
    sockaddr_in address = ipv4("127.0.0.1", port);
    EXPECT_EQ(rdma_resolve_addr(id.get(), nullptr, generic(address), 2000), 0) << std::strerror(errno);
    hear(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_resolve_route(id.get(), 2000), 0) << std::strerror(errno);
    hear(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  void create_qp(ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr attributes = small_qp(type);
    ASSERT_EQ(rdma_create_qp(id.get(), nullptr, &attributes), 0) << std::strerror(errno);
  }
  void connect(std::string_view data = "") {
    rdma_conn_param parameters = with_data(data);
    ASSERT_EQ(rdma_connect(id.get(), &parameters), 0) << std::strerror(errno);
  }
  OwnChannel channel = make_channel();
  OwnId id;
};

// An established connection with both its ends.
struct Connection {
  Connection() {
    caller.create_qp();
    caller.connect("hello");
    Heard request = hear(listener.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
    accepted.reset(request.id);
    ibv_qp_init_attr attributes = small_qp();
    EXPECT_EQ(rdma_create_qp(accepted.get(), nullptr, &attributes), 0) << std::strerror(errno);
    rdma_conn_param parameters = with_data("welcome");
    EXPECT_EQ(rdma_accept(accepted.get(), &parameters), 0) << std::strerror(errno);
    hear(caller.channel.get(), RDMA_CM_EVENT_ESTABLISHED);
    hear(listener.channel.get(), RDMA_CM_EVENT_ESTABLISHED);
  }
  Listener listener;
  Caller caller{listener.port};
  OwnId accepted;
};

// Sends a message from one identifier to the other with the functions of rdma_verbs.h.
inline void exchange(rdma_cm_id* from, rdma_cm_id* to) {
  std::string sent = "over the wire", received(64, '\0');
  ibv_mr* const out = rdma_reg_msgs(from, sent.data(), sent.size());
  ibv_mr* const in = rdma_reg_msgs(to, received.data(), received.size());
  ASSERT_TRUE(out != nullptr && in != nullptr) << std::strerror(errno);
  ASSERT_EQ(rdma_post_recv(to, nullptr, received.data(), received.size(), in), 0) << std::strerror(errno);
  ASSERT_EQ(rdma_post_send(from, nullptr, sent.data(), sent.size(), out, IBV_SEND_SIGNALED), 0)
      << std::strerror(errno);
  ibv_wc wc{};
  ASSERT_EQ(rdma_get_recv_comp(to, &wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.substr(0, wc.byte_len), sent);
  ASSERT_EQ(rdma_get_send_comp(from, &wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  rdma_dereg_mr(out);
  rdma_dereg_mr(in);
}

}  // namespace verbena::rdmacm::testing

// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/route_query.h"

#include <cerrno>
#include <cstring>

#include <linux/if.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

#include "agent/cm/neighbours.h"

namespace verbena::agent {

namespace {

constexpr size_t kRequestBytes = 256;
constexpr size_t kAnswerBytes = 8192;

uint8_t address_bytes(const CmAddress& address) {
  return address.family == AF_INET ? 4 : 16;
}

using Attributes = NetlinkAttributes<RTA_MAX + 1>;

CmAddress read_address(uint16_t family, const void* bytes, size_t length, uint32_t interface_index) {
  CmAddress address{};
  if (length != (family == AF_INET ? 4u : 16u)) return address;
  address.family = family;
  std::memcpy(address.address, bytes, length);
  if (is_link_local(address)) address.scope_id = interface_index;
  return address;
}

CmAddress read_address(uint16_t family, const nlattr* attribute, uint32_t interface_index) {
  if (attribute == nullptr) return {};
  return read_address(family, mnl_attr_get_payload(attribute), mnl_attr_get_payload_len(attribute),
                      interface_index);
}

// Returns the gateway, which may be of the other family (RFC 5549).
CmAddress gateway_of(const Attributes& route, uint16_t family, uint32_t interface_index) {
  if (route[RTA_GATEWAY] != nullptr) {
    return read_address(family, route[RTA_GATEWAY], interface_index);
  }
  const nlattr* via = route[RTA_VIA];
  if (via == nullptr || mnl_attr_get_payload_len(via) < sizeof(rtvia)) return {};
  const auto* header = static_cast<const rtvia*>(mnl_attr_get_payload(via));
  return read_address(header->rtvia_family, header->rtvia_addr, mnl_attr_get_payload_len(via) - sizeof(rtvia),
                      interface_index);
}

int read_hop_limit(const nlattr* metric, void* hop_limit) {
  if (mnl_attr_get_type(metric) == RTAX_HOPLIMIT && mnl_attr_validate(metric, MNL_TYPE_U32) == 0) {
    const uint32_t value = mnl_attr_get_u32(metric);
    if (value >= 1 && value <= 255) *static_cast<uint8_t*>(hop_limit) = static_cast<uint8_t>(value);
  }
  return MNL_CB_OK;
}

struct RouteReader {
  const RouteQuestion& question;
  RouteAnswer answer;
  int error = EPROTO;

  static int on_message(const nlmsghdr* message, void* self) {
    static_cast<RouteReader*>(self)->read(message);
    return MNL_CB_OK;
  }

  void read(const nlmsghdr* message) {
    if (message->nlmsg_type != RTM_NEWROUTE || mnl_nlmsg_get_payload_len(message) < sizeof(rtmsg)) return;
    const auto* header = static_cast<const rtmsg*>(mnl_nlmsg_get_payload(message));
    Attributes route;
    if (mnl_attr_parse(message, sizeof *header, Attributes::collect, &route) < 0) return;
    const nlattr* output = route[RTA_OIF];
    if (output == nullptr || mnl_attr_validate(output, MNL_TYPE_U32) < 0) return;
    answer.interface_index = mnl_attr_get_u32(output);
    const uint16_t family = question.destination.family;
    answer.source = read_address(family, route[RTA_PREFSRC], answer.interface_index);
    const bool asked_from = question.source.family == family && !is_wildcard(question.source);
    if (asked_from) {
      answer.source = question.source;
      answer.source.port = 0;
    }
    if (!has_known_family(answer.source)) return;
    if (const nlattr* metrics = route[RTA_METRICS]; metrics != nullptr) {
      mnl_attr_parse_nested(metrics, read_hop_limit, &answer.hop_limit);
    }
    read_kind(*header, gateway_of(route, family, answer.interface_index));
  }

  void read_kind(const rtmsg& header, const CmAddress& gateway) {
    const CmAddress& destination = question.destination;
    switch (header.rtm_type) {
      case RTN_LOCAL:
        answer.is_local = true;
        error = 0;
        break;
      case RTN_UNICAST:
        error = 0;
        if (destination.family == AF_INET6 && destination.address[0] == 0xff) break;
        answer.next_hop = has_known_family(gateway) ? gateway : destination;
        answer.next_hop.port = 0;
        break;
      case RTN_MULTICAST:
      case RTN_ANYCAST:
        error = 0;
        break;
      case RTN_BROADCAST:  // RDMA does not broadcast
        error = ENETUNREACH;
        break;
      case RTN_PROHIBIT:
        error = EACCES;
        break;
      default:
        error = EHOSTUNREACH;
        break;
    }
  }
};

struct NeighbourReader {
  bool valid = false;

  static int on_message(const nlmsghdr* message, void* self) {
    if (const auto neighbour = read_neighbour(message)) {
      static_cast<NeighbourReader*>(self)->valid = neighbour->is_valid();
    }
    return MNL_CB_OK;
  }
};

void put_address(nlmsghdr* message, uint16_t type, const CmAddress& address) {
  mnl_attr_put(message, type, address_bytes(address), address.address);
}

// Sends a request and reads the answer without waiting. The kernel handles the request during the send call,
// so the answer is there already. The answer to a dump (NLM_F_DUMP) is made as it is read.
Result<void> exchange(mnl_socket* socket, nlmsghdr* request, uint32_t sequence, mnl_cb_t reader, void* self,
                      uint16_t flags = 0) {
  request->nlmsg_seq = sequence;
  request->nlmsg_flags = NLM_F_REQUEST | flags;
  if (mnl_socket_sendto(socket, request, request->nlmsg_len) < 0) return fail(errno);
  for (;;) {
    alignas(nlmsghdr) char buffer[kAnswerBytes];
    const ssize_t bytes = ::recv(mnl_socket_get_fd(socket), buffer, sizeof buffer, MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return fail(errno);
    const auto* first = reinterpret_cast<const nlmsghdr*>(buffer);
    const bool is_ours = static_cast<size_t>(bytes) >= sizeof *first && first->nlmsg_seq == sequence;
    if (!is_ours) continue;  // answer to an earlier request that was not read
    const int run =
        mnl_cb_run(buffer, static_cast<size_t>(bytes), sequence, mnl_socket_get_portid(socket), reader, self);
    if (run == MNL_CB_ERROR) return fail(errno);
    const bool goes_on = flags != 0 && run != MNL_CB_STOP;
    if (!goes_on) return {};
  }
}

}  // namespace

Result<RouteQuery> RouteQuery::open() {
  auto socket = open_route_socket(0);
  if (!socket) return fail(socket.error().code);
  return RouteQuery(std::move(*socket));
}

Result<RouteAnswer> RouteQuery::ask(const RouteQuestion& question) {
  alignas(nlmsghdr) char buffer[kRequestBytes];
  nlmsghdr* request = mnl_nlmsg_put_header(buffer);
  request->nlmsg_type = RTM_GETROUTE;
  auto* route = static_cast<rtmsg*>(mnl_nlmsg_put_extra_header(request, sizeof(rtmsg)));
  const CmAddress& destination = question.destination;
  route->rtm_family = static_cast<uint8_t>(destination.family);
  route->rtm_dst_len = static_cast<uint8_t>(8 * address_bytes(destination));
  // The kernel's route lookup needs the type of service without the ECN bits.
  route->rtm_tos = destination.family == AF_INET ? question.type_of_service & 0x1c : 0;
  put_address(request, RTA_DST, destination);
  if (question.source.family == destination.family && !is_wildcard(question.source)) {
    route->rtm_src_len = route->rtm_dst_len;
    put_address(request, RTA_SRC, question.source);
  }
  if (question.interface_index != 0) mnl_attr_put_u32(request, RTA_OIF, question.interface_index);

  RouteReader reader{question, {}};
  const auto asked = exchange(socket_.get(), request, ++sequence_, RouteReader::on_message, &reader);
  if (!asked) return fail(asked.error().code);
  if (reader.error != 0) return fail(reader.error);
  return reader.answer;
}

bool RouteQuery::knows_neighbour(uint32_t interface_index, const CmAddress& neighbour) {
  alignas(nlmsghdr) char buffer[kRequestBytes];
  nlmsghdr* request = mnl_nlmsg_put_header(buffer);
  request->nlmsg_type = RTM_GETNEIGH;
  auto* header = static_cast<ndmsg*>(mnl_nlmsg_put_extra_header(request, sizeof(ndmsg)));
  header->ndm_family = static_cast<uint8_t>(neighbour.family);
  header->ndm_ifindex = static_cast<int32_t>(interface_index);
  put_address(request, NDA_DST, neighbour);
  NeighbourReader reader;
  const auto asked = exchange(socket_.get(), request, ++sequence_, NeighbourReader::on_message, &reader);
  return (asked && reader.valid) || needs_no_neighbours(interface_index);
}

// Whether the netdev has no hardware addresses. Netdevs without ARP (tun, ipip, GRE, WireGuard, `ip link set
// DEV arp off`) have none, and the kernel's addr_resolve_neigh() does not look for any. A point-to-point
// netdev's neighbour cannot be found by its address: the kernel has a single entry for all of IPv4, under
// 0.0.0.0.
bool RouteQuery::needs_no_neighbours(uint32_t interface_index) {
  alignas(nlmsghdr) char buffer[kRequestBytes];
  nlmsghdr* request = mnl_nlmsg_put_header(buffer);
  request->nlmsg_type = RTM_GETLINK;
  auto* header = static_cast<ifinfomsg*>(mnl_nlmsg_put_extra_header(request, sizeof(ifinfomsg)));
  header->ifi_index = static_cast<int32_t>(interface_index);
  unsigned flags = 0;
  const auto on_message = [](const nlmsghdr* message, void* self) {
    if (message->nlmsg_type == RTM_NEWLINK && mnl_nlmsg_get_payload_len(message) >= sizeof(ifinfomsg)) {
      *static_cast<unsigned*>(self) =
          static_cast<const ifinfomsg*>(mnl_nlmsg_get_payload(message))->ifi_flags;
    }
    return MNL_CB_OK;
  };
  const auto asked = exchange(socket_.get(), request, ++sequence_, on_message, &flags);
  return asked && (flags & (IFF_NOARP | IFF_POINTOPOINT | IFF_LOOPBACK)) != 0;
}

std::vector<NeighbourMessage> RouteQuery::neighbours() {
  alignas(nlmsghdr) char buffer[kRequestBytes];
  nlmsghdr* request = mnl_nlmsg_put_header(buffer);
  request->nlmsg_type = RTM_GETNEIGH;
  mnl_nlmsg_put_extra_header(request, sizeof(ndmsg));  // all zero: of every netdev and family
  std::vector<NeighbourMessage> all;
  const auto on_message = [](const nlmsghdr* message, void* self) {
    if (const auto neighbour = read_neighbour(message)) {
      static_cast<std::vector<NeighbourMessage>*>(self)->push_back(*neighbour);
    }
    return MNL_CB_OK;
  };
  // After an error, the entries read before it are still useful.
  [[maybe_unused]] const auto asked =
      exchange(socket_.get(), request, ++sequence_, on_message, &all, NLM_F_DUMP);
  return all;
}

}  // namespace verbena::agent

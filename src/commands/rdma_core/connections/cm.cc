// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/connections/cm.h"

#include <cerrno>
#include <cstring>
#include <string_view>

#include <arpa/inet.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

#include "base/format.h"
#include "commands/rdma_core/common/handles.h"

namespace verbena::rdma_core {
namespace {

constexpr const char* kSilent =
    "the other host does not answer: is RDMA there, and does UDP port 4791 pass both ways?";
constexpr const char* kRefused =
    "the other host refused: is the server running there, with this port and for this many connections?";

// The likely reason and the remedy of an event, and of an errno.
constexpr Name kEventRemedies[] = {
    {RDMA_CM_EVENT_ADDR_ERROR,
     "no link of this host leads to that address, or nobody has it; 'verbena link show' lists the links"},
    {RDMA_CM_EVENT_ROUTE_ERROR, "no link of this host leads to that address"},
    {RDMA_CM_EVENT_CONNECT_ERROR, "the connection was begun and not finished; the other end may have ended"},
    {RDMA_CM_EVENT_UNREACHABLE, kSilent},
    {RDMA_CM_EVENT_REJECTED, kRefused},
    {RDMA_CM_EVENT_MULTICAST_ERROR, "the group could not be joined: is the address a multicast address?"},
};

constexpr Name kErrnoRemedies[] = {
    {ENODEV, "no RDMA device has that address; 'verbena link show' lists the links"},
    {EADDRNOTAVAIL, "no link of this host has that address; 'verbena link show' lists the links"},
    {EADDRINUSE, "another program listens on that port"},
    {EACCES, "ports below 1024 are for the system's programs"},
    {ENETUNREACH, "no link of this host leads to that address"},
    {ENOMEM, "the adapter's or the user's limit is reached: fewer connections or smaller messages may do"},
    {ECONNREFUSED, kRefused},
    {ETIMEDOUT, kSilent},
};

const char* or_null(const std::string& text) {
  return text.empty() ? nullptr : text.c_str();
}

}  // namespace

Channel first_channel() {
  Channel channel(rdma_create_event_channel());
  if (channel) return channel;
  const int error = errno;
  if (error == ENODEV) {
    complain("No RDMA devices were detected", kNoDeviceRemedy);
  } else {
    complain_of(error, "failed to create RDMA CM event channel");
  }
  errno = error;
  return nullptr;
}

void Patience::say() {
  said_ = true;
  complain("still waiting: " + words_());
}

Event next_event(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  return Event(rdma_get_cm_event(channel, &event) == 0 ? event : nullptr);
}

Event next_event(rdma_event_channel* channel, Patience& patience) {
  while (true) {
    pollfd listened = {channel->fd, POLLIN, 0};
    const int ready = poll(&listened, 1, patience.milliseconds());
    if (ready < 0 && errno != EINTR) return nullptr;
    if (ready == 0) patience.say();
    if (ready > 0) return next_event(channel);
  }
}

Event event_at_hand(rdma_event_channel* channel) {
  pollfd listened = {channel->fd, POLLIN, 0};
  return poll(&listened, 1, 0) == 1 ? next_event(channel) : nullptr;
}

const char* remedy_for(rdma_cm_event_type type) {
  return name_of(kEventRemedies, type, "");
}

const char* remedy_for_errno(int error) {
  return name_of(kErrnoRemedies, error, "");
}

int failed(const std::string& sentence) {
  const int error = errno;
  complain_of(error, sentence, remedy_for_errno(error));
  return -1;
}

void fail_of_call(const std::string& sentence) {
  throw Failure{failed(sentence)};
}

void tell_failure(const Output& output, const std::string& sentence, const std::string& remedy) {
  if (output.json()) {
    complain(sentence, remedy);
    return;
  }
  output.text("%s\n", sentence.c_str());
  if (!remedy.empty()) complain("(" + remedy + ")");
}

void fail(const Output& output, int status, const std::string& sentence, const std::string& remedy) {
  tell_failure(output, sentence, remedy);
  throw Failure{status};
}

AddressInfo find_addresses(const Ends& ends, const rdma_addrinfo& hints, const std::string& what,
                           const Output& output) {
  const auto lookup = [&](const std::string& node, const char* service, const rdma_addrinfo& wanted) {
    rdma_addrinfo* list = nullptr;
    const int error = rdma_getaddrinfo(or_null(node), service, &wanted, &list);
    const char* remedy = error == -1 ? remedy_for_errno(errno) : "";  // -1: errno has the reason
    if (error != 0) fail(output, error, verbena::format("{}: {}", what, gai_strerror(error)), remedy);
    return AddressInfo(list);
  };
  const char* port = ends.port.c_str();
  if ((hints.ai_flags & RAI_PASSIVE) != 0) return lookup(ends.source, port, hints);
  rdma_addrinfo wanted = hints;
  AddressInfo from;
  if (!ends.source.empty()) {
    wanted.ai_flags |= RAI_PASSIVE;
    from = lookup(ends.source, nullptr, wanted);
    wanted.ai_src_addr = from->ai_src_addr;
    wanted.ai_src_len = from->ai_src_len;
    wanted.ai_flags &= ~RAI_PASSIVE;
  }
  return lookup(ends.destination, port, wanted);
}

int find_host(const std::string& name, sockaddr_storage& address) {
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(or_null(name), nullptr, nullptr, &list); error != 0) return error;
  std::memcpy(&address, list->ai_addr, list->ai_addrlen);
  freeaddrinfo(list);
  return 0;
}

std::string shown(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address != nullptr && address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return verbena::format("{}:{}", text, ntohs(v4->sin_port));
  }
  if (address != nullptr && address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    return verbena::format("[{}]:{}", text, ntohs(v6->sin6_port));
  }
  return {};
}

nlohmann::ordered_json described(rdma_cm_id* id, const ibv_qp* queue_pair) {
  return {{"device", id->verbs != nullptr ? ibv_get_device_name(id->verbs->device) : ""},
          {"local", shown(rdma_get_local_addr(id))},
          {"peer", shown(rdma_get_peer_addr(id))},
          {"qp_number", queue_pair != nullptr ? queue_pair->qp_num : 0}};
}

void take_format(const char* word, rdma_addrinfo& hints) {
  const auto begins_with = [word](std::string_view name) {
    return strncasecmp(word, name.data(), name.size()) == 0;
  };
  if (begins_with("ip")) {
    hints.ai_flags = RAI_NUMERICHOST;
  } else if (begins_with("gid")) {
    hints.ai_flags = RAI_NUMERICHOST | RAI_FAMILY;
    hints.ai_family = AF_IB;
  } else if (!begins_with("name")) {
    complain("Warning: unknown address format", "name, ip, ipv6 and gid are known");
  }
}

}  // namespace verbena::rdma_core

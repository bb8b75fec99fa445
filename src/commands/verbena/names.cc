// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/names.h"

#include <array>
#include <utility>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>

#include "adapter/queues/status_words.h"
#include "base/format.h"
#include "control/model/link.h"

namespace verbena::commands {
namespace {

constexpr std::pair<uint32_t, const char*> kTypes[] = {
    {IBV_QPT_RC, "RC"},
    {IBV_QPT_UC, "UC"},
    {IBV_QPT_UD, "UD"},
    {IBV_QPT_RAW_PACKET, "RAW_PACKET"},
    {IBV_QPT_XRC_SEND, "XRC_SEND"},
    {IBV_QPT_XRC_RECV, "XRC_RECV"},
};
constexpr std::array<std::string_view, protocol::kPortFirstDropReason> kPortCounters = {
    "sent_packets", "sent_bytes", "received_packets", "received_bytes", "send_errors",
};

constexpr PeerMemory kWays[protocol::kQpWays] = {
    {"", ""},  // the QP uses the wire
    {"", ""},
    {"reached", ""},
    {"shared", "the kernel allows it only where it is shared (kernel.yama.ptrace_scope, or a container)"},
    {"forbidden", "the kernel allows nothing (a program that may not be read or traced, or a container)"},
    {"other_user", "it is another user's"},
    {"unusable", "it has ended, or runs another program now"},
};

}  // namespace

std::string qp_type_name(uint32_t type) {
  for (const auto& [known, name] : kTypes) {
    if (known == type) return name;
  }
  return verbena::format("unknown({})", type);
}

std::string qp_state_name(uint32_t state) {
  return state < queues::kQpStates.size() ? queues::kQpStates[state] : verbena::format("unknown({})", state);
}

std::string_view port_counter_name(size_t counter) {
  return kPortCounters.at(counter);
}

std::string gid_as_text(const roce::Address& gid) {
  char text[INET6_ADDRSTRLEN];
  if (!inet_ntop(AF_INET6, gid.bytes.data(), text, sizeof text)) return "?";
  return text;
}

std::vector<std::string> peers_as_text(const control::Link& link) {
  std::vector<std::string> texts;
  for (const roce::Prefix& peer : link.peers) texts.push_back(roce::text_of(peer));
  return texts;
}

std::string guid_as_text(const control::Link& link) {
  const auto guid = control::guid_of(link);
  return verbena::format("{:02x}{:02x}:{:02x}{:02x}:{:02x}{:02x}:{:02x}{:02x}", guid[0], guid[1], guid[2],
                         guid[3], guid[4], guid[5], guid[6], guid[7]);
}

std::string mac_as_text(const control::Link& link) {
  return verbena::join(link.mac, ":", "{:02x}");
}

uint32_t active_mtu(const control::Link& link) {
  return 128u << control::path_mtu_of(link.mtu);
}

std::string_view link_state(const control::Link& link) {
  return link.is_active() ? "ACTIVE" : "DOWN";
}

const PeerMemory& peer_memory_of(protocol::QpWay way) {
  return kWays[static_cast<size_t>(way)];
}

std::string link_name_of(const control::AgentStatus& status, const control::QpNumbers& qp) {
  for (const control::LinkStatus& one : status.links) {
    if (one.link.device_index == qp.device_index) return one.link.name;
  }
  return "-";
}

}  // namespace verbena::commands

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <nlohmann/json.hpp>

#include "adapter/net/port.h"
#include "commands/verbena/names.h"
#include "commands/verbena/status_output.h"
#include "management/cm/messages.h"
#include "management/cm/parameters.h"

namespace verbena::commands {
namespace {

using Json = nlohmann::ordered_json;

// Adds counters under the names of the kernel's files: {"counters": {"port_xmit_data": 1, ...},
// "hw_counters": {...}}.
void add_counters(Json& link, const control::DeviceCounters& counters) {
  for (const control::NamedCounter& counter : control::kNamedCounters) {
    const size_t slash = counter.path.find('/');
    link[std::string(counter.path.substr(0, slash))][std::string(counter.path.substr(slash + 1))] =
        counter.value(counters);
  }
}

Json to_json(const control::LinkStatus& one) {
  Json gids = Json::array();
  for (const control::GidEntry& entry : one.link.gids) {
    gids.push_back({{"index", entry.index}, {"gid", gid_as_text(entry.gid)}, {"type", "RoCE v2"}});
  }
  Json link = {
      {"name", one.link.name},
      {"index", one.link.device_index},
      {"netdev", one.link.netdev},
      {"interface_index", one.link.interface_index},
      {"mac", mac_as_text(one.link)},
      {"guid", guid_as_text(one.link)},
      {"mtu", one.link.mtu},
      {"active_mtu", active_mtu(one.link)},
      {"state", link_state(one.link)},
      {"automatic", one.link.automatic},
      {"peers", peers_as_text(one.link)},
      {"wire", one.wire},
      {"gids", std::move(gids)},
  };
  add_counters(link, one.counters);
  return link;
}

Json port_to_json(const control::SlotStatus& slot) {
  Json port = Json::object();
  for (size_t i = 0; i < protocol::kPortFirstDropReason; ++i) {
    port[std::string(port_counter_name(i))] = slot.port[i];
  }
  Json dropped = Json::object();
  for (size_t i = 0; i < static_cast<size_t>(net::DropReason::kCount); ++i) {
    dropped[net::kDropReasonNames[i]] = slot.port[protocol::kPortFirstDropReason + i];
  }
  port["dropped"] = std::move(dropped);
  return port;
}

// Returns null for a QP without a lossy path.
Json path_to_json(const control::QpNumbers& qp) {
  if (qp.path[transport::kPathWindow] == 0) return nullptr;
  Json path = Json::object();
  for (size_t i = 0; i < qp.path.size(); ++i) path[transport::kPathNumberNames[i]] = qp.path[i];
  return path;
}

// Returns null if direct access was not tried, or its result is not known yet.
Json peer_memory_to_json(protocol::QpWay way) {
  const std::string_view name = peer_memory_of(way).name;
  return name.empty() ? Json() : Json(name);
}

Json to_json(const control::AgentStatus& status, const control::QpNumbers& qp) {
  Json counters = Json::object();
  for (size_t i = 0; i < transport::kQpCounterCount; ++i) {
    counters[transport::kQpCounterNames[i]] = qp.counters[i];
  }
  return {
      {"qpn", qp.qpn},
      {"type", qp_type_name(qp.type)},
      {"state", qp_state_name(qp.state)},
      {"link", link_name_of(status, qp)},
      {"remote_qpn", qp.remote_qpn},
      {"route", qp.by_memory() ? "local" : "wire"},
      {"peer_memory", peer_memory_to_json(qp.way)},
      {"path", path_to_json(qp)},
      {"counters", std::move(counters)},
  };
}

Json to_json(const control::AgentStatus& status, const ProcessStatus& slot) {
  Json qps = Json::array();
  for (const control::QpNumbers& qp : slot.qps) qps.push_back(to_json(status, qp));
  return {
      {"slot", slot.index},
      {"slots", slot.slots},
      {"pid", slot.pid},
      {"uid", slot.uid},
      {"program", slot.program},
      {"protocol_version", slot.protocol_version},
      {"wire", slot.has_wire},
      {"handed_over", slot.is_forwarded},
      {"port", port_to_json(slot)},
      {"queue_pairs", std::move(qps)},
      {"cq_overruns", overrun_cqs(slot)},
  };
}

// Converts a name for people into a JSON key.
std::string key_of(std::string_view name) {
  std::string key(name);
  std::replace(key.begin(), key.end(), ' ', '_');
  return key;
}

Json to_json(const protocol::CmStatus& status) {
  Json connections = Json::object();
  for (size_t i = 0; i < cm::kStates; ++i) {
    connections[cm::state_name(static_cast<cm::State>(i))] = status.connections[i];
  }
  Json messages = Json::object();
  for (size_t i = 0; i < cm::kMessageTypes; ++i) {
    messages[cm::message_name(static_cast<cm::MessageType>(i))] = {{"sent", status.sent[i]},
                                                                   {"received", status.received[i]}};
  }
  Json dropped = Json::object();
  for (size_t i = 0; i < cm::kDropReasons; ++i) {
    dropped[key_of(cm::drop_reason_name(static_cast<cm::DropReason>(i)))] = status.dropped[i];
  }
  dropped["bad_qkey"] = status.bad_qkey;
  dropped["unknown_class"] = status.unknown_class;
  return {
      {"identifiers", status.identifiers},     {"listening", status.listening},
      {"resolving", status.resolving},         {"waiting", status.waiting},
      {"connections", std::move(connections)}, {"messages", std::move(messages)},
      {"retransmitted", status.retransmitted}, {"duplicates", status.duplicates},
      {"timed_out", status.timed_out},         {"stale_connections", status.stale_connections},
      {"dropped", std::move(dropped)},
  };
}

}  // namespace

std::string links_as_json(const control::AgentStatus& status) {
  Json links = Json::array();
  for (const control::LinkStatus& one : status.links) links.push_back(to_json(one));
  return links.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string status_as_json(const std::optional<control::AgentStatus>& status) {
  Json links = Json::array();
  Json processes = Json::array();
  Json agent;  // null without an agent
  Json connection_management;
  if (status) {
    agent = {{"pid", status->pid},
             {"uid", status->uid},
             {"version", status->version},
             {"protocol_version", status->protocol_version},
             {"refused_programs", status->refused.count},
             {"wire", status->no_wire_reason.empty()},
             {"no_wire_reason", status->no_wire_reason}};
    for (const control::LinkStatus& one : status->links) links.push_back(to_json(one));
    connection_management = to_json(status->connection_management);
    for (const ProcessStatus& process : processes_of(status->slots))
      processes.push_back(to_json(*status, process));
  }
  const Json whole = {{"version", VERBENA_VERSION},
                      {"agent", std::move(agent)},
                      {"links", std::move(links)},
                      {"processes", std::move(processes)},
                      {"connection_management", std::move(connection_management)}};
  // Replace invalid UTF-8: names come from other processes.
  return whole.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace verbena::commands

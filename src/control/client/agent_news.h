// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "control/client/agent_session.h"
#include "control/model/domain_peer.h"
#include "control/model/link.h"
#include "control/model/slot_capture.h"
#include "control/model/slot_channel.h"
#include "control/protocol/messages.h"

namespace verbena::control {

// Collects the agent's events until they are asked for: links, other processes, channels to them, captures,
// tracing. From a new agent, the link table is news, too, and so is that the captures and traces of the
// previous agent have ended. Thread-safe.
class AgentNews final : public Restorer, public AgentListener {
 public:
  AgentNews() = default;
  ~AgentNews();
  AgentNews(const AgentNews&) = delete;
  AgentNews& operator=(const AgentNews&) = delete;

  // The newest link table, if it changed since the last call.
  std::optional<std::vector<Link>> take_links();
  std::vector<DomainPeer> take_peers();
  std::vector<SlotChannel> take_channels();
  // In the order of arrival.
  std::vector<SlotCapture> take_captures();
  // Whether the process should trace each packet, if the agent has said so since the last call.
  std::optional<bool> take_trace_details();

  Result<void> restore(const NewAgent& agent) override;
  // True, because without an agent the process learns of no changes of links.
  bool needs_agent() override { return true; }
  bool on_event(AgentEvent event) override;
  // Takes the acknowledgements that are due now, for events that brought sockets of other processes. They
  // are held back while too many received sockets are yet to be closed. The agent sends no more such events
  // while too many are unacknowledged.
  std::vector<protocol::MessageType> take_owed();

 private:
  void acknowledge(const AgentEvent& event, protocol::MessageType type);
  void on_peer(const protocol::PeerMessage& message, AgentEvent& event);
  void on_channel(const protocol::ChannelMessage& message, AgentEvent& event);
  void on_capture(const protocol::CaptureMessage& message, AgentEvent& event);
  void on_trace(const protocol::TraceMessage& message, const AgentEvent& event);

  bool knows_an_agent_ = false;  // used in turns of the session only
  std::mutex mutex_;
  std::optional<std::vector<Link>> links_;
  std::vector<DomainPeer> peers_;
  std::vector<SlotChannel> channels_;
  std::vector<SlotCapture> captures_;
  std::optional<bool> trace_details_;
  std::vector<protocol::MessageType> owed_;
};

}  // namespace verbena::control

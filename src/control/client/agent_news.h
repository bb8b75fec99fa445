// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "control/client/agent_session.h"
#include "control/model/link.h"
#include "control/model/slot_messages.h"
#include "control/protocol/messages.h"

namespace verbena::control {

// Collects messages that the agent sends without a request, until a take_…() call: new link tables,
// connections to other processes, channels, captures and tracing. When a restarted agent is reached, adds its
// link table and the end of the previous agent's captures and traces. Thread-safe.
class AgentNews final : public Restorer, public AgentListener {
 public:
  AgentNews() = default;
  ~AgentNews();
  AgentNews(const AgentNews&) = delete;
  AgentNews& operator=(const AgentNews&) = delete;

  // Returns the newest link table, or nullopt if none has come since the last call.
  std::optional<std::vector<Link>> take_links();
  std::vector<DomainPeer> take_peers();
  std::vector<SlotChannel> take_channels();
  // Returns the messages about captures since the last call, in the order of arrival.
  std::vector<SlotCapture> take_captures();
  // Returns whether the process should trace each packet, or nullopt if the agent has sent nothing about it
  // since the last call.
  std::optional<bool> take_trace_details();

  Result<void> restore(const NewAgent& agent) override;
  // Returns true: without an agent the process would not learn of changes of links.
  bool needs_agent() override { return true; }
  bool on_event(AgentEvent event) override;
  // Returns the acknowledgements to send now, for events that brought sockets of other processes. Returns
  // none while 32 or more received sockets are yet to be closed. The agent sends no further sockets while 64
  // are unacknowledged.
  std::vector<protocol::MessageType> take_owed();

 private:
  void acknowledge(const AgentEvent& event, protocol::MessageType type);
  void on_peer(const protocol::PeerMessage& message, AgentEvent& event);
  void on_channel(const protocol::ChannelMessage& message, AgentEvent& event);
  void on_capture(const protocol::CaptureMessage& message, AgentEvent& event);
  void on_trace(const protocol::TraceMessage& message, const AgentEvent& event);

  bool knows_an_agent_ = false;  // used only in turns (AgentSession::Turn)
  std::mutex mutex_;
  std::optional<std::vector<Link>> links_;
  std::vector<DomainPeer> peers_;
  std::vector<SlotChannel> channels_;
  std::vector<SlotCapture> captures_;
  std::optional<bool> trace_details_;
  std::vector<protocol::MessageType> owed_;
};

}  // namespace verbena::control

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

// What the agent has said of links, of other processes and of channels to them, and of captures, until it is
// asked for. A new agent's link table is news too, and that nothing is captured for the one before.
// Thread-safe.
class AgentNews final : public Restorer, public AgentListener {
 public:
  AgentNews() = default;
  ~AgentNews();
  AgentNews(const AgentNews&) = delete;
  AgentNews& operator=(const AgentNews&) = delete;

  // The newest link table, if it changed since last asked.
  std::optional<std::vector<Link>> take_links();
  std::vector<DomainPeer> take_peers();
  std::vector<SlotChannel> take_channels();
  // In the order in which they were said.
  std::vector<SlotCapture> take_captures();
  // Whether each packet is to be traced, if that was said since last asked.
  std::optional<bool> take_trace_details();

  Result<void> restore(const NewAgent& agent) override;
  // Link changes are heard of from an agent only.
  bool needs_agent() override { return true; }
  bool on_event(AgentEvent event) override;
  // What the agent has said of sockets to other processes and has had no answer to, as too much that others
  // have sent was yet to be closed. As long as so much lies unanswered it brings no more of them. What is
  // taken is to be said, now.
  std::vector<protocol::MessageType> take_owed();

 private:
  void acknowledge(const AgentEvent& event, protocol::MessageType type);
  void on_peer(const protocol::PeerMessage& message, AgentEvent& event);
  void on_channel(const protocol::ChannelMessage& message, AgentEvent& event);
  void on_capture(const protocol::CaptureMessage& message, AgentEvent& event);
  void on_trace(const protocol::TraceMessage& message, const AgentEvent& event);

  bool knows_an_agent_ = false;  // in turns of the session
  std::mutex mutex_;
  std::optional<std::vector<Link>> links_;
  std::vector<DomainPeer> peers_;
  std::vector<SlotChannel> channels_;
  std::vector<SlotCapture> captures_;
  std::optional<bool> trace_details_;
  std::vector<protocol::MessageType> owed_;
};

}  // namespace verbena::control

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sys/types.h>

#include "agent/cm/event_channel.h"
#include "agent/cm/identifier.h"
#include "agent/cm/service.h"
#include "agent_client/admin.h"
#include "base/unique_fd.h"
#include "cm/messages.h"
#include "protocol/connection_messages.h"

namespace verbena::agent {

// One client's part of connection management: its identifiers and event channels, and the requests of
// protocol/connection_messages.h. Trusts nothing in them. When it goes, its identifiers are destroyed. Of the
// agent's thread.
class CmClient {
 public:
  static constexpr size_t kMaxIdentifiers = 131072;
  static constexpr size_t kMaxChannels = 16384;
  static constexpr size_t kMaxWaitingEvents = 65536;  // in all its channels
  static constexpr uint32_t kMaxBacklog = 1024;       // as the kernel's rdma_ucm

  // The connection it is on.
  class Host {
   public:
    virtual ~Host() = default;
    virtual void send_reply(ConstBytes message) = 0;
    virtual void send_error(const protocol::MessageHeader& request, int error, std::string_view text) = 0;
    // The client does not take its events.
    virtual void hang_up() = 0;
    virtual uid_t user() const = 0;
    // Whether the user may speak for that QP.
    virtual bool may_use_qpn(uint32_t qpn) const = 0;
  };

  CmClient(CmService& service, Host& host);
  ~CmClient();
  CmClient(const CmClient&) = delete;
  CmClient& operator=(const CmClient&) = delete;

  // The length of a request of connection management; 0: it is none.
  static size_t request_bytes(uint16_t type);
  static bool takes_descriptor(uint16_t type);
  // Carries a request out and answers it. REQUIRES: request_bytes() says its length
  void handle(const protocol::MessageHeader& header, ConstBytes message, UniqueFd descriptor);

  // For the service, which brings what peers do.
  // Whether a listener has room for another request now.
  bool has_room(CmIdentifier& listener);
  // Takes a new connection in, and tells of it. REQUIRES: its number is that of its listener
  void add_request(std::unique_ptr<CmIdentifier> id, const protocol::ConnectionParameters& parameters);
  void emit(CmIdentifier& id, int type, int status = 0,
            const protocol::ConnectionParameters* parameters = nullptr);
  void links_changed();

  const std::unordered_map<uint32_t, std::unique_ptr<CmIdentifier>>& identifiers() const { return ids_; }

 private:
  using Outcome = agent_client::AdminResult<void>;
  using AddressOutcome = agent_client::AdminResult<protocol::CmRoute>;
  using CountOutcome = agent_client::AdminResult<uint32_t>;
  struct Request;
  static const Request kRequests[];
  static const Request* find_request(uint16_t type);
  template <class Message, auto Method>
  static void carry_out(CmClient& client, const protocol::MessageHeader& header, ConstBytes message,
                        UniqueFd descriptor);
  void answer(const protocol::MessageHeader& header, const Outcome& outcome);
  void answer(const protocol::MessageHeader& header, const AddressOutcome& outcome);
  void answer(const protocol::MessageHeader& header, const CountOutcome& outcome);

  // client.cc
  Outcome open_channel(const protocol::CmChannelRequest& request, UniqueFd events);
  Outcome close_channel(const protocol::CmChannelRequest& request);
  Outcome create(const protocol::CmCreateRequest& request);
  CountOutcome destroy(const protocol::CmIdRequest& request);
  Outcome set_option(const protocol::CmOptionRequest& request);
  Outcome migrate(const protocol::CmMigrateRequest& request);
  // client_addresses.cc
  AddressOutcome bind(const protocol::CmBindRequest& request);
  AddressOutcome resolve_address(const protocol::CmResolveRequest& request);
  Outcome resolve_route(const protocol::CmIdRequest& request);
  AddressOutcome listen(const protocol::CmListenRequest& request);
  // client_connections.cc
  Outcome connect(const protocol::CmConnectRequest& request);
  Outcome accept(const protocol::CmConnectRequest& request);
  Outcome reject(const protocol::CmRejectRequest& request);
  Outcome establish(const protocol::CmIdRequest& request);
  Outcome disconnect(const protocol::CmIdRequest& request);
  // client_multicast.cc
  Outcome join(const protocol::CmJoinRequest& request);
  Outcome leave(const protocol::CmLeaveRequest& request);
  // client_restore.cc
  AddressOutcome restore(const protocol::CmRestoreRequest& request);
  Outcome restore_state(CmIdentifier& id, const protocol::CmRestoreRequest& request);
  Outcome restore_route(CmIdentifier& id, const protocol::CmRoute& route);
  Outcome restore_connection(CmIdentifier& id, const protocol::CmRestoreRequest& request);

  CmIdentifier* find(uint32_t number);
  EventChannel* find_channel(uint32_t number);
  agent_client::AdminResult<CmIdentifier*> make(const protocol::CmCreateRequest& request);
  CmIdentifier& keep(std::unique_ptr<CmIdentifier> id);
  bool is_strangers() const;
  bool may_have_more() const;
  CmService::Usage& usage() const { return service_.usage_of(host_.user()); }
  void erase(CmIdentifier& id);
  void discard(CmIdentifier& id);

  // Whether the port was the identifier's already, with a former agent.
  enum class PortIs : uint8_t { kNew, kHeldBefore };
  Outcome bind_to(CmIdentifier& id, CmAddress address, PortIs port = PortIs::kNew);
  Outcome take_port(CmIdentifier& id, PortIs port_is);
  Outcome start_listening(CmIdentifier& id, uint32_t backlog);
  std::optional<CmAddress> this_host(const CmIdentifier& id) const;
  Outcome check_local(const CmAddress& address) const;
  void set_device(CmIdentifier& id, const LinkDirectory::Place& place);
  void start_resolving(CmIdentifier& id, const RouteAnswer& route, uint32_t timeout_ms);
  void finish_resolving(CmIdentifier& id, const RouteAnswer& route, int error);
  void complete_route(CmIdentifier& id);

  Outcome connect_stream(CmIdentifier& id, const protocol::ConnectionParameters& parameters);
  Outcome connect_datagram(CmIdentifier& id, const protocol::ConnectionParameters& parameters);
  Outcome answer_request(CmIdentifier& id, const protocol::CmConnectRequest& request);
  Outcome accept_stream(CmIdentifier& id, const protocol::ConnectionParameters& parameters);
  Outcome accept_datagram(CmIdentifier& id, const protocol::CmConnectRequest& request);
  Outcome check_qpn(uint32_t qpn) const;

  protocol::CmRoute route_of(const CmIdentifier& id) const;
  protocol::CmEvent event_of(const CmIdentifier& id, int type, int status) const;
  uint64_t send(CmIdentifier& id, const protocol::CmEvent& event);
  void flush_events();

  CmService& service_;
  Host& host_;
  std::unordered_map<uint32_t, std::unique_ptr<CmIdentifier>> ids_;
  size_t waiting_events_ = 0;
  std::unordered_map<uint32_t, std::unique_ptr<EventChannel>> channels_;
  uint32_t next_agents_number_ = 1;
  bool handling_ = false;
  std::vector<protocol::CmEvent> after_reply_;  // events that its carrying out has brought about
  bool hung_up_ = false;
};

// A path as the connection manager wants it. REQUIRES: id.has_device()
roce::Path path_of(const CmIdentifier& id, const LinkDirectory& links);

}  // namespace verbena::agent

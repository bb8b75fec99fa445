// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

#include "agent/cm/client.h"
#include "agent/domain_table.h"
#include "agent/event_loop.h"
#include "agent/slot_table.h"
#include "agent_client/admin.h"
#include "agent_client/domain_peer.h"
#include "agent_client/message_socket.h"
#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/messages.h"

namespace verbena::agent {

// Programs that were refused for the version of the protocol that they speak.
struct RefusedPrograms {
  uint32_t count = 0;
  pid_t last_pid = 0;
  uint16_t last_version = 0;
};

// What sessions ask of the agent.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  virtual EventLoop& event_loop() = 0;
  // False for a moment after the start, while a client of an agent that died may bring its vault.
  virtual bool ready_for_clients() = 0;
  virtual void offer_vault(UniqueFd vault) = 0;
  virtual int vault_for_clients() = 0;
  virtual int link_file() = 0;
  virtual void greeted() = 0;
  virtual void refused_version(pid_t pid, uint16_t version) = 0;
  virtual RefusedPrograms refused_programs() = 0;
  virtual std::string no_wire_reason() = 0;
  virtual Result<LentSlot> lend_slot(const Borrower& borrower) = 0;
  virtual Result<void> keep_slot(uint32_t index, const Borrower& borrower) = 0;
  virtual Result<void> take_back_slot(uint32_t index, uint64_t session) = 0;
  virtual std::optional<LentSlot> find_lent_slot(uint32_t from) = 0;
  virtual agent_client::DeviceCounters device_counters(uint32_t device_index) = 0;
  virtual Result<UniqueFd> join_group(uint32_t device_index, const roce::Address& group) = 0;
  virtual Result<void> open_domain(const DomainTable::Member& member, int file, uint32_t device_index,
                                   DomainTable::Mode mode) = 0;
  virtual Result<void> close_domain(uint64_t session, uint64_t name) = 0;
  virtual void ask_for_peer(uint64_t session, uint64_t name, uint32_t slot) = 0;
  virtual agent_client::AdminResult<void> add_link(std::string_view name, std::string_view netdev) = 0;
  virtual agent_client::AdminResult<void> delete_link(std::string_view name) = 0;
  virtual CmService& connection_management() = 0;
  // Whether the QP is in a slot that is lent to this user.
  virtual bool is_qpn_of(uint32_t qpn, uid_t user) = 0;
  // The session is destroyed, but not before its handler has returned.
  virtual void close_session(uint64_t id) = 0;
};

// One client's connection. Trusts nothing that comes in on it: a message that is not understood is answered
// by an error; a client that does not take its answers is dropped.
class Session : private CmClient::Host {
 public:
  Session(SessionHost& host, uint64_t id, UniqueFd socket, const ucred& peer);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The agent has become ready_for_clients().
  void resume();
  // The link table is a new one.
  void links_changed();
  // Tells of another process in a domain, or that there is none. False: the client has not read what it was
  // told before, and will not hear of this.
  bool tell_peer(agent_client::DomainPeer peer);
  bool is_greeted() const { return greeted_; }
  uid_t uid() const { return peer_.uid; }
  pid_t pid() const { return peer_.pid; }
  // Not a client but our own second process.
  bool is_keeper() const;

 private:
  using Handler = void (Session::*)(const protocol::MessageHeader& request, ConstBytes message);
  struct Request {
    protocol::MessageType type;
    size_t bytes;
    Handler handler;
  };
  static const Request kRequests[];

  void on_readable(uint32_t events);
  void handle(ConstBytes message, std::vector<UniqueFd> fds, bool truncated);
  void hello(const protocol::MessageHeader& request, ConstBytes message);
  void get_links(const protocol::MessageHeader& request, ConstBytes message);
  void take_slot(const protocol::MessageHeader& request, ConstBytes message);
  void keep_slot(const protocol::MessageHeader& request, ConstBytes message);
  void return_slot(const protocol::MessageHeader& request, ConstBytes message);
  void add_link(const protocol::MessageHeader& request, ConstBytes message);
  void delete_link(const protocol::MessageHeader& request, ConstBytes message);
  void get_device_counters(const protocol::MessageHeader& request, ConstBytes message);
  void join_group(const protocol::MessageHeader& request, ConstBytes message);
  void open_domain(const protocol::MessageHeader& request, ConstBytes message);
  void close_domain(const protocol::MessageHeader& request, ConstBytes message);
  void get_status(const protocol::MessageHeader& request, ConstBytes message);
  void get_cm_status(const protocol::MessageHeader& request, ConstBytes message);
  void get_slot_status(const protocol::MessageHeader& request, ConstBytes message);

  void refuse_version(const protocol::MessageHeader& request);
  void handle_cm(const protocol::MessageHeader& request, ConstBytes message, UniqueFd descriptor);
  // CmClient::Host
  void send_reply(ConstBytes message) override { reply(message); }
  void send_error(const protocol::MessageHeader& request, int error, std::string_view text) override {
    reply_error(request, error, text);
  }
  void hang_up() override { close(); }
  uid_t user() const override { return peer_.uid; }
  bool may_use_qpn(uint32_t qpn) const override;

  void finish_hello();
  void on_event_socket(uint32_t events);
  void take_event_answer(const protocol::PeerMessage& message, size_t bytes);
  void push_links();
  bool may_change_links() const;
  Borrower borrower() const;

  void reply(ConstBytes message, std::span<const int> fds = {});
  void reply_plain(const protocol::MessageHeader& request);
  void reply_error(const protocol::MessageHeader& request, int error, std::string_view text);
  void reply_outcome(const protocol::MessageHeader& request, const agent_client::AdminResult<void>& outcome);
  void close();

  SessionHost& host_;
  const uint64_t id_;
  UniqueFd socket_;
  UniqueFd process_;  // readable when the client's process has ended, whoever has inherited its socket
  const ucred peer_;
  uint64_t start_time_ = 0;
  std::string program_;
  uint16_t version_ = protocol::kProtocolVersion;  // that both speak; from hello on
  bool greeted_ = false;
  bool closing_ = false;
  std::optional<protocol::MessageHeader> pending_hello_;
  UniqueFd descriptor_;  // that came with the request at hand

  UniqueFd events_;
  uint32_t event_sequence_ = 0;
  bool event_unseen_ = false;    // one is on its way, or lies unread
  bool links_outdated_ = false;  // and there is a newer table than it told of
  uint32_t peers_unseen_ = 0;    // likewise, of peers

  std::optional<CmClient> cm_;  // from its first request of connection management on
};

}  // namespace verbena::agent

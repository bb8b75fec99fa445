// SPDX-License-Identifier: Apache-2.0
// Programs of several users and a host on the network. Each sends arbitrary messages and descriptors to
// root's agent, and ends at any time. Promises: each request gets one answer, or ends its session. A program
// of another user, with a slot, an XRC domain and a port, keeps them, and no other user sees it. When the
// others have ended, nothing of theirs is left: no session, slot, domain member, identifier, port,
// connection, channel, or descriptor.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/socket_option.h"
#include "base/text.h"
#include "control/model/message_socket.h"
#include "control/protocol/connection_messages.h"
#include "control/protocol/messages.h"
#include "fuzz/agent_world.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"

namespace verbena::agent {
namespace {

using fuzz::Choices;
using protocol::MessageHeader;
using protocol::MessageType;

constexpr uid_t kVictim = 1001;
constexpr uint16_t kVictimsPort = 7000;
constexpr size_t kMaxPrograms = 4;
constexpr int kMaxRounds = 10'000;

// Descriptors that programs send along: copies of descriptors of this process.
struct Files {
  Files() {
    int ends[2];
    VERBENA_REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    VERBENA_REQUIRE(bind_to_random_name(ends[0]));  // otherwise a thread of the agent does it
    events = UniqueFd(ends[0]);
    reader = UniqueFd(ends[1]);
  }
  void drain() {
    std::byte buffer[512];
    while (::recv(reader.get(), buffer, sizeof buffer, 0) > 0) {
    }
  }
  UniqueFd memory[2] = {UniqueFd(::memfd_create("a", MFD_CLOEXEC)),
                        UniqueFd(::memfd_create("b", MFD_CLOEXEC))};
  UniqueFd victims{::memfd_create("v", MFD_CLOEXEC)};
  UniqueFd other{::eventfd(0, EFD_CLOEXEC)};
  UniqueFd events, reader;  // the two ends of event channels
};
Files& files() {
  static Files all;
  return all;
}

// A program that talks to the agent.
class Program {
 public:
  Program(AgentWorld& world, uid_t user) : world_(world), user_(user), client_(world.connect(user)) {}

  uid_t user() const { return user_; }
  uint64_t session() const { return client_.session; }
  bool is_there() const { return static_cast<bool>(client_.socket); }
  bool has_events() const { return static_cast<bool>(events_); }
  void hang_up() { client_.socket.reset(); }
  void drop_events() { events_.reset(); }

  // Sends a message and receives the answer. Returns the error in the answer.
  std::optional<int> say(ConstBytes message, std::span<const int> fds = {}) {
    if (!is_there() || !control::send_message(client_.socket.get(), message, fds)) return std::nullopt;
    const auto said = protocol::read_as<MessageHeader>(message);
    world_.run();
    auto answer = hear(said);
    if (!answer && world_.find(session()) != nullptr) {  // the answer waits until others have read theirs
      world_.pass(std::chrono::seconds(1));
      world_.run();
      answer = hear(said);
    }
    // A request without an answer ends the session.
    if (!answer) {
      world_.run();
      VERBENA_REQUIRE(world_.find(session()) == nullptr);
      hang_up();
    }
    return answer;
  }
  template <class Message>
  std::optional<int> ask(Message message, MessageType type, std::span<const int> fds = {}) {
    message.header = protocol::request_header(type, ++sequence_);
    return say(protocol::bytes_of(message), fds);
  }
  bool hello() {
    protocol::HelloRequest request{};
    store_text(request.program, "victim");
    return ask(request, MessageType::kHello) == 0;
  }

  void say_event(ConstBytes message, std::span<const int> fds) {
    if (!events_) return;
    [[maybe_unused]] const auto sent = control::send_message(events_.get(), message, fds);
    world_.run();
  }
  void read_events() {
    std::array<std::byte, protocol::kMaxAgentMessageBytes> buffer;
    while (events_) {
      const auto received = control::receive_message(events_.get(), buffer, 4);
      if (!received || received->bytes == 0) return;
      VERBENA_REQUIRE(received->bytes <= protocol::kMaxEventBytes && received->fds.size() <= 1);
    }
  }
  const protocol::TakeSlotReply& last_slot() const { return last_slot_; }

 private:
  std::optional<int> hear(const MessageHeader& said) {
    std::array<std::byte, protocol::kMaxAgentMessageBytes> buffer;
    auto received = control::receive_message(client_.socket.get(), buffer, 4);
    if (!received || received->bytes == 0) return std::nullopt;
    const ConstBytes bytes(buffer.data(), received->bytes);
    const auto header = protocol::read_as<MessageHeader>(bytes);
    VERBENA_REQUIRE(bytes.size() >= sizeof header && header.magic == protocol::kProtocolMagic);
    VERBENA_REQUIRE(header.type == (said.type | protocol::kReply) && header.sequence == said.sequence);
    VERBENA_REQUIRE(header.error == 0 || received->fds.empty());
    const bool is_hello = said.type == static_cast<uint16_t>(MessageType::kHello);
    if (is_hello && header.error == 0) events_ = std::move(received->fds.at(0));
    check(static_cast<MessageType>(said.type), header, bytes);
    // There is exactly one answer.
    received = control::receive_message(client_.socket.get(), buffer, 4);
    VERBENA_REQUIRE(!received || received->bytes == 0);
    return header.error;
  }

  // Checks what a user may see of others.
  void check(MessageType type, const MessageHeader& header, ConstBytes bytes) {
    if (header.error != 0) return;
    if (type == MessageType::kTakeSlot) last_slot_ = protocol::read_as<protocol::TakeSlotReply>(bytes);
    if (type == MessageType::kGetSlotStatus) {
      VERBENA_REQUIRE(user_ == 0 || protocol::read_as<protocol::SlotStatusReply>(bytes).uid == user_);
    }
  }

  AgentWorld& world_;
  const uid_t user_;
  AgentWorld::Client client_;
  UniqueFd events_;
  uint32_t sequence_ = 0;
  protocol::TakeSlotReply last_slot_{};
};

// Fills messages with valid or nearly valid numbers.
class Words {
 public:
  // `slots`: the leased ones
  Words(Choices& choices, std::vector<uint32_t> slots) : choices_(choices), slots_(std::move(slots)) {}

  void fill(protocol::HelloRequest& m) {
    store_text(m.program, choices_.below(8) == 0 ? "keeper" : "program");
    if (choices_.below(8) == 0) choices_.fill(m.program);
  }
  void fill(protocol::SlotRequest& m) { m.index = slot(); }
  void fill(protocol::LinkRequest& m) {
    static constexpr const char* kNames[] = {"rxe_eth0", "a", "b", "rxe_lo", "", "a/b", "."};
    static constexpr const char* kNetdevs[] = {"eth0", "lo", "none", ""};
    store_text(m.name, kNames[choices_.below(std::size(kNames))]);
    store_text(m.netdev, kNetdevs[choices_.below(std::size(kNetdevs))]);
  }
  void fill(protocol::GroupRequest& m) {
    m.device_index = choices_.below(4);
    m.group[0] = choices_.yes() ? 0xff : 0;
    m.group[15] = choices_.byte();
  }
  void fill(protocol::DomainRequest& m) {
    m.domain = choices_.below(4);
    m.device_index = choices_.below(2);
    m.slot = slot();
    m.flags = choices_.below(4);
  }
  void fill(protocol::DeviceRequest& m) { m.device_index = choices_.below(4); }
  void fill(protocol::StartCaptureRequest& m) { m.snap_bytes = choices_.number<uint32_t>(); }
  void fill(protocol::CmChannelRequest& m) {
    m.channel = channel();
    m.generation = choices_.below(3);
  }
  void fill(protocol::CmCreateRequest& m) {
    static constexpr uint16_t kSpaces[] = {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_PS_IPOIB, 7};
    m.id = id();
    m.channel = channel();
    m.port_space = kSpaces[choices_.below(std::size(kSpaces))];
    m.qp_type = choices_.below(8) == 0 ? choices_.byte() : 2;
  }
  void fill(protocol::CmIdRequest& m) { m.id = id(); }
  void fill(protocol::CmBindRequest& m) {
    m.id = id();
    fill(m.address);
  }
  void fill(protocol::CmResolveRequest& m) {
    m.id = id();
    m.timeout_ms = choices_.yes() ? 2000 : choices_.number<uint32_t>();
    if (choices_.below(4) == 0) fill(m.source);
    fill(m.destination);
  }
  void fill(protocol::CmListenRequest& m) {
    m.id = id();
    m.backlog = choices_.byte();
  }
  void fill(protocol::CmConnectRequest& m) {
    m.id = id();
    m.refused = choices_.below(8) == 0 ? 1 : 0;
    m.parameters.qpn = qpn();
    m.parameters.responder_resources = choices_.byte();
    m.parameters.initiator_depth = choices_.byte();
    m.parameters.retry_count = choices_.byte();
    m.parameters.private_length = choices_.byte();
  }
  void fill(protocol::CmRejectRequest& m) {
    m.id = id();
    m.reason = choices_.byte();
    m.private_length = choices_.byte();
  }
  void fill(protocol::CmOptionRequest& m) {
    m.id = id();
    m.option = choices_.below(5);
    m.value = choices_.byte();
  }
  void fill(protocol::CmJoinRequest& m) {
    m.id = id();
    m.multicast = choices_.below(4);
    m.join_flags = choices_.below(4);
    fill(m.group);
    if (choices_.below(4) != 0) m.group.address[0] = 224;
  }
  void fill(protocol::CmLeaveRequest& m) {
    m.id = id();
    m.multicast = choices_.below(4);
  }
  void fill(protocol::CmMigrateRequest& m) {
    m.id = id();
    m.channel = channel();
  }
  void fill(protocol::CmRestoreRequest& m) {
    fill(m.create);
    m.state = choices_.below(6);
    m.tos = choices_.yes() ? ~0u : choices_.byte();
    m.options = choices_.below(8);
    fill(m.route.source);
    fill(m.route.destination);
    const roce::Address peer = host_address(2);
    std::memcpy(m.route.destination_gid, peer.bytes.data(), peer.bytes.size());
    m.connection.local_id = choices_.byte();
    m.connection.remote_id = choices_.byte();
    m.connection.local_qpn = qpn();
    m.connection.is_active = choices_.yes();
  }
  template <class Message>
  void fill(Message&) {}

  void fill(protocol::CmAddress& address) {
    static constexpr uint8_t kHosts[][4] = {
        {0, 0, 0, 0}, {10, 0, 0, 1}, {10, 0, 0, 2}, {127, 0, 0, 1}, {224, 1, 1, 1}};
    address.family = AF_INET;
    const auto& host = kHosts[choices_.below(std::size(kHosts))];
    std::memcpy(address.address, host, sizeof host);
    address.port = htons(static_cast<uint16_t>(choices_.yes() ? kVictimsPort + choices_.below(4) : 0));
    if (choices_.below(8) == 0) {
      address.family = AF_INET6;
      choices_.fill(address.address);
    }
  }

  uint32_t slot() const {
    return choices_.below(8) == 0 || slots_.empty() ? choices_.byte()
                                                    : slots_[choices_.byte() % slots_.size()];
  }

 private:
  uint32_t id() { return (choices_.below(8) == 0 ? protocol::kCmAgentsNumber : 0) + 1 + choices_.below(5); }
  uint32_t channel() { return choices_.below(3); }
  uint32_t qpn() { return roce::Qpn::in_slot(slot(), choices_.byte()).value(); }

  Choices& choices_;
  const std::vector<uint32_t> slots_;
};

class Scene {
 public:
  explicit Scene(bool has_wire) : world_(has_wire) { invite_victim(); }

  // `lot`: derived from the input in a way that the fuzzer cannot choose.
  void run(Choices& choices, uint32_t lot) {
    Outside::get().choices = &choices;
    choices_ = &choices;
    while (!choices.empty()) turn();
    Outside::get().choices = nullptr;
    end(lot % 8 == 0);
  }

 private:
  void invite_victim() {
    victim_ = std::make_unique<Program>(world_, kVictim);
    VERBENA_REQUIRE(victim_->hello());
    VERBENA_REQUIRE(victim_->ask(protocol::TakeSlotRequest{}, MessageType::kTakeSlot) == 0);
    victims_slot_ = victim_->last_slot().index;
    protocol::DomainRequest domain{};
    domain.domain = 1;
    domain.slot = victims_slot_;
    domain.flags = protocol::DomainRequest::kCreate;
    const int file = files().victims.get();
    VERBENA_REQUIRE(victim_->ask(domain, MessageType::kOpenDomain, {&file, 1}) == 0);
    const int events = files().events.get();
    protocol::CmChannelRequest channel{};
    channel.channel = 1;
    VERBENA_REQUIRE(victim_->ask(channel, MessageType::kCmOpenChannel, {&events, 1}) == 0);
    protocol::CmCreateRequest create{};
    create.id = create.channel = 1;
    create.port_space = RDMA_PS_TCP;
    create.qp_type = 2;
    VERBENA_REQUIRE(victim_->ask(create, MessageType::kCmCreateId) == 0);
    VERBENA_REQUIRE(bind_port(*victim_) == 0);
  }

  // Binds to the victim's port.
  static std::optional<int> bind_port(Program& program) {
    constexpr uint8_t kHost[4] = {10, 0, 0, 1};
    protocol::CmBindRequest bind{};
    bind.id = 1;
    bind.address.family = AF_INET;
    bind.address.port = htons(kVictimsPort);
    std::memcpy(bind.address.address, kHost, sizeof kHost);
    return program.ask(bind, MessageType::kCmBind);
  }

  void turn() {
    if (programs_.empty()) come();
    switch (choices_->below(16)) {
      case 0:
        return come();
      case 1:
        return go();
      case 2:
        Outside::get().now += std::chrono::milliseconds(choices_->byte() * choices_->byte());
        return world_.run();
      case 3:
        return arrive();
      case 4:
      case 5:
        return say_event();
      default:
        return say();
    }
  }

  void come() {
    static constexpr uid_t kUsers[] = {1000, 1000, 1002, 1002, 1000, 1002, kVictim, 0};
    if (programs_.size() == kMaxPrograms) return;
    const uid_t user = kUsers[choices_->below(std::size(kUsers))];
    was_root_here_ |= user == 0;
    Program& program = *programs_.emplace_back(std::make_unique<Program>(world_, user));
    if (choices_->below(8) != 0) program.hello();
  }
  void go() {
    const auto which = programs_.begin() + static_cast<ptrdiff_t>(choices_->byte() % programs_.size());
    if (choices_->below(4) == 0) return (*which)->drop_events();
    programs_.erase(which);
    world_.run();
  }
  Program& pick() { return *programs_[choices_->byte() % programs_.size()]; }

  void say() {
    Program& program = pick();
    const uint8_t which = choices_->byte();
    switch (which % 34) {
#define VERBENA_SAY(number, type, message) \
  case number:                             \
    return say_as<protocol::message>(program, MessageType::type);
      VERBENA_SAY(0, kHello, HelloRequest)
      VERBENA_SAY(1, kGetLinks, GetLinksRequest)
      VERBENA_SAY(2, kTakeSlot, TakeSlotRequest)
      VERBENA_SAY(3, kKeepSlot, SlotRequest)
      VERBENA_SAY(4, kReturnSlot, SlotRequest)
      VERBENA_SAY(5, kAddLink, LinkRequest)
      VERBENA_SAY(6, kDeleteLink, LinkRequest)
      VERBENA_SAY(7, kGetStatus, GetStatusRequest)
      VERBENA_SAY(8, kGetSlotStatus, SlotRequest)
      VERBENA_SAY(9, kJoinGroup, GroupRequest)
      VERBENA_SAY(10, kGetDeviceCounters, DeviceRequest)
      VERBENA_SAY(11, kGetCmStatus, GetCmStatusRequest)
      VERBENA_SAY(12, kOpenDomain, DomainRequest)
      VERBENA_SAY(13, kCloseDomain, DomainRequest)
      VERBENA_SAY(14, kStartCapture, StartCaptureRequest)
      VERBENA_SAY(15, kGetCaptureNews, GetCaptureNewsRequest)
      VERBENA_SAY(16, kCmOpenChannel, CmChannelRequest)
      VERBENA_SAY(17, kCmCloseChannel, CmChannelRequest)
      VERBENA_SAY(18, kCmDestroyId, CmIdRequest)
      VERBENA_SAY(19, kCmBind, CmBindRequest)
      VERBENA_SAY(20, kCmResolveAddress, CmResolveRequest)
      VERBENA_SAY(21, kCmResolveRoute, CmIdRequest)
      VERBENA_SAY(22, kCmListen, CmListenRequest)
      VERBENA_SAY(23, kCmConnect, CmConnectRequest)
      VERBENA_SAY(24, kCmAccept, CmConnectRequest)
      VERBENA_SAY(25, kCmReject, CmRejectRequest)
      VERBENA_SAY(26, kCmEstablish, CmIdRequest)
      VERBENA_SAY(27, kCmDisconnect, CmIdRequest)
      VERBENA_SAY(28, kCmSetOption, CmOptionRequest)
      VERBENA_SAY(29, kCmJoin, CmJoinRequest)
      VERBENA_SAY(30, kCmLeave, CmLeaveRequest)
      VERBENA_SAY(31, kCmMigrateId, CmMigrateRequest)
      VERBENA_SAY(32, kClaimSlot, ClaimSlotRequest)
#undef VERBENA_SAY
      default:
        if (which >= 128) return say_as<protocol::CmRestoreRequest>(program, MessageType::kCmRestoreId);
        return say_as<protocol::CmCreateRequest>(program, MessageType::kCmCreateId);
    }
  }

  template <class Message>
  void say_as(Program& program, MessageType type) {
    Message message{};
    Words(*choices_, leased()).fill(message);
    message.header = protocol::request_header(type, choices_->byte());
    std::byte bytes[sizeof message + 8]{};
    std::memcpy(bytes, &message, sizeof message);
    size_t length = sizeof message;
    const uint8_t change = choices_->byte();
    if (change < 16) {  // random bytes at random places
      for (uint32_t i = change; i > 0; --i) {
        bytes[choices_->number<uint16_t>() % sizeof message] = static_cast<std::byte>(choices_->byte());
      }
    } else if (change < 20) {
      length = choices_->number<uint16_t>() % sizeof bytes;
    } else if (change < 24) {
      const auto version = static_cast<uint16_t>(choices_->below(8));
      std::memcpy(bytes + offsetof(MessageHeader, version), &version, sizeof version);
    }
    if (length == 0) return;
    program.say({bytes, length}, descriptors(type));
  }

  // Returns the descriptors that a request takes, in most cases.
  std::span<const int> descriptors(MessageType type) {
    Files& all = files();
    const bool asks_for_one = type == MessageType::kCmOpenChannel || type == MessageType::kOpenDomain;
    const uint8_t choice = choices_->byte();
    if (!asks_for_one && choice < 0xf8) return {};
    fds_ = {type == MessageType::kCmOpenChannel ? all.events.get() : all.memory[choice & 1].get(),
            all.other.get()};
    if (choice < 0xf0) return std::span(fds_).first(1);
    if (choice == 0xf0) return {};
    if (choice < 0xf4) return std::span(fds_).last(1);
    return std::span(fds_).first(1 + (choice & 1));
  }

  void say_event() {
    static constexpr MessageType kTypes[] = {MessageType::kLinksSeen,   MessageType::kAskPeer,
                                             MessageType::kPeerSeen,    MessageType::kAskChannel,
                                             MessageType::kChannelSeen, MessageType::kCaptureSeen,
                                             MessageType::kHello,       MessageType::kPeer};
    Program& program = pick();
    const MessageType type = kTypes[choices_->below(std::size(kTypes))];
    const uint8_t how = choices_->byte();
    if (how < 32) return program.read_events();
    Words words(*choices_, leased());
    protocol::ChannelMessage channel{};
    protocol::PeerMessage peer{};
    channel.own_slot = words.slot();
    channel.peer_slot = words.slot();
    peer.domain = choices_->below(4);
    peer.slot = words.slot();
    channel.header = peer.header = protocol::request_header(type, how);
    const ConstBytes whole =
        type == MessageType::kAskPeer ? protocol::bytes_of(peer) : protocol::bytes_of(channel);
    const size_t length = how < 40 ? how - 31 : whole.size();
    fds_[0] = files().other.get();
    program.say_event(whole.first(length),
                      how == 255 ? std::span<const int>(fds_).first(1) : std::span<const int>());
  }

  // Returns one of QP1's own messages, unchanged or as an answer to it, from its destination or from
  // ourselves.
  void arrive() {
    std::vector<Outside::Datagram>& sent = Outside::get().sent;
    if (sent.empty()) return;
    Outside::Datagram datagram = sent[choices_->byte() % sent.size()];
    const uint8_t how = choices_->byte();
    if ((how & 1) != 0) {
      std::swap(datagram.path.source, datagram.path.destination);
      uint32_t ids[2];
      std::memcpy(ids, &datagram.mad.bytes[24], sizeof ids);
      std::swap(ids[0], ids[1]);
      if ((how & 2) != 0) ids[0] = choices_->byte();
      std::memcpy(&datagram.mad.bytes[24], ids, sizeof ids);
      datagram.mad.bytes[17] = static_cast<std::byte>(0x10 + choices_->below(12));
    }
    if ((how & 4) != 0) {
      for (uint32_t i = choices_->below(8); i > 0; --i) {
        datagram.mad.bytes[choices_->byte()] = static_cast<std::byte>(choices_->byte());
      }
    }
    world_.arrive(datagram.mad, datagram.path);
    world_.run();
    if (sent.size() > 64) sent.erase(sent.begin(), sent.end() - 16);
  }

  std::vector<uint32_t> leased() {
    std::vector<uint32_t> slots;
    for (const LeasedSlot& slot : world_.slots().leased()) slots.push_back(slot.index);
    return slots;
  }

  void end(bool tries_port) {
    require_victim();
    if (tries_port && !was_root_here_) require_victims_port();
    programs_.clear();
    world_.run();
    // Lets time pass until all timers and waits towards peers have ended.
    CmService& cm = world_.connection_management();
    for (int i = 0; i < 3 || cm.manager().size() > 0; ++i) {
      VERBENA_REQUIRE(i < kMaxRounds);
      world_.pass(std::chrono::hours(1));
      world_.run();
    }
    files().drain();
    Outside::get().sent.clear();
    if (std::exchange(was_root_here_, false)) {
      victim_.reset();
      world_.restore_links();
      world_.run();
      world_.pass(std::chrono::hours(1));
      invite_victim();
    }
    victim_->read_events();
    require_nothing_left();
  }

  void require_victim() {
    VERBENA_REQUIRE(world_.find(victim_->session()) != nullptr);
    const auto slot = world_.slots().find_leased(victims_slot_);
    VERBENA_REQUIRE(slot && slot->index == victims_slot_ && slot->lessee.session == victim_->session());
    VERBENA_REQUIRE(victim_->ask(protocol::GetStatusRequest{}, MessageType::kGetStatus) == 0);
    // The victim still has its domain and its port.
    protocol::DomainRequest domain{};
    domain.domain = 1;
    domain.slot = victims_slot_;
    const int file = files().victims.get();
    VERBENA_REQUIRE(victim_->ask(domain, MessageType::kOpenDomain, {&file, 1}) == EINVAL);
  }
  void require_victims_port() {
    Program other(world_, 1003);
    VERBENA_REQUIRE(other.hello());
    const int events = files().events.get();
    protocol::CmChannelRequest channel{};
    VERBENA_REQUIRE(other.ask(channel, MessageType::kCmOpenChannel, {&events, 1}) == 0);
    protocol::CmCreateRequest create{};
    create.id = 1;
    create.port_space = RDMA_PS_TCP;
    create.qp_type = 2;
    VERBENA_REQUIRE(other.ask(create, MessageType::kCmCreateId) == 0);
    VERBENA_REQUIRE(bind_port(other) == EADDRINUSE);
  }

  void require_nothing_left() {
    CmService& cm = world_.connection_management();
    VERBENA_REQUIRE(world_.sessions() == 1 && world_.slots().leased().size() == 1);
    VERBENA_REQUIRE(cm.clients().size() == 1 && cm.manager().size() == 0 && cm.manager().half_open() == 0);
    VERBENA_REQUIRE(!cm.can_resolve() || cm.neighbours().waiting() == 0);
    for (const uid_t user : {0u, 1000u, 1002u, 1003u, kVictim}) {
      const size_t own = user == kVictim ? 1 : 0;
      VERBENA_REQUIRE(cm.shares().identifiers.of(user) == own);
      VERBENA_REQUIRE(cm.shares().waiting_events.of(user) == 0 && cm.shares().groups.of(user) == 0);
      VERBENA_REQUIRE(cm.channels().of(user) == own);
      VERBENA_REQUIRE(user == kVictim || world_.sockets().unread().of(user) == 0);
      VERBENA_REQUIRE(world_.sockets().closer().waiting(user) == 0);
    }
  }

  AgentWorld world_;
  std::unique_ptr<Program> victim_;
  uint32_t victims_slot_ = 0;
  Choices* choices_ = nullptr;
  std::vector<std::unique_ptr<Program>> programs_;
  std::array<int, 2> fds_{};
  bool was_root_here_ = false;
};

}  // namespace
}  // namespace verbena::agent

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace verbena::agent;
  Outside::get().is_fake = true;
  static Scene with_wire(true);
  static Scene without_wire(false);
  Choices choices(data, size);
  const uint32_t lot = std::accumulate(data, data + size, 0u);
  (choices.below(8) == 0 ? without_wire : with_wire).run(choices, lot);
  Outside::get().is_fake = false;
  return 0;
}

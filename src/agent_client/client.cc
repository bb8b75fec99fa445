// SPDX-License-Identifier: Apache-2.0
#include "agent_client/client.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "agent_client/agent_starter.h"
#include "agent_client/connection.h"
#include "agent_client/link_table_file.h"
#include "agent_client/message_socket.h"
#include "base/log.h"
#include "base/time.h"
#include "protocol/messages.h"
#include "protocol/text.h"

namespace verbena::agent_client {
namespace {

constexpr Duration kStartInterval = std::chrono::seconds(1);

// Two locks: a call may hold call_mutex_ for as long as the agent takes; event_mutex_ is never held across
// anything that waits. Taken in that order.
class AgentClient final : public Client {
 public:
  explicit AgentClient(const ConnectOptions& options) : options_(options) {}
  ~AgentClient() override = default;

  Result<void> start() {
    poll_set_.reset(::epoll_create1(EPOLL_CLOEXEC));
    if (!poll_set_) return fail(errno);
    timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!timer_) return fail(errno);
    epoll_event interest{EPOLLIN, {.fd = timer_.get()}};
    if (::epoll_ctl(poll_set_.get(), EPOLL_CTL_ADD, timer_.get(), &interest) != 0) return fail(errno);
    const std::lock_guard lock(call_mutex_);
    return reconnect(MonotonicClock::now() + kCallTimeout);
  }

  Result<std::vector<Link>> links() override {
    const std::lock_guard lock(call_mutex_);
    auto answer =
        call_locked<protocol::PlainReply>(protocol::MessageType::kGetLinks, protocol::GetLinksRequest{}, 1);
    if (!answer) return fail(answer.error().code);
    auto snapshot = read_link_file(answer->fds[0].get());
    if (!snapshot) return fail(snapshot.error().code);
    return std::move(snapshot->links);
  }

  Result<Slot> take_slot() override {
    const std::lock_guard lock(call_mutex_);
    auto answer = call_locked<protocol::TakeSlotReply>(protocol::MessageType::kTakeSlot,
                                                       protocol::TakeSlotRequest{}, 1);
    if (!answer) return fail(answer.error().code);
    const bool has_socket = answer->message.has_socket != 0;
    if (has_socket && answer->fds.size() < 2) return fail(EPROTO);
    Slot slot;
    slot.index = answer->message.index;
    slot.status_page = std::move(answer->fds[0]);
    if (has_socket) {
      slot.socket = std::move(answer->fds[1]);
    } else {
      slot.no_wire_reason = protocol::load_text(answer->message.no_wire_reason);
    }
    slots_.push_back(slot.index);
    return slot;
  }

  Result<void> return_slot(uint32_t index) override {
    const std::lock_guard lock(call_mutex_);
    if (std::find(slots_.begin(), slots_.end(), index) == slots_.end()) return fail(EINVAL);
    protocol::SlotRequest request{};
    request.index = index;
    const auto answer = call_locked<protocol::PlainReply>(protocol::MessageType::kReturnSlot, request, 0);
    std::erase(slots_, index);
    if (!answer) return fail(answer.error().code);
    return {};
  }

  Result<UniqueFd> join_group(uint32_t device_index, const roce::Address& group) override {
    const std::lock_guard lock(call_mutex_);
    protocol::GroupRequest request{};
    request.device_index = device_index;
    std::copy(group.bytes.begin(), group.bytes.end(), request.group);
    auto answer = call_locked<protocol::PlainReply>(protocol::MessageType::kJoinGroup, request, 1);
    if (!answer) return fail(answer.error().code);
    return std::move(answer->fds[0]);
  }

  Result<void> open_domain(uint64_t domain, uint32_t slot, const DomainFile& file) override {
    const std::lock_guard lock(call_mutex_);
    if ((capabilities_ & protocol::kServesXrcDomains) == 0) return fail(EOPNOTSUPP);
    OpenDomain opened{domain, slot, file.device_index, UniqueFd(::fcntl(file.fd, F_DUPFD_CLOEXEC, 0))};
    if (!opened.file) return fail(errno);
    const uint32_t flags = (file.create ? protocol::DomainRequest::kCreate : 0) |
                           (file.exclusive ? protocol::DomainRequest::kExclusive : 0);
    const int fd = opened.file.get();
    const auto answer = call_locked<protocol::PlainReply>(protocol::MessageType::kOpenDomain,
                                                          request_for(opened, flags), 0, {&fd, 1});
    if (!answer) return fail(answer.error().code);
    domains_.push_back(std::move(opened));
    return {};
  }

  void close_domain(uint64_t domain) override {
    const std::lock_guard lock(call_mutex_);
    const auto known = std::ranges::find(domains_, domain, &OpenDomain::domain);
    if (known == domains_.end()) return;
    const protocol::DomainRequest request = request_for(*known, 0);
    domains_.erase(known);
    [[maybe_unused]] const auto answer =
        call_locked<protocol::PlainReply>(protocol::MessageType::kCloseDomain, request, 0);
  }

  void ask_for_peer(uint64_t domain, uint32_t slot) override {
    const std::lock_guard lock(event_mutex_);
    protocol::PeerMessage message{};
    message.header = protocol::request_header(protocol::MessageType::kAskPeer, 0);
    message.domain = domain;
    message.slot = slot;
    if (events_) [[maybe_unused]]
      const auto sent = send_message(events_.get(), protocol::bytes_of(message));
  }

  std::vector<DomainPeer> next_peers() override {
    const std::lock_guard lock(event_mutex_);
    return std::exchange(peers_, {});
  }

  int event_fd() const override { return poll_set_.get(); }

  std::optional<std::vector<Link>> next_links() override {
    std::optional<std::vector<Link>> links;
    bool connected;
    {
      const std::lock_guard lock(event_mutex_);
      uint64_t expirations;
      [[maybe_unused]] const ssize_t got = ::read(timer_.get(), &expirations, sizeof expirations);
      receive_events();
      links = std::exchange(newest_, std::nullopt);
      connected = static_cast<bool>(events_);
    }
    if (!connected && !abandoned_) seek_agent();
    if (!links) {
      const std::lock_guard lock(event_mutex_);
      links = std::exchange(newest_, std::nullopt);
    }
    return links;
  }

  void abandon() override {
    abandoned_ = true;
    domains_.clear();
    peers_.clear();
    connection_.reset();
    events_.reset();
    timer_.reset();
    poll_set_.reset();
    vault_.reset();
    slots_.clear();
  }

 private:
  // Calls the agent; when it is found dead, the next one. REQUIRES: call_mutex_ is held
  template <class Reply, class Request>
  AdminResult<Answer<Reply>> call_locked(protocol::MessageType type, const Request& request, size_t min_fds,
                                         std::span<const int> fds = {}) {
    const TimePoint deadline = MonotonicClock::now() + kCallTimeout;
    for (int attempt = 0;; ++attempt) {
      if (!connection_ || connection_->lost()) {
        if (const auto connected = reconnect(deadline); !connected) {
          return tl::unexpected(AdminError{connected.error().code, {}});
        }
      }
      auto answer = connection_->template call<Reply>(type, request, min_fds, deadline, fds);
      if (answer || !connection_->lost() || attempt > 0) return answer;
    }
  }

  // REQUIRES: call_mutex_ is held
  Result<void> reconnect(TimePoint deadline) {
    if (abandoned_) return fail(ECONNREFUSED);
    return Connection::open_and_greet(
        options_, deadline, MonotonicClock::now() + grace_for_next(agent_uid_),
        [this](Connection connection, TimePoint until) { return greet(std::move(connection), until); });
  }

  // Says hello, and which slots we hold. REQUIRES: call_mutex_ is held
  Result<void> greet(Connection connection, TimePoint deadline) {
    auto answer = connection.say_hello(vault_, deadline);
    if (!answer) return fail(answer.error().code);
    auto snapshot = read_link_file(answer->fds[1].get());
    if (!snapshot) return fail(snapshot.error().code);

    for (const uint32_t index : slots_) {
      protocol::SlotRequest request{};
      request.index = index;
      const auto kept =
          connection.call<protocol::PlainReply>(protocol::MessageType::kKeepSlot, request, 0, deadline);
      if (!kept) {
        if (connection.lost()) return fail(kept.error().code);
        log_warning("the restarted agent does not know our slot {}: {}", index, kept.error().text);
      }
    }
    for (const OpenDomain& open : domains_) {
      const int file = open.file.get();
      const auto joined = connection.call<protocol::PlainReply>(
          protocol::MessageType::kOpenDomain, request_for(open, protocol::DomainRequest::kCreate), 0,
          deadline, {&file, 1});
      if (!joined && connection.lost()) return fail(joined.error().code);
    }
    const bool again = agent_uid_ != kNoAgentYet;
    const uid_t uid = connection.agent_uid();
    connection_ = std::move(connection);
    capabilities_ = answer->message.capabilities;
    vault_ = answer->fds.size() > 2 ? std::move(answer->fds[2]) : UniqueFd();

    const std::lock_guard lock(event_mutex_);
    agent_uid_ = uid;
    watch_events(std::move(answer->fds[0]));
    if (again) {  // what we knew came from another agent
      newest_ = std::move(snapshot->links);
      set_timer(Duration(1));
    }
    return {};
  }

  // REQUIRES: event_mutex_ is held
  void watch_events(UniqueFd socket) {
    epoll_event interest{EPOLLIN, {.fd = socket.get()}};
    events_ = std::move(socket);
    if (::epoll_ctl(poll_set_.get(), EPOLL_CTL_ADD, events_.get(), &interest) != 0) {
      log_error("link events cannot be watched: errno {}", errno);
    }
  }

  // REQUIRES: event_mutex_ is held
  void receive_events() {
    while (events_) {
      protocol::PeerMessage message{};
      auto received = receive_message(events_.get(), std::as_writable_bytes(std::span(&message, 1)));
      if (!received && received.error().code == EAGAIN) return;
      const protocol::MessageHeader& header = message.header;
      const bool whole = received && received->bytes >= sizeof header && !received->truncated &&
                         header.magic == protocol::kProtocolMagic;
      if (whole && header.type == static_cast<uint16_t>(protocol::MessageType::kPeer) &&
          received->bytes == sizeof message) {
        take_peer(message, received->fds);
        continue;
      }
      const bool good = whole && received->bytes == sizeof header && received->fds.size() == 1;
      if (!good) {  // the agent died
        events_.reset();
        retry_interval_ = kFirstRetry;
        next_start_ = MonotonicClock::now() + grace_for_next(agent_uid_);
        return;
      }
      const auto seen = protocol::request_header(protocol::MessageType::kLinksSeen, header.sequence);
      [[maybe_unused]] const auto answered = send_message(events_.get(), protocol::bytes_of(seen));
      if (auto snapshot = read_link_file(received->fds[0].get())) newest_ = std::move(snapshot->links);
    }
  }

  // REQUIRES: event_mutex_ is held
  void take_peer(const protocol::PeerMessage& message, std::vector<UniqueFd>& fds) {
    const auto seen = protocol::request_header(protocol::MessageType::kPeerSeen, message.header.sequence);
    [[maybe_unused]] const auto answered = send_message(events_.get(), protocol::bytes_of(seen));
    DomainPeer peer{message.domain, message.slot, message.asked != 0, message.header.error, {}};
    if (!fds.empty()) peer.socket = std::move(fds.front());
    peers_.push_back(std::move(peer));
  }

  // One step towards another agent: connects if one listens, else starts one and comes back later.
  void seek_agent() {
    const std::unique_lock lock(call_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {  // a call is under way and finds the same
      const std::lock_guard events(event_mutex_);
      set_timer(kFirstRetry);
      return;
    }
    {
      const std::lock_guard events(event_mutex_);
      if (events_) return;  // a call has been quicker
    }
    connection_.reset();
    if (auto connection = Connection::open()) {
      if (greet(std::move(*connection), MonotonicClock::now() + kCallTimeout)) return;
    } else if (options_.start_agent && may_start_now()) {
      const std::string program = find_agent_program(options_.agent_program);
      if (!program.empty()) {
        [[maybe_unused]] const auto started = start_agent(program);
      }
    }
    const std::lock_guard events(event_mutex_);
    set_timer(retry_interval_);
    retry_interval_ = std::min(retry_interval_ * 2, kLongestRetry);
  }

  // Whether it is time to start an agent, once per interval.
  bool may_start_now() {
    const std::lock_guard events(event_mutex_);
    const TimePoint now = MonotonicClock::now();
    if (now < next_start_) return false;
    next_start_ = now + kStartInterval;
    return true;
  }

  // Makes event_fd() readable after `delay`. REQUIRES: event_mutex_ is held
  void set_timer(Duration delay) {
    itimerspec when{};
    when.it_value.tv_sec = delay.count() / 1'000'000'000;
    when.it_value.tv_nsec = delay.count() % 1'000'000'000;
    ::timerfd_settime(timer_.get(), 0, &when, nullptr);
  }

  struct OpenDomain {
    uint64_t domain;
    uint32_t slot;
    uint32_t device_index;
    UniqueFd file;
  };
  static protocol::DomainRequest request_for(const OpenDomain& open, uint32_t flags) {
    protocol::DomainRequest request{};
    request.domain = open.domain;
    request.device_index = open.device_index;
    request.slot = open.slot;
    request.flags = flags;
    return request;
  }

  const ConnectOptions options_;
  UniqueFd poll_set_;  // of events_ and timer_: a number that stays when the agent changes
  bool abandoned_ = false;

  std::mutex call_mutex_;
  std::optional<Connection> connection_;
  uint64_t capabilities_ = 0;
  UniqueFd vault_;  // keeps every socket of the agent alive, in order, when it dies
  std::vector<uint32_t> slots_;
  std::vector<OpenDomain> domains_;
  uid_t agent_uid_ = kNoAgentYet;  // written under both locks

  std::mutex event_mutex_;  // taken after call_mutex_
  UniqueFd events_;
  UniqueFd timer_;
  std::optional<std::vector<Link>> newest_;
  std::vector<DomainPeer> peers_;
  Duration retry_interval_ = kFirstRetry;
  TimePoint next_start_{};
};

}  // namespace

Result<std::unique_ptr<Client>> Client::connect(const ConnectOptions& options) {
  auto client = std::make_unique<AgentClient>(options);
  if (const auto started = client->start(); !started) return fail(started.error().code);
  return client;
}

}  // namespace verbena::agent_client

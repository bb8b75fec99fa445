// SPDX-License-Identifier: Apache-2.0
#include "control/client/agent_connection.h"

#include <array>
#include <span>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/failed_call.h"
#include "base/format.h"
#include "base/log.h"
#include "base/paths/state_path.h"
#include "base/paths/users.h"
#include "base/text.h"
#include "control/model/message_socket.h"

namespace verbena::control {

namespace {

// How long a receive waits in the kernel, which saves the system call of waiting in poll(2).
constexpr auto kReceiveTimeout = std::chrono::seconds(1);
// How long a reply waits for free descriptors, and how often these are tried.
constexpr Duration kPatienceForDescriptors = std::chrono::milliseconds(100);
constexpr Duration kDescriptorInterval = std::chrono::milliseconds(10);

constexpr Duration kLookInterval = std::chrono::milliseconds(50);
constexpr Duration kStartInterval = std::chrono::milliseconds(500);

// How long a listener that is found by an agent's abstract name may have no room for a connection. A socket
// file shows that its listener is an agent; the abstract name does not.
constexpr Duration kBusyPatience = std::chrono::milliseconds(500);
// How long an abstract name is left alone at which a stranger listens. connect(2) wakes all watches of its
// listener, which may take a second (epoll(7)).
constexpr Duration kStrangerPause = std::chrono::seconds(5);

// Whether the error means that nobody listens there, or nobody to be trusted.
bool is_absence(int error) {
  return error == ECONNREFUSED || error == ENOENT || error == EPERM || error == EACCES;
}

// Where an agent was looked for: the socket file of `owner`, or the abstract name. In a user namespace
// without a number for root, the kernel shows root's agent under an ambiguous user ID. Behind root's socket
// file it is trusted all the same, because the file's directory is.
struct Place {
  uid_t owner;
  bool is_file;
};

bool is_trusted(const paths::PeerProcess& listener, const Place& place) {
  if (listener.shown == 0 || paths::is_own_users(listener)) return true;
  return place.is_file && place.owner == 0 && paths::is_ambiguous(listener.shown);
}

// The listener's user. The kernel may show this process's user as root, and root as nobody
// (base/paths/users.h). REQUIRES: is_trusted(listener)
uid_t user_of(const paths::PeerProcess& listener) {
  if (paths::is_own_users(listener)) return paths::own_user();
  return paths::is_ambiguous(listener.shown) ? 0 : listener.shown;
}

// Connects and checks the listener. EPERM: it is not trusted.
Result<AgentConnection> connect_to(const AgentAddress& address, const Place& place) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail(errno);
  if (::connect(socket.get(), address.address(), address.length) != 0) return fail(errno);
  if (::fcntl(socket.get(), F_SETFL, O_RDWR) != 0) return fail(errno);
  const auto peer = peer_credentials(socket.get());
  if (!peer) return fail(peer.error().code);
  const paths::PeerProcess listener{.pid = peer->pid, .shown = peer->uid, .socket = socket.get()};
  if (!is_trusted(listener, place)) return fail(EPERM);
  return AgentConnection(std::move(socket), user_of(listener), peer->pid);
}

Result<AgentConnection> connect_by_file(uid_t owner) {
  const paths::PathText file = paths::agent_socket_path(owner);
  if (!file.valid() || !AgentAddress::fits(file.view())) return fail(ECONNREFUSED);
  return connect_to(AgentAddress(file.view()), {.owner = owner, .is_file = true});
}

}  // namespace

AgentConnection::AgentConnection(UniqueFd socket, uid_t agent_uid, pid_t agent_pid)
    : socket_(std::move(socket)), agent_uid_(agent_uid), agent_pid_(agent_pid) {
  const timeval timeout{kReceiveTimeout.count(), 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
}

void AgentConnection::abandon() {
  socket_.reset();
  lost_ = true;
}

AdminResult<Answer<protocol::HelloReply>> AgentConnection::say_hello(const OwnFd& takeover_state,
                                                                     TimePoint deadline) {
  protocol::HelloRequest hello{};
  store_text(hello.program, program_invocation_short_name);
  const int offered = takeover_state.is_ours() ? takeover_state.get() : -1;
  const auto say = [&] {
    return call<protocol::HelloReply>(protocol::MessageType::kHello, hello, 2, deadline,
                                      std::span<const int>(&offered, offered >= 0 ? 1 : 0));
  };
  auto answer = say();
  if (answer || (answer.error().code != EPROTONOSUPPORT && answer.error().code != EPERM)) return answer;
  // An agent that is too old for this version says which version it speaks.
  const bool older = answer.error().code == EPROTONOSUPPORT && agents_version_ < version_ &&
                     protocol::is_neighbour(agents_version_);
  if (older) {
    version_ = agents_version_;
    answer = say();
    if (answer) {
      if (version_ == 1) {
        answer->message.capabilities = protocol::kServesXrcDomains | protocol::kServesConnectionManagement;
      }
      return answer;
    }
  }
  static std::atomic<bool> said{false};  // once, not at each attempt to reach an agent
  if (!said.exchange(true)) log_error("no RDMA devices: {}", answer.error().text);
  return answer;
}

tl::unexpected<AdminError> AgentConnection::lose_to_stranger(uint16_t version) {
  lost_ = true;
  socket_.reset();
  return tl::unexpected(AdminError{
      EPROTONOSUPPORT,
      verbena::format("the agent speaks version {} of its protocol, this program (Verbena {}) version "
                      "{}: end the older of the two, and start it again",
                      version, VERBENA_VERSION, version_)});
}

tl::unexpected<AdminError> AgentConnection::lose(int code) {
  lost_ = true;
  socket_.reset();
  return tl::unexpected(AdminError{code, code == EMFILE ? "this process may open no more descriptors"
                                                        : "the connection to the agent is lost"});
}

// An agent of the previous version accepts this side's hello, and answers in its own version.
void AgentConnection::consider_version_of(const protocol::MessageHeader& answer) {
  const bool taken = answer.error != EPROTONOSUPPORT && protocol::is_neighbour(answer.version);
  if (taken && answer.version < version_) version_ = answer.version;
}

AdminResult<bool> AgentConnection::judge(ConstBytes message, const protocol::MessageHeader& request,
                                         const ReplyPlace& reply) {
  protocol::MessageHeader answer{};
  if (message.size() < sizeof answer) return lose(EPROTO);
  std::memcpy(&answer, message.data(), sizeof answer);
  if (answer.magic != protocol::kProtocolMagic) return lose(EPROTO);
  if (answer.sequence != request.sequence) return false;
  agents_version_ = answer.version;
  if (request.type == static_cast<uint16_t>(protocol::MessageType::kHello)) consider_version_of(answer);
  // An agent that refuses this version says so in its own.
  if (answer.version != version_ && answer.error != EPROTONOSUPPORT) return lose_to_stranger(answer.version);
  if (answer.error != 0) {
    protocol::ErrorReply error{};
    std::memcpy(&error, message.data(), std::min(message.size(), sizeof error));
    return tl::unexpected(AdminError{answer.error, load_text(error.text)});
  }
  const bool fits = message.size() == reply.length_in(version_);
  if (answer.type != (request.type | protocol::kReply) || !fits) return lose(EPROTO);
  return true;
}

AdminResult<std::vector<UniqueFd>> AgentConnection::exchange(const protocol::MessageHeader& header,
                                                             ConstBytes request, std::span<const int> fds,
                                                             const ReplyPlace& reply, TimePoint deadline) {
  if (lost_ || !socket_.is_ours()) return lose(ECONNRESET);
  const auto timed_out = [this] {
    return tl::unexpected(AdminError{ETIMEDOUT, describe_silence(agent_pid_)});
  };
  SilenceLog silence(agent_pid_);
  // Waits for the socket. False: the deadline has come.
  const auto wait = [&](short events) {
    const bool is_ready = wait_until_ready(socket_.get(), events, std::min(deadline, silence.due()));
    if (is_ready || MonotonicClock::now() >= deadline) return is_ready;
    silence.consider();
    return true;
  };
  for (;;) {
    const auto sent = send_message(socket_.get(), request, fds);
    if (sent) break;
    // An agent that needs no takeover state may refuse descriptors before it has heard a hello.
    if (sent.error().code == EPERM && header.type == static_cast<uint16_t>(protocol::MessageType::kHello) &&
        !fds.empty()) {
      fds = {};
      continue;
    }
    // A peer of any program of this user can cause this, by unread messages. The agent is still there.
    if (sent.error().code == ETOOMANYREFS) {
      return tl::unexpected(AdminError{ETOOMANYREFS, "too many unread descriptors of this user's programs"});
    }
    if (sent.error().code != EAGAIN) return lose(sent.error().code);
    if (!wait(POLLOUT)) return timed_out();
  }
  TimePoint descriptors_by = kNever;
  for (;;) {
    alignas(protocol::MessageHeader) std::byte buffer[protocol::kMaxAgentMessageBytes];
    const bool may_wait = MonotonicClock::now() + kReceiveTimeout < std::min(deadline, silence.due());
    auto received = may_wait ? wait_to_peek(socket_.get(), buffer) : peek_message(socket_.get(), buffer);
    if (!received) {
      if (received.error().code != EAGAIN) return lose(received.error().code);
      if (!may_wait && !wait(POLLIN)) return timed_out();
      continue;
    }
    if (received->bytes == 0) return lose(ECONNRESET);
    if (received->lost_fds) {
      const TimePoint now = MonotonicClock::now();
      descriptors_by = std::min(descriptors_by, now + kPatienceForDescriptors);
      if (now < descriptors_by) {
        std::this_thread::sleep_for(kDescriptorInterval);
        continue;
      }
    }
    // Removes the message. Its descriptors stay open, as `received` has copies.
    std::byte none[1];
    [[maybe_unused]] const auto removed = receive_message(socket_.get(), none, 0);
    if (received->truncated && !received->lost_fds) return lose(EPROTO);
    const auto answers = judge(ConstBytes(buffer, received->bytes), header, reply);
    if (!answers) return tl::unexpected(answers.error());
    if (!*answers) continue;
    if (received->lost_fds) return refuse_without_descriptors(header);
    std::memcpy(reply.bytes.data(), buffer, received->bytes);
    return std::move(received->fds);
  }
}

// Any user can use up the descriptors of a program that accepts connections. The agent is still there, but
// keeps what it has given: so a slot that this process does not know ends the connection.
tl::unexpected<AdminError> AgentConnection::refuse_without_descriptors(
    const protocol::MessageHeader& request) {
  const auto is = [&](protocol::MessageType type) { return request.type == static_cast<uint16_t>(type); };
  if (is(protocol::MessageType::kHello) || is(protocol::MessageType::kTakeSlot)) return lose(EMFILE);
  return tl::unexpected(AdminError{EMFILE, std::strerror(EMFILE)});
}

AdminError AgentDialer::error_of(int code) const {
  AdminError error{code, std::strerror(code)};
  if (code == ETIMEDOUT) error.text = "agent does not respond: its queue of new connections is full";
  if (code == ECONNREFUSED) {
    error.text = verbena::format("no agent runs, and {}",
                                 cannot_start_.empty() ? "none could be started" : cannot_start_);
  }
  because(code, "{}", error.text);
  return error;
}

Result<AgentConnection> AgentDialer::open_or_start(TimePoint& give_up, const Patience& patience,
                                                   TimePoint start_after, Duration& for_starts) {
  TimePoint next_start = start_after;
  TimePoint busy_since{};
  for (;;) {
    auto connection = open();
    if (connection) return connection;
    const int error = connection.error().code;
    const bool may_come = error == ECONNREFUSED || error == EAGAIN;
    if (!may_come || (error == ECONNREFUSED && !may_start())) return connection;

    const TimePoint now = MonotonicClock::now();
    if (error == EAGAIN) {  // a full queue shows that an agent lives
      if (busy_since == TimePoint{}) busy_since = now;
      const Duration busy = now - busy_since;
      if (busy >= patience.to_answer) return fail(ETIMEDOUT);
      const Duration pause = std::clamp(busy / 8, kRetryInterval, kLookInterval);
      std::this_thread::sleep_for(pause);
      give_up += MonotonicClock::now() - now;
      continue;
    }
    busy_since = {};
    if (now >= give_up) return fail(ECONNREFUSED);
    if (now >= next_start) {
      next_start = now + kStartInterval;  // the started agent may have met one that was about to end
      const auto ready = start();
      if (!ready) return fail(ECONNREFUSED);
      connection = open_started(ready->get(), std::max(give_up, now + for_starts));
      const Duration took = std::min(MonotonicClock::now() - now, for_starts);
      for_starts -= took;
      if (!connection && connection.error().code == ECONNREFUSED) continue;
      give_up += took;
      if (connection) return connection;
    } else {
      std::this_thread::sleep_for(kRetryInterval);
    }
  }
}

// Watches for other agents, too. A process that inherited the write end of `ready` by a fork may keep it
// open, and the agent may have found another one that listened before it.
Result<AgentConnection> AgentDialer::open_started(int ready, TimePoint give_up) {
  for (;;) {
    const TimePoint now = MonotonicClock::now();
    const bool is_ready = wait_until_ready(ready, POLLIN, std::min(give_up, now + kLookInterval));
    auto connection = open();
    if (connection || is_ready || MonotonicClock::now() >= give_up) return connection;
  }
}

// Tries root's agent first, and files before names: a stranger at root's abstract name can make each
// connect(2) there take long (epoll(7)). A socket file shows that its listener is an agent: if that is busy,
// no other is tried.
Result<AgentConnection> NamespaceDialer::open() {
  const std::array owners{uid_t{0}, paths::own_user()};
  const auto users = std::span(owners).first(owners[1] == 0 ? 1 : 2);
  for (const bool is_file : {true, false}) {
    for (const uid_t owner : users) {
      auto connection = is_file ? connect_by_file(owner) : open_by_name(owner);
      if (connection || !is_absence(connection.error().code)) return connection;
    }
  }
  return fail(ECONNREFUSED);
}

// Anybody can take an abstract name, answer nobody, and have no room for a connection. So a listener that
// does not prove to be an agent is ignored: at once if untrusted, after a while if busy.
Result<AgentConnection> NamespaceDialer::open_by_name(uid_t owner) {
  const size_t name = owner == 0 ? 0 : 1;
  if (stranger_until_[name] != TimePoint{} && MonotonicClock::now() < stranger_until_[name])
    return fail(EPERM);
  auto connection = connect_to(AgentAddress(owner), {.owner = owner, .is_file = false});
  const int error = connection ? 0 : connection.error().code;
  if (error == EPERM && !std::exchange(told_of_stranger_, true)) {
    log_warning("the abstract name of the agent of user {} is taken by another user: not trusted", owner);
  }
  if (error == EPERM) stranger_until_[name] = MonotonicClock::now() + kStrangerPause;
  TimePoint& since = busy_since_[name];
  if (error != EAGAIN) {
    since = {};
    return connection;
  }
  const TimePoint now = MonotonicClock::now();
  if (since == TimePoint{}) since = now;
  if (now - since >= kBusyPatience) return fail(ECONNREFUSED);
  return connection;
}

Result<UniqueFd> NamespaceDialer::start() {
  if (has_rights_of_another()) {
    cannot_start_ =
        "a program with more rights than its user (set-user-ID, set-group-ID, file capabilities) starts "
        "none: start "
        "verbena-agent beforehand";
    if (!std::exchange(told_of_user_, true)) log_error("no agent runs, and {}", cannot_start_);
    return fail(ECONNREFUSED);
  }
  const std::string program = find_agent_program(options_.agent_program);
  if (program.empty()) {
    cannot_start_ = "the program verbena-agent was not found: set VERBENA_AGENT to it";
    if (!std::exchange(missed_program_, true)) log_error("no agent runs, and {}", cannot_start_);
    return fail(ECONNREFUSED);
  }
  auto started = start_agent(program);
  // The reason to report if the agent does not come.
  cannot_start_ =
      started ? verbena::format(
                    "{} was started and has ended without serving anybody: 'verbena agent' "
                    "shows why",
                    program)
              : verbena::format("{} cannot be started: {}", program, why_not_started(started.error().code));
  return started;
}

}  // namespace verbena::control

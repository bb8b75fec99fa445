// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "base/mutex_at_fork.h"
#include "base/only_one.h"
#include "base/plain_calls.h"
#include "control/client/agent_session.h"
#include "control/model/message_socket.h"
#include "libraries/libibumad/umad.h"
#include "management/mad/mad.h"

namespace verbena::umad {
namespace {

// Limits the awaited responses of a program that never reads them.
constexpr size_t kMaxAwaited = 4096;

constinit OnlyOne<OpenPorts> current_ports;

bool is_response(ConstBytes mad) {
  const auto method = static_cast<uint8_t>(mad[mad::kMethodAt]);
  return (method & mad::kMethodResponse) != 0 || method == mad::kMethodTrapRepress;
}

// The lock is held during fork(), so that no other thread is changing the table that the child inherits.
[[maybe_unused]] const int ports_watched =
    lock_at_fork<[]() -> std::mutex& { return OpenPorts::current().mutex(); }>();

OpenedPort::AnswerKey key_of(const protocol::UserMad& header, ConstBytes mad) {
  const auto transaction = load_be<uint64_t>(&mad[mad::kTransactionAt]);
  return {header.agent, static_cast<uint8_t>(mad[mad::kClassAt]), static_cast<uint32_t>(transaction)};
}

}  // namespace

OpenPorts& OpenPorts::current() {
  return current_ports.get();
}

// Calls action(port) under the lock, if the port is open.
template <class Action>
void OpenPorts::with(int socket, Action action) {
  const std::lock_guard lock(mutex_);
  if (const auto found = ports_.find(socket); found != ports_.end()) action(found->second);
}

void OpenPorts::renumber(int socket, uint64_t number) {
  with(socket, [&](OpenedPort& port) {
    port.number = number;
    port.awaited.clear();
  });
}

void OpenPorts::set_lost(int socket, bool is_lost) {
  with(socket, [&](OpenedPort& port) { port.is_lost = is_lost; });
}

std::optional<OpenedPort> OpenPorts::find(int socket) {
  std::optional<OpenedPort> found;
  with(socket, [&](OpenedPort& port) { found = port; });
  return found;
}

bool OpenPorts::takes_long(int socket) {
  bool takes_long = false;
  with(socket, [&](OpenedPort& port) { takes_long = port.takes_long; });
  return takes_long;
}

bool OpenPorts::cuts_for(int socket, uint32_t agent) {
  bool cuts = false;
  with(socket, [&](OpenedPort& port) {
    const auto found = port.agents.find(agent);
    cuts = found != port.agents.end() && found->second.rmpp_version != 0 &&
           (found->second.flags & protocol::kMadUserRmpp) == 0;
  });
  return cuts;
}

void OpenPorts::add_agent(int socket, uint32_t agent, const protocol::MadRegisterRequest& request) {
  with(socket, [&](OpenedPort& port) { port.agents[agent] = request; });
}

void OpenPorts::remove_agent(int socket, uint32_t agent) {
  with(socket, [&](OpenedPort& port) {
    port.agents.erase(agent);
    std::erase_if(port.awaited, [&](const auto& entry) { return std::get<0>(entry.first) == agent; });
  });
}

void OpenPorts::sent(int socket, const protocol::UserMad& header, ConstBytes mad) {
  if (header.timeout_ms == 0 || is_response(mad)) return;
  AwaitedAnswer awaited{header, {}};
  std::copy_n(mad.begin(), std::min(mad.size(), awaited.mad.size()), awaited.mad.begin());
  with(socket, [&](OpenedPort& port) {
    if (port.awaited.size() < kMaxAwaited) port.awaited[key_of(header, mad)] = awaited;
  });
}

void OpenPorts::not_sent(int socket, const protocol::UserMad& header, ConstBytes mad) {
  with(socket, [&](OpenedPort& port) { port.awaited.erase(key_of(header, mad)); });
}

void OpenPorts::received(int socket, const protocol::UserMad& header, ConstBytes mad) {
  if (mad.size() < mad::kMadHeaderBytes || (header.status != ETIMEDOUT && !is_response(mad))) return;
  not_sent(socket, header, mad);
}

namespace {

using control::AgentSession;
using control::Link;
using protocol::MessageType;
using Turn = AgentSession::Turn;

constinit OnlyOne<AgentSession> current_session;

AgentSession& session() {
  return current_session.get(
      [] { return new AgentSession(std::make_unique<control::NamespaceDialer>(), {}); });
}

// Returns the agent's number for a port: the inode of its socket, which is the same in every process.
Result<uint64_t> number_of(int socket) {
  struct stat status {};
  if (::fstat(socket, &status) != 0) return fail(errno);
  return S_ISSOCK(status.st_mode) ? Result<uint64_t>(status.st_ino) : fail(ENOTTY);
}

// How long a call waits for the next agent, if none can be started.
constexpr Duration kPatience = std::chrono::seconds(2);
constexpr int kPauseMs = 20;

bool is_at_end(int socket) {
  pollfd entry{socket, 0, 0};
  return plain_poll(&entry, 1, 0) == 1 && (entry.revents & POLLHUP) != 0;
}

void give_back(int socket, const AwaitedAnswer& awaited) {
  std::array<std::byte, sizeof awaited.header + sizeof awaited.mad> message;
  protocol::UserMad header = awaited.header;
  header.status = ETIMEDOUT;
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, awaited.mad.data(), awaited.mad.size());
  [[maybe_unused]] const auto sent = control::send_message(socket, message);
}

namespace fs = std::filesystem;

// Parses a line of a set's fdinfo; nothing if the line is not about the descriptor `wanted`.
std::optional<epoll_event> read_watch(const std::string& line, int wanted) {
  int descriptor = -1;
  uint32_t events = 0;  // a separate variable: epoll_event is packed, so no pointer may point into it
  uint64_t data = 0;
  const int found =
      std::sscanf(line.c_str(), "tfd: %d events: %" SCNx32 " data: %" SCNx64, &descriptor, &events, &data);
  if (found != 3 || descriptor != wanted) return std::nullopt;
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return event;
}

std::vector<int> all_sets() {
  std::vector<int> sets;
  std::error_code failed;
  for (fs::directory_iterator entry("/proc/self/fd", failed), end; !failed && entry != end;
       entry.increment(failed)) {
    std::error_code gone;
    if (fs::read_symlink(entry->path(), gone) != "anon_inode:[eventpoll]") continue;
    sets.push_back(std::atoi(entry->path().filename().c_str()));
  }
  return sets;
}

// Keeps a descriptor in this process's epoll sets while another file replaces the file behind the descriptor.
// An epoll set watches files and not numbers, so the set would lose the descriptor. The constructor finds the
// watches in /proc/self/fdinfo; if that folder is not readable, the sets lose the descriptor.
class EpollSets {
 public:
  // Removes the descriptor, a socket, from all sets.
  explicit EpollSets(int socket) : socket_(socket) {
    for (const int set : all_sets()) {
      std::ifstream lines("/proc/self/fdinfo/" + std::to_string(set));
      for (std::string line; std::getline(lines, line);) {
        const auto event = read_watch(line, socket);
        // If the removal fails, the watch is of another file that had this number before.
        if (event && ::epoll_ctl(set, EPOLL_CTL_DEL, socket, nullptr) == 0) watches_.push_back({set, *event});
      }
    }
  }
  // Adds the descriptor again to the same sets, with the file that is behind the descriptor now.
  ~EpollSets() {
    for (Watch& watch : watches_) ::epoll_ctl(watch.set, EPOLL_CTL_ADD, socket_, &watch.event);
  }
  EpollSets(const EpollSets&) = delete;
  EpollSets& operator=(const EpollSets&) = delete;

 private:
  struct Watch {
    int set;
    epoll_event event;
  };
  const int socket_;
  std::vector<Watch> watches_;
};

// Takes no lock and frees nothing: other threads of the parent may have been in any code at the fork.
void abandon_session_in_child() {
  AgentSession* inherited = current_session.forget();
  if (inherited != nullptr) inherited->abandon();
}

[[maybe_unused]] const int session_watched = ::pthread_atfork(nullptr, nullptr, abandon_session_in_child);

template <class Reply = protocol::PlainReply, class Request>
Result<control::Answer<Reply>> call_in(Turn& turn, MessageType type, const Request& request,
                                       size_t min_fds = 0) {
  auto answer = turn.call<Reply>(type, request, min_fds);
  if (!answer) return fail(answer.error().code);
  return std::move(*answer);
}

template <class Reply = protocol::PlainReply, class Request>
Result<control::Answer<Reply>> call(MessageType type, const Request& request) {
  Turn turn(session());
  return call_in<Reply>(turn, type, request);
}

Result<std::vector<Link>> links_in(Turn& turn) {
  auto answer = call_in(turn, MessageType::kGetLinks, protocol::GetLinksRequest{}, 1);
  if (!answer) return fail(answer.error().code);
  auto snapshot = control::read_link_file(answer->fds[0].get());
  if (!snapshot) return fail(snapshot.error().code);
  return std::move(snapshot->links);
}

struct Opened {
  UniqueFd socket;
  uint64_t number;
  bool takes_long;
};

Result<Opened> open_in(Turn& turn, uint32_t device_index) {
  if (const auto reached = turn.connect(); !reached) return fail(reached.error().code);
  const bool takes_long = (turn.capabilities() & protocol::kServesLongMads) != 0;
  protocol::DeviceRequest request{};
  request.device_index = device_index;
  request.flags = takes_long ? protocol::kMadLongMessages : 0;
  auto answer = call_in(turn, MessageType::kMadOpenPort, request, 1);
  if (!answer) return fail(answer.error().code);
  const auto number = number_of(answer->fds[0].get());
  if (!number) return fail(number.error().code);
  return Opened{std::move(answer->fds[0]), *number, takes_long};
}

Result<void> register_in(Turn& turn, uint64_t number, const OpenedPort& port) {
  for (const auto& [agent, registered] : port.agents) {
    protocol::MadRegisterRequest request = registered;
    request.port = number;
    request.agent = agent;
    request.flags |= protocol::kMadKeepsNumber;
    const auto added = call_in<protocol::MadRegisterReply>(turn, MessageType::kMadRegister, request);
    if (!added) return fail(added.error().code);
  }
  return {};
}

// Replaces the file behind the program's descriptor, and keeps the flags that the program has set. Threads
// that wait on the old file have seen its end.
Result<void> revive_once(int socket) {
  Turn turn(session());
  const auto port = OpenPorts::current().find(socket);
  const auto number = number_of(socket);
  if (!port || !number || *number != port->number) return fail(EIO);
  if (!is_at_end(socket)) return {};  // another thread was here before us
  const auto links = links_in(turn);
  if (!links) return fail(links.error().code);
  const auto link = std::ranges::find(*links, port->device, &Link::name);
  if (link == links->end()) return fail(EIO);
  auto opened = open_in(turn, link->device_index);
  if (!opened || !opened->takes_long) return fail(EIO);
  if (!register_in(turn, opened->number, *port)) return fail(EIO);
  for (const auto& [key, awaited] : port->awaited) give_back(opened->socket.get(), awaited);
  const int descriptor_flags = ::fcntl(socket, F_GETFD), file_flags = ::fcntl(socket, F_GETFL);
  const bool is_same = number_of(socket) == number;
  if (!is_same || descriptor_flags < 0 || file_flags < 0) return fail(EIO);
  ::fcntl(opened->socket.get(), F_SETFL, file_flags);
  const int closes = (descriptor_flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0;
  const EpollSets sets(socket);
  if (::dup3(opened->socket.get(), socket, closes) < 0) return fail(EIO);
  OpenPorts::current().renumber(socket, opened->number);
  return {};
}

}  // namespace

Result<std::vector<Link>> links() {
  Turn turn(session());
  return links_in(turn);
}

Result<protocol::MadPortReply> query_port(uint32_t device_index) {
  protocol::DeviceRequest request{};
  request.device_index = device_index;
  const auto answer = call<protocol::MadPortReply>(MessageType::kMadGetPort, request);
  return answer.map([](const auto& got) { return got.message; });
}

Result<UniqueFd> open_port(const Link& link) {
  Turn turn(session());
  auto opened = open_in(turn, link.device_index);
  if (!opened) return fail(opened.error().code);
  OpenedPort port;
  port.number = opened->number;
  port.device = link.name;
  port.takes_long = opened->takes_long;
  OpenPorts::current().add(opened->socket.get(), std::move(port));
  return std::move(opened->socket);
}

Result<void> revive_port(int socket) {
  OpenPorts& ports = OpenPorts::current();
  const auto port = ports.find(socket);
  const TimePoint end = MonotonicClock::now() + (port && !port->is_lost ? kPatience : Duration::zero());
  for (;;) {
    auto revived = revive_once(socket);
    const bool is_over = !revived && (revived.error().code != ECONNREFUSED || MonotonicClock::now() >= end);
    if (revived || is_over) {
      ports.set_lost(socket, is_over);
      return revived ? revived : fail(EIO);
    }
    plain_poll(nullptr, 0, kPauseMs);
  }
}

Result<uint32_t> add_mad_agent(int socket, protocol::MadRegisterRequest request) {
  for (bool is_revived = false;; is_revived = true) {
    const auto number = number_of(socket);
    if (!number) return fail(number.error().code);
    request.port = *number;
    const auto answer = call<protocol::MadRegisterReply>(MessageType::kMadRegister, request);
    if (answer) {
      OpenPorts::current().add_agent(socket, answer->message.agent, request);
      return answer->message.agent;
    }
    // EBADF: the agent does not know the port, because it is the successor of the agent that did.
    const bool is_unknown = answer.error().code == EBADF && is_at_end(socket);
    if (!is_unknown || is_revived || !revive_port(socket)) return fail(answer.error().code);
  }
}

Result<void> remove_mad_agent(int socket, uint32_t agent) {
  const auto number = number_of(socket);
  if (!number) return fail(number.error().code);
  protocol::MadRegisterRequest request{};
  request.port = *number;
  request.agent = agent;
  const auto port = OpenPorts::current().find(socket);
  const bool is_known = port && port->agents.contains(agent);
  OpenPorts::current().remove_agent(socket, agent);
  auto answer = call(MessageType::kMadUnregister, request);
  if (!answer && !(is_known && is_at_end(socket))) return fail(answer.error().code);
  return {};
}

}  // namespace verbena::umad

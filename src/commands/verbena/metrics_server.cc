// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>
#include <vector>

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/sessions/session_reply.h"
#include "base/format.h"
#include "base/paths/users.h"
#include "commands/verbena/metrics.h"

namespace verbena::commands {
namespace {

struct Status {
  int number;
  std::string_view reason;
};
constexpr std::array kStatuses = std::to_array<Status>({
    {200, "OK"},
    {400, "Bad Request"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {431, "Request Header Fields Too Large"},
    {505, "HTTP Version Not Supported"},
});

std::string_view reason_of(int status) {
  const auto* found = std::ranges::find(kStatuses, status, &Status::number);
  return found != kStatuses.end() ? found->reason : "";
}

// Removes the first word from the line and returns it.
std::string_view take_word(std::string_view& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

HttpVerdict judge_line(std::string_view line) {
  const std::string_view method = take_word(line);
  std::string_view target = take_word(line);
  if (method.empty() || !target.starts_with('/')) return {.status = 400};
  if (!line.starts_with("HTTP/")) return {.status = 400};
  if (!line.starts_with("HTTP/1.")) return {.status = 505};
  if (method != "GET" && method != "HEAD") return {.status = 405};
  target = target.substr(0, target.find('?'));
  return {.status = target == "/metrics" || target == "/" ? 200 : 404, .wants_body = method == "GET"};
}

constexpr size_t kNetworkBytes = 8;  // of an IPv6 address: the part that one host may own
constexpr unsigned kLoopback = 127;

std::string source_of_ipv4(uint32_t address) {
  return address >> 24 == kLoopback ? "loopback" : verbena::format("{:08x}", address);
}

constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
constexpr int kBacklog = 128;
constexpr int kMaxAtOnce = 64;  // connections accepted before others are served

struct Advice {
  int error;
  std::string_view words;
};
constexpr Advice kAdvice[] = {
    {EADDRNOTAVAIL, "; no network device has this address, 'ip address' lists those there are"},
    {EADDRINUSE, "; another program listens there ('ss -ltnp'), so take another port"},
    {EACCES, "; take another place, or run it as root"},
    {ENOENT, "; make the directory first"},
    {ENAMETOOLONG, "; a socket's path has 1 to 107 characters"},
};

tl::unexpected<std::string> cannot(const std::string& where, int error) {
  const auto advice = std::ranges::find(kAdvice, error, &Advice::error);
  return tl::unexpected(verbena::format("cannot listen at '{}': {}{}", where, std::strerror(error),
                                        advice != std::end(kAdvice) ? advice->words : ""));
}

// Removes a socket that an ended server of this user has left. Returns nullptr if the path is free, else the
// reason why the file there stays.
const char* clear_place(const sockaddr_un& address) {
  struct stat status {};
  if (::lstat(address.sun_path, &status) != 0) return nullptr;  // bind() reports other errors
  if (!S_ISSOCK(status.st_mode)) return "a file that is no socket is there";
  if (status.st_uid != ::geteuid()) return "another user's socket is there";
  const UniqueFd probe(::socket(AF_UNIX, kType, 0));
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  if (!probe || ::connect(probe.get(), at, sizeof address) == 0 || errno != ECONNREFUSED) {
    return "another program's socket is there ('ss -xlp')";
  }
  ::unlink(address.sun_path);
  return nullptr;
}

tl::expected<UniqueFd, std::string> listen_at_path(const std::string& where, std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) return cannot(where, ENAMETOOLONG);
  path.copy(address.sun_path, path.size());
  if (const char* taken = clear_place(address)) {
    return tl::unexpected(
        verbena::format("cannot listen at '{}': {}; take another path, or remove that one", where, taken));
  }
  UniqueFd socket(::socket(AF_UNIX, kType, 0));
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return cannot(where, errno);
  }
  return socket;
}

tl::expected<UniqueFd, std::string> listen_at_address(const std::string& where) {
  const size_t colon = where.rfind(':');
  std::string host = colon != std::string::npos ? where.substr(0, colon) : "";
  const std::string port = colon != std::string::npos ? where.substr(colon + 1) : "";
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (host.empty() || error != std::errc() || end != port.data() + port.size() || number > UINT16_MAX) {
    return tl::unexpected(verbena::format(
        "'{}' is no place to listen at: ADDRESS:PORT, such as 127.0.0.1:9792, or unix:PATH", where));
  }
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int wrong = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); wrong != 0) {
    return tl::unexpected(verbena::format("'{}' is no address: {}", host, ::gai_strerror(wrong)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  UniqueFd socket(::socket(found->ai_family, kType, 0));
  const int one = 1;
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
      ::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    return cannot(where, errno);
  }
  return socket;
}

int milliseconds(Duration time) {
  const auto whole = std::chrono::ceil<std::chrono::milliseconds>(time).count();
  return static_cast<int>(std::clamp<int64_t>(whole, 0, 1'000'000));
}

}  // namespace

std::optional<HttpVerdict> judge_request(std::string_view received) {
  const size_t end = std::min(received.find("\r\n\r\n"), received.find("\n\n"));
  if (end == std::string_view::npos) {
    if (received.size() < kMaxRequestBytes) return std::nullopt;
    return HttpVerdict{.status = 431};
  }
  return judge_line(received.substr(0, received.find_first_of("\r\n")));
}

std::string http_answer(const HttpVerdict& verdict, std::string_view metrics) {
  const std::string body =
      verdict.status == 200 ? std::string(metrics) : verbena::format("{}\n", reason_of(verdict.status));
  const std::string head = verbena::format(
      "HTTP/1.1 {} {}\r\n"
      "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
      "Content-Length: {}\r\n"
      "{}Connection: close\r\n\r\n",
      verdict.status, reason_of(verdict.status), body.size(),
      verdict.status == 405 ? "Allow: GET, HEAD\r\n" : "");
  return verdict.wants_body ? head + body : head;
}

std::string source_of(const ucred& peer) {
  return verbena::format("user {}", peer.uid);
}

std::string source_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return source_of_ipv4(ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr));
  }
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) {
    uint32_t ipv4;
    std::memcpy(&ipv4, &ipv6.s6_addr[12], sizeof ipv4);
    return source_of_ipv4(ntohl(ipv4));
  }
  if (IN6_IS_ADDR_LOOPBACK(&ipv6)) return "loopback";
  std::string network = "network ";
  return network.append(reinterpret_cast<const char*>(ipv6.s6_addr), kNetworkBytes);
}

std::optional<MetricsReader> reader_at(int connected_socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(connected_socket, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return std::nullopt;
  if (address.ss_family != AF_UNIX) return MetricsReader{source_of(address), false};
  ucred peer{};
  length = sizeof peer;
  if (::getsockopt(connected_socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  const paths::PeerProcess reader{.pid = peer.pid, .shown = peer.uid, .socket = connected_socket};
  return MetricsReader{source_of(peer), agent::sees_all(peer.uid) && paths::has_number(reader)};
}

tl::expected<UniqueFd, std::string> listen_at(const std::string& where) {
  constexpr std::string_view kUnix = "unix:";
  if (where.starts_with(kUnix)) return listen_at_path(where, std::string_view(where).substr(kUnix.size()));
  return listen_at_address(where);
}

void MetricsServer::step(Duration at_most) {
  TimePoint now = MonotonicClock::now();
  std::vector<pollfd> waits = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
  for (const Connection& one : connections_) {
    const short events = one.answer.empty() ? POLLIN : POLLOUT;
    waits.push_back({.fd = one.socket.get(), .events = events, .revents = 0});
    at_most = std::min(at_most, one.deadline - now);
  }
  if (::poll(waits.data(), waits.size(), milliseconds(at_most)) < 0) return;
  now = MonotonicClock::now();
  auto wait = waits.begin() + 1;
  for (auto one = connections_.begin(); one != connections_.end(); ++wait) {
    const bool stays = wait->revents == 0 ? now < one->deadline : serve(*one, now);
    one = stays ? std::next(one) : connections_.erase(one);
  }
  if ((waits.front().revents & POLLIN) != 0) accept_some(now);
}

// Reads each new connection at once. A client whose request is already there is answered before the limits
// are checked, so the next connection cannot displace it.
void MetricsServer::accept_some(TimePoint now) {
  for (int i = 0; i < kMaxAtOnce; ++i) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno != EMFILE || connections_.empty()) return;
      end_one(nullptr);
      continue;
    }
    auto reader = reader_at(socket.get());
    if (!reader) continue;
    Connection added{.socket = std::move(socket), .reader = std::move(*reader), .deadline = now + kPatience};
    if (!serve(added, now)) continue;
    if (count_of(added.reader.source) >= kMaxOfSource) {
      end_one(&added.reader.source);
    } else if (connections_.size() >= kMaxConnections) {
      end_one(nullptr);
    }
    connections_.push_back(std::move(added));
  }
}

size_t MetricsServer::count_of(const std::string& source) const {
  return static_cast<size_t>(std::ranges::count_if(
      connections_, [&](const Connection& one) { return one.reader.source == source; }));
}

void MetricsServer::end_one(const std::string* source) {
  const auto rank = [this](const Connection& one) {
    return std::pair(one.answer.empty(), count_of(one.reader.source));
  };
  auto found = connections_.end();
  for (auto one = connections_.begin(); one != connections_.end(); ++one) {
    if (source != nullptr && one->reader.source != *source) continue;
    if (found == connections_.end() || rank(*one) > rank(*found)) found = one;
  }
  connections_.erase(found);
}

bool MetricsServer::serve(Connection& connection, TimePoint now) {
  if (connection.answer.empty() && !receive(connection, now)) return false;
  if (connection.answer.empty()) return true;
  const std::string_view rest = std::string_view(connection.answer).substr(connection.sent);
  const ssize_t sent = ::send(connection.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  connection.sent += static_cast<size_t>(sent);
  if (connection.sent < connection.answer.size()) return true;
  ::shutdown(connection.socket.get(), SHUT_WR);
  return false;
}

bool MetricsServer::receive(Connection& connection, TimePoint now) {
  std::array<char, kMaxRequestBytes> buffer;
  const size_t room = kMaxRequestBytes - std::min(connection.received.size(), kMaxRequestBytes - 1);
  const ssize_t bytes = ::recv(connection.socket.get(), buffer.data(), room, 0);
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  if (bytes == 0) return false;
  connection.received.append(buffer.data(), static_cast<size_t>(bytes));
  const auto verdict = judge_request(connection.received);
  if (!verdict) return true;
  const MetricsTexts& texts = verdict->status == 200 ? metrics(now) : last_;
  connection.answer = http_answer(*verdict, connection.reader.sees_processes ? texts.all : texts.sums);
  return true;
}

const MetricsTexts& MetricsServer::metrics(TimePoint now) {
  if (!last_asked_ || now - *last_asked_ >= kFreshness) {
    last_ = metrics_();
    last_asked_ = MonotonicClock::now();
  }
  return last_;
}

}  // namespace verbena::commands

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include <sys/socket.h>
#include <tl/expected.hpp>

#include "base/time.h"
#include "base/unique_fd.h"
#include "control/model/agent_status.h"

namespace verbena::commands {

// Resource use of the agent's process.
struct AgentHealth {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0;
};
// Reads the resource use from the agent's /proc/PID/stat. Returns nullopt if that file is not readable here.
std::optional<AgentHealth> health_of(pid_t agent);

// The detail of metrics: for each process, or only totals over all processes, without names and PIDs.
// Unprivileged readers get kSums.
enum class MetricsDetail { kProcesses, kSums };

// Formats an agent's numbers as Prometheus text. Without a `status`, the text has only the metric
// verbena_agent_up, as 0. Without a `health`, the agent's CPU time and memory are left out.
std::string metrics_as_text(const std::optional<control::AgentStatus>& status,
                            const std::optional<AgentHealth>& health,
                            MetricsDetail detail = MetricsDetail::kProcesses);

// The same metrics in both details: `all` is kProcesses, `sums` is kSums.
struct MetricsTexts {
  std::string all, sums;
};

// Serves the agent's metrics over HTTP at this listening socket, until the process ends. Never starts an
// agent; without one, the metric verbena_agent_up is 0.
[[noreturn]] void serve_metrics(UniqueFd listener);

// The part of HTTP/1.1 that a scraper of metrics needs. Pure. Clients are untrusted and may send any bytes.

// Longest request in bytes. A client that has sent this much without completing a request gets status 431.
inline constexpr size_t kMaxRequestBytes = 4096;

struct HttpVerdict {
  int status = 200;
  bool wants_body = true;  // false for HEAD
};
// Returns the status for the bytes that a client has sent so far, or nullopt if the request is incomplete.
std::optional<HttpVerdict> judge_request(std::string_view received);

// Returns head and body of the answer. The body is `metrics` if the status is 200, else the name of the
// status. There is no body for HEAD. The server closes the connection afterwards.
std::string http_answer(const HttpVerdict& verdict, std::string_view metrics);

// A client of the metrics server, identified by the kernel's data on its socket. There are no passwords.
struct MetricsReader {
  // The source of the client's connection. One source may have only a few connections at once
  // (MetricsServer::kMaxOfSource). At a Unix socket, a source is a user. At TCP, a source is an IP address.
  // All loopback addresses count as one address. So do the addresses of an IPv6 /64, since one host may own
  // them all.
  std::string source;
  // Whether the client sees metrics of single processes, as in `verbena status`. Only root and the agent's
  // own user do, and only at a Unix socket.
  bool sees_processes = false;
};

// Identifies the client at a connected socket. Returns nullopt if the client has disconnected.
std::optional<MetricsReader> reader_at(int connected_socket);

std::string source_of(const ucred& peer);
std::string source_of(const sockaddr_storage& address);

// Opens a socket that listens at `where`: "ADDRESS:PORT" (IPv6 addresses in brackets) or "unix:PATH".
// Replaces only a Unix socket that an ended server of this user has left. On failure returns a message.
tl::expected<UniqueFd, std::string> listen_at(const std::string& where);

// An HTTP server for the agent's metrics. Runs in a process of its own, so that bytes from untrusted clients
// never reach the agent. Single-threaded.
//
// Clients are untrusted. Limits apply to connections (in total and per source), to the bytes of a request,
// and to the time of a connection. At a limit on connections, a new connection replaces an old one,
// preferably one without a complete request. So clients that only wait cannot keep others out.
class MetricsServer {
 public:
  static constexpr size_t kMaxConnections = 32;
  // Maximum number of connections per MetricsReader::source.
  static constexpr size_t kMaxOfSource = 8;
  // A connection that is idle when this time has passed since accept() is closed.
  static constexpr Duration kPatience = std::chrono::seconds(5);
  // Metrics younger than this are served again, without asking the agent.
  static constexpr Duration kFreshness = std::chrono::seconds(1);

  MetricsServer(UniqueFd listener, std::function<MetricsTexts()> metrics)
      : listener_(std::move(listener)), metrics_(std::move(metrics)) {}

  // Waits at most `at_most` for events and handles them. Call it in a loop.
  void step(Duration at_most);

 private:
  struct Connection {
    UniqueFd socket;
    MetricsReader reader;
    TimePoint deadline;
    std::string received{};
    std::string answer{};  // empty while the request is incomplete
    size_t sent = 0;
  };

  void accept_some(TimePoint now);
  // Closes a connection of `source`, or of any source if null. Prefers connections without a complete
  // request, then those of the source with the most connections, then the oldest. REQUIRES: `source` has a
  // connection
  void end_one(const std::string* source);
  size_t count_of(const std::string& source) const;
  // Receives the request or sends the answer, as far as possible. Returns false to close the connection.
  bool serve(Connection& connection, TimePoint now);
  bool receive(Connection& connection, TimePoint now);
  const MetricsTexts& metrics(TimePoint now);

  const UniqueFd listener_;
  const std::function<MetricsTexts()> metrics_;
  std::list<Connection> connections_;  // oldest first
  MetricsTexts last_;
  std::optional<TimePoint> last_asked_;
};

}  // namespace verbena::commands

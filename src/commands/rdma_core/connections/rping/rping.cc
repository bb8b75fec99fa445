// SPDX-License-Identifier: Apache-2.0
// rping: pings by RDMA READ and WRITE between a client and a server.
#include <cerrno>
#include <cstdio>
#include <thread>

#include <netdb.h>
#include <netinet/in.h>

#include "base/format.h"
#include "commands/rdma_core/connections/command_line.h"
#include "commands/rdma_core/connections/rping/session.h"

namespace verbena::rdma_core {
namespace {

constexpr int kLeastPingBytes = 23;  // for a ping's name, its longest number and a zero byte
constexpr int kMaxPingBytes = 64 * 1024;
constexpr int kBacklog = 3;

struct PingLine {
  PingPlan plan;
  bool has_role = false;
  sockaddr_storage address = {};
  sockaddr_storage source = {};
  uint16_t port = 7174;
  int status = 0;  // error in an option's value
};

void take_address(const char* word, sockaddr_storage& address, int& status) {
  const int error = find_host(word, address);
  if (error == 0) return;
  std::printf("getaddrinfo failed (%s) - invalid hostname or IP address\n", gai_strerror(error));
  status = error;
}

void take_bytes(const char* word, PingLine& line) {
  const auto bytes = read_number(word, INT64_MIN, INT64_MAX);
  if (bytes && *bytes >= kLeastPingBytes && *bytes < kMaxPingBytes) {
    line.plan.bytes = static_cast<int>(*bytes);
    return;
  }
  complain(verbena::format("Invalid size {} (valid range is {} to {})", bytes ? std::to_string(*bytes) : word,
                           kLeastPingBytes, kMaxPingBytes));
  line.status = EINVAL;
}

void take_count(const char* word, PingLine& line) {
  const auto count = read_number(word, INT64_MIN, INT64_MAX);
  if (count && *count >= 0 && *count <= INT32_MAX) {
    line.plan.count = static_cast<int>(*count);
    return;
  }
  complain(verbena::format("Invalid count {}", count ? std::to_string(*count) : word));
  line.status = EINVAL;
}

Option role(char letter, bool server, PingLine& line) {
  return {letter, nullptr, false, [server, &line](const char*) {
            line.plan.server = server;
            line.has_role = true;
            return Next::kGoOn;
          }};
}

std::vector<Option> options_of(PingLine& line) {
  PingPlan& plan = line.plan;
  return {taken('a', nullptr, [&](const char* word) { take_address(word, line.address, line.status); }),
          taken('I', nullptr, [&](const char* word) { take_address(word, line.source, line.status); }),
          taken('S', nullptr, [&](const char* word) { take_bytes(word, line); }),
          taken('C', nullptr, [&](const char* word) { take_count(word, line); }),
          number('p', nullptr, line.port),
          role('s', true, line),
          role('c', false, line),
          flag('P', nullptr, plan.persistent),
          flag('v', nullptr, plan.verbose),
          flag('V', nullptr, plan.validate),
          flag('d', nullptr, plan.debug),
          flag('q', nullptr, plan.own_queue_pair)};
}

void set_port(sockaddr_storage& address, uint16_t port) {
  if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  }
}

sockaddr* generic(sockaddr_storage& address) {
  return reinterpret_cast<sockaddr*>(&address);
}

void report(const Session& session, const PingPlan& plan, double seconds) {
  Output output(plan.json);
  auto& object = output.object();
  object["program"] = "rping";
  object["role"] = plan.server ? "server" : "client";
  object.update(session.description());
  object["pings"] = session.pings();
  object["ping_bytes"] = plan.bytes;
  object["seconds"] = seconds;
  if (session.pings() > 0) object["usec_per_ping"] = seconds * 1e6 / session.pings();
  if (plan.validate && session.pings() > 0 && !plan.server) object["validated"] = true;
  output.finish();
}

// Connects or accepts, pings until the end, and reports the result.
void perform(Session& session, const PingPlan& plan) {
  try {
    plan.server ? session.accept() : session.connect();
  } catch (const Failure&) {
    if (!session.failed_by_event()) complain("connect error -1");
    throw;
  }
  const Stopwatch watch;
  const int status = status_of([&] { plan.server ? session.serve() : session.ping(); });
  const double seconds = watch.seconds();
  if (status != 0) complain(verbena::format("rping {} failed: -1", plan.server ? "server" : "client"));
  status_of([&] { session.disconnect(); });
  if (status != 0) throw Failure{status};
  report(session, plan, seconds);
}

void run_client(PingLine& line, rdma_event_channel* channel, rdma_cm_id* id) {
  Session session(line.plan, channel, id);
  sockaddr* source = line.source.ss_family != 0 ? generic(line.source) : nullptr;
  if (rdma_resolve_addr(id, source, generic(line.address), kResolveMilliseconds) != 0) {
    fail_of_call("rdma_resolve_addr");
  }
  session.await(Step::kRouteResolved, "ROUTE_RESOLVED");
  session.debug("rdma_resolve_addr - rdma_resolve_route successful\n");
  session.prepare();
  perform(session, line.plan);
}

// Serves one connection from its request to its end.
void serve(const PingPlan& plan, rdma_event_channel* channel, rdma_cm_id* id) {
  Session session(plan, channel, id);
  try {
    session.prepare();
  } catch (const Failure&) {
    rdma_reject(id, nullptr, 0);
    throw;
  }
  perform(session, plan);
}

// Waits for the next connection request and returns its id.
rdma_cm_id* next_request(rdma_event_channel* channel) {
  while (true) {
    const Event event = next_event(channel);
    if (!event) fail_of_call("rdma_get_cm_event");
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) return event->id;
    if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
      complain("cma detected device removal!!!!");
      throw Failure{-1};
    }
  }
}

// Serves a session in the calling thread with an event channel of its own, so that sessions do not wait for
// each other.
void serve_apart(const PingPlan& plan, rdma_cm_id* id) {
  const Channel channel(rdma_create_event_channel());
  const Id owned(id);
  if (!channel || rdma_migrate_id(id, channel.get()) != 0) {
    failed("rdma_migrate_id");
    rdma_reject(id, nullptr, 0);
    return;
  }
  status_of([&] { serve(plan, channel.get(), id); });
}

void run_server(PingLine& line, rdma_event_channel* channel, rdma_cm_id* listener) {
  if (rdma_bind_addr(listener, generic(line.address)) != 0) fail_of_call("rdma_bind_addr");
  if (rdma_listen(listener, kBacklog) != 0) fail_of_call("rdma_listen");
  if (!line.plan.persistent) {
    const Id id(next_request(channel));
    return serve(line.plan, channel, id.get());
  }
  while (true) std::thread(serve_apart, line.plan, next_request(channel)).detach();
}

}  // namespace

int rping(int argc, char** argv) {
  PingLine line;
  line.address.ss_family = AF_INET;
  const Letters letters = parse_letters(argc, argv, options_of(line), true);
  if (letters.next == Next::kGoOn && line.status != 0) return line.status;
  if (letters.next != Next::kGoOn || !line.has_role) return print_usage("rping", argv[0], letters.next);
  line.plan.json = letters.json;
  set_port(line.address, line.port);
  const Channel channel = first_channel();
  if (!channel) return errno;
  rdma_cm_id* made = nullptr;
  if (rdma_create_id(channel.get(), &made, nullptr, RDMA_PS_TCP) != 0) fail_of_call("rdma_create_id");
  const Id id(made);
  (line.plan.server ? run_server : run_client)(line, channel.get(), made);
  return 0;
}

}  // namespace verbena::rdma_core

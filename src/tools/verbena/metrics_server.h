// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "base/time.h"
#include "base/unique_fd.h"
#include "tools/verbena/http_request.h"

namespace verbena::tools {

// A socket that listens at "ADDRESS:PORT" (an IPv6 address in brackets) or "unix:PATH". An error is a
// sentence for the user.
tl::expected<UniqueFd, std::string> listen_at(const std::string& where);

// Answers all who connect with metrics, over HTTP. Its clients are anybody: so many at a time, each with so
// much to say and so long to say it. A process of its own, so that nothing that a stranger says reaches the
// agent. One thread.
class MetricsServer {
 public:
  static constexpr size_t kMostConnections = 32;
  static constexpr Duration kPatience = std::chrono::seconds(5);
  static constexpr Duration kFreshness = std::chrono::seconds(1);  // metrics are asked for no oftener

  MetricsServer(UniqueFd listener, std::function<std::string()> metrics)
      : listener_(std::move(listener)), metrics_(std::move(metrics)) {}

  // Waits until something can be done, at most so long, and does it.
  void step(Duration at_most);

 private:
  struct Connection {
    UniqueFd socket;
    TimePoint deadline;
    std::string received;
    std::string answer;  // empty as long as the request is not complete
    size_t sent = 0;
  };

  void accept_all(TimePoint now);
  // Whether there is more to do for it.
  bool serve(Connection& connection, TimePoint now);
  bool receive(Connection& connection, TimePoint now);
  const std::string& metrics(TimePoint now);

  const UniqueFd listener_;
  const std::function<std::string()> metrics_;
  std::list<Connection> connections_;
  std::string last_;
  std::optional<TimePoint> last_asked_;
};

}  // namespace verbena::tools

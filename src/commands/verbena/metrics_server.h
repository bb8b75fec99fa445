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
#include "commands/verbena/metrics_reader.h"
#include "commands/verbena/metrics_text.h"

namespace verbena::commands {

// A socket that listens at "ADDRESS:PORT" (an IPv6 address in brackets) or "unix:PATH". There it takes the
// place of a socket that an ended server of this user has left, and of no other file. An error is a sentence
// for the user.
tl::expected<UniqueFd, std::string> listen_at(const std::string& where);

// Answers all who connect with metrics, over HTTP. Its clients are anybody: so many at a time, of one source
// and of all, each with so much to say and so long to say it. When there is no room, the newest client takes
// the place of one that has said nothing complete yet, so that nobody is kept out by clients that wait. A
// process of its own, so that nothing that a stranger says reaches the agent. One thread.
class MetricsServer {
 public:
  static constexpr size_t kMaxConnections = 32;
  static constexpr size_t kMaxOfSource = 8;
  static constexpr Duration kPatience = std::chrono::seconds(5);
  static constexpr Duration kFreshness = std::chrono::seconds(1);  // metrics are asked for no oftener

  MetricsServer(UniqueFd listener, std::function<MetricsTexts()> metrics)
      : listener_(std::move(listener)), metrics_(std::move(metrics)) {}

  // Waits until something can be done, at most so long, and does it.
  void step(Duration at_most);

 private:
  struct Connection {
    UniqueFd socket;
    MetricsReader reader;
    TimePoint deadline;
    std::string received{};
    std::string answer{};  // empty as long as the request is not complete
    size_t sent = 0;
  };

  void accept_some(TimePoint now);
  // Ends a connection, of this source or of any: one without a complete request, if there is one. Among these
  // it is one whose source has the most, and of that the oldest. REQUIRES: there is a connection
  void end_one(const std::string* source);
  size_t count_of(const std::string& source) const;
  // Whether there is more to do for it.
  bool serve(Connection& connection, TimePoint now);
  bool receive(Connection& connection, TimePoint now);
  const MetricsTexts& metrics(TimePoint now);

  const UniqueFd listener_;
  const std::function<MetricsTexts()> metrics_;
  std::list<Connection> connections_;  // the oldest first
  MetricsTexts last_;
  std::optional<TimePoint> last_asked_;
};

}  // namespace verbena::commands

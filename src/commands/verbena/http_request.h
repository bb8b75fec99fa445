// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace verbena::commands {

// The part of HTTP/1.1 that a scraper of metrics needs. Pure. Clients are untrusted and may send any bytes.

// Longest request in bytes. A client that has sent this much without completing a request gets status 431.
inline constexpr size_t kMaxRequestBytes = 4096;

struct HttpVerdict {
  int status = 200;
  bool wants_body = true;  // false for HEAD
};
// Returns the status for the bytes that a client has sent so far, or nullopt if the request is incomplete.
std::optional<HttpVerdict> judge_request(std::string_view received);

// Returns head and body of the answer. The body is `metrics` if the status is 200. The server closes the
// connection afterwards.
std::string http_answer(const HttpVerdict& verdict, std::string_view metrics);

}  // namespace verbena::commands

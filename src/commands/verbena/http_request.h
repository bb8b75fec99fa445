// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace verbena::commands {

// The part of HTTP/1.1 that a scraper of metrics needs. Pure; accepts arbitrary bytes from untrusted clients.

inline constexpr size_t kMaxRequestBytes = 4096;

struct HttpVerdict {
  int status = 200;
  bool wants_body = true;  // false for HEAD
};
// Judges the bytes that a client has sent so far: the status of the answer, or nullopt while the request is
// incomplete.
std::optional<HttpVerdict> judge_request(std::string_view received);

// Returns head and body of the answer. The server closes the connection after it.
std::string http_answer(const HttpVerdict& verdict, std::string_view metrics);

}  // namespace verbena::commands

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace verbena::commands {

// As much of HTTP/1.1 as it takes to be asked for metrics. Pure: the bytes are anybody's.

inline constexpr size_t kMaxRequestBytes = 4096;

struct HttpVerdict {
  int status = 200;
  bool wants_body = true;  // false: HEAD
};
// What a client is to be answered that has sent this so far; nothing: its request is not complete yet.
std::optional<HttpVerdict> judge_request(std::string_view received);

// The whole answer; the connection is closed behind it.
std::string http_answer(const HttpVerdict& verdict, std::string_view metrics);

}  // namespace verbena::commands

// SPDX-License-Identifier: Apache-2.0
#include "commands/verbena/http_request.h"

#include <algorithm>
#include <array>

#include "base/format.h"

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

}  // namespace verbena::commands

// SPDX-License-Identifier: Apache-2.0
// A metrics client that sends arbitrary bytes. Whether a request is complete follows from its beginning,
// however it is split; and every answer is valid HTTP.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "commands/verbena/metrics.h"
#include "fuzz/choices.h"
#include "fuzz/require.h"

namespace verbena {
namespace {

using fuzz::Choices;

// Returns words of the protocol with arbitrary bytes between them.
std::string any_request(Choices& choices) {
  constexpr std::array<std::string_view, 12> kWords = {"GET ",     "HEAD ", "POST ", "/metrics",
                                                       "/",        "?x=1",  " ",     "HTTP/1.",
                                                       "HTTP/2.0", "\r\n",  "\n\n",  "\r\n\r\n"};
  std::string text;
  while (!choices.empty()) {
    const uint32_t what = choices.below(kWords.size() + 2);
    if (what < kWords.size()) {
      text += kWords[what];
    } else if (what == kWords.size()) {
      text += static_cast<char>(choices.byte());
    } else {
      text.append(size_t{choices.byte()} * 16, 'x');
    }
  }
  return text;
}

bool is_known(int status) {
  constexpr int kKnown[] = {200, 400, 404, 405, 431, 505};
  return std::ranges::find(kKnown, status) != std::end(kKnown);
}

void check(const std::string& text, size_t first) {
  const std::string_view part = std::string_view(text).substr(0, first);
  const auto early = commands::judge_request(part);
  const auto whole = commands::judge_request(text);
  VERBENA_REQUIRE(whole || text.size() < commands::kMaxRequestBytes);
  if (!whole) return;
  VERBENA_REQUIRE(is_known(whole->status));
  // An answer to a part of the request is final, except 431 (too long).
  if (early && early->status != 431)
    VERBENA_REQUIRE(early->status == whole->status && early->wants_body == whole->wants_body);
  const std::string answer = commands::http_answer(*whole, "verbena_up 1\n");
  VERBENA_REQUIRE(answer.starts_with("HTTP/1.1 ") && answer.find("\r\n\r\n") != std::string::npos);
  VERBENA_REQUIRE(answer.ends_with("\r\n\r\n") != whole->wants_body);
}

}  // namespace
}  // namespace verbena

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  verbena::fuzz::Choices choices(data, size);
  const auto first = choices.number<uint16_t>();
  verbena::check(verbena::any_request(choices), first);
  return 0;
}

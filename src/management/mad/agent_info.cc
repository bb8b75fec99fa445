// SPDX-License-Identifier: Apache-2.0
#include "management/mad/agent_info.h"

#include <algorithm>
#include <cstring>

#include "management/mad/announcement.h"

namespace verbena::mad {
namespace {

constexpr size_t kInfoFormatAt = 40;
constexpr size_t kInfoPathMtuAt = 41;
constexpr size_t kAskedByAt = 48;
constexpr size_t kVersionAt = 64;
constexpr size_t kVersionBytes = 32;
constexpr size_t kInfoDescriptionAt = 96;
constexpr uint8_t kInfoFormat = 1;

void set_info_text(Mad& mad, size_t at, const std::string& text, size_t most) {
  std::memcpy(mad.at(at), text.data(), std::min(text.size(), most));
}

// Replaces all but printable ASCII by question marks, since the text is printed to terminals.
std::string info_text_at(const Mad& mad, size_t at, size_t most) {
  const auto* bytes = reinterpret_cast<const char*>(mad.at(at));
  std::string text(bytes, ::strnlen(bytes, most));
  std::ranges::replace_if(
      text, [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  return text;
}

}  // namespace

Mad agent_info_request(uint32_t transaction) {
  Mad mad;
  mad.set_kind(kAgentInfoClass, 1, kMethodGet, kAgentInfoAttribute);
  mad.set(kTransactionAt, uint64_t{transaction});
  store_be24(mad.at(kOuiAt), kAnnouncementOui);
  return mad;
}

bool is_agent_info_request(const MadHeader& header) {
  return header.management_class == kAgentInfoClass && header.oui == kAnnouncementOui &&
         header.class_version == 1 && header.method == kMethodGet && header.attribute == kAgentInfoAttribute;
}

Mad answer_agent_info(const Mad& request, const AgentInfo& info) {
  Mad mad = begin_answer(request);
  store_be24(mad.at(kOuiAt), kAnnouncementOui);
  mad.set_u8(kInfoFormatAt, kInfoFormat);
  mad.set_u8(kInfoPathMtuAt, info.path_mtu);
  std::memcpy(mad.at(kAskedByAt), info.asked_by.bytes.data(), info.asked_by.bytes.size());
  set_info_text(mad, kVersionAt, info.version, kVersionBytes - 1);
  set_info_text(mad, kInfoDescriptionAt, info.description, kMaxDescriptionBytes);
  return mad;
}

std::optional<AgentInfo> decode_agent_info(const Mad& answer) {
  const MadHeader header = header_of(answer);
  const bool is_one = header.management_class == kAgentInfoClass && header.oui == kAnnouncementOui &&
                      header.method == (kMethodGet | kMethodResponse) &&
                      header.attribute == kAgentInfoAttribute && answer.get<uint16_t>(kStatusAt) == 0 &&
                      answer.u8(kInfoFormatAt) == kInfoFormat;
  if (!is_one) return std::nullopt;
  AgentInfo info;
  info.version = info_text_at(answer, kVersionAt, kVersionBytes);
  info.description = info_text_at(answer, kInfoDescriptionAt, kMaxDescriptionBytes);
  info.path_mtu = answer.u8(kInfoPathMtuAt);
  std::memcpy(info.asked_by.bytes.data(), answer.at(kAskedByAt), info.asked_by.bytes.size());
  return info.path_mtu >= 1 && info.path_mtu <= 5 ? std::optional(info) : std::nullopt;
}

}  // namespace verbena::mad

// SPDX-License-Identifier: Apache-2.0
#include "management/mad/agent_messages.h"

#include <algorithm>

namespace verbena::mad {

namespace {

constexpr size_t kFormatAt = 40;
constexpr size_t kFlagsAt = 41;
constexpr size_t kPathMtuAt = 42;
constexpr size_t kMegabitsAt = 44;
constexpr size_t kGuidAt = 48;
constexpr size_t kDescriptionAt = 56;
// Zero from older agents.
constexpr size_t kNetworkRankAt = 120;
constexpr size_t kNetworkGuidAt = 128;
constexpr uint8_t kFormat = 1;
constexpr uint8_t kUp = 1, kWantsAnswer = 2;

constexpr size_t kInfoFormatAt = 40;
constexpr size_t kInfoPathMtuAt = 41;
constexpr size_t kAskedByAt = 48;
constexpr size_t kVersionAt = 64;
constexpr size_t kVersionBytes = 32;
constexpr size_t kInfoDescriptionAt = 96;
constexpr uint8_t kInfoFormat = 1;

// Texts are printed to terminals, and so may have only these letters.
bool is_not_printable(char letter) {
  return letter < ' ' || letter > '~';
}

void set_text(Mad& mad, size_t at, const std::string& text, size_t most) {
  std::memcpy(mad.at(at), text.data(), std::min(text.size(), most));
}

std::string text_at(const Mad& mad, size_t at, size_t most) {
  const auto* bytes = reinterpret_cast<const char*>(mad.at(at));
  return {bytes, ::strnlen(bytes, most)};
}

std::string info_text_at(const Mad& mad, size_t at, size_t most) {
  std::string text = text_at(mad, at, most);
  std::ranges::replace_if(text, is_not_printable, '?');
  return text;
}

}  // namespace

Mad encode(const Announcement& announcement) {
  const Adapter& adapter = announcement.adapter;
  Mad mad;
  mad.set_kind(kAnnouncementClass, 1, kMethodSend, kAnnouncementAttribute);
  store_be24(mad.at(kOuiAt), kAnnouncementOui);
  mad.set_u8(kFormatAt, kFormat);
  mad.set_u8(kFlagsAt,
             static_cast<uint8_t>((adapter.up ? kUp : 0) | (announcement.wants_answer ? kWantsAnswer : 0)));
  mad.set_u8(kPathMtuAt, adapter.path_mtu);
  mad.set(kMegabitsAt, adapter.megabits);
  mad.set(kGuidAt, adapter.guid);
  mad.set_u8(kNetworkRankAt, adapter.network.rank);
  mad.set(kNetworkGuidAt, adapter.network.guid);
  set_text(mad, kDescriptionAt, adapter.description, kMaxDescriptionBytes);
  return mad;
}

std::optional<Announcement> decode_announcement(const Mad& mad) {
  const MadHeader header = header_of(mad);
  const bool is_one = header.base_version == roce::kMadBaseVersion &&
                      header.management_class == kAnnouncementClass && header.class_version == 1 &&
                      header.method == kMethodSend && header.attribute == kAnnouncementAttribute &&
                      header.oui == kAnnouncementOui && mad.u8(kFormatAt) == kFormat;
  if (!is_one) return std::nullopt;
  Announcement announcement;
  Adapter& adapter = announcement.adapter;
  adapter.up = (mad.u8(kFlagsAt) & kUp) != 0;
  announcement.wants_answer = (mad.u8(kFlagsAt) & kWantsAnswer) != 0;
  adapter.path_mtu = mad.u8(kPathMtuAt);
  adapter.megabits = mad.get<uint32_t>(kMegabitsAt);
  adapter.guid = mad.get<uint64_t>(kGuidAt);
  adapter.network = {mad.u8(kNetworkRankAt), mad.get<uint64_t>(kNetworkGuidAt)};
  if (adapter.network.guid == 0) adapter.network = {};
  if (adapter.guid == 0 || adapter.path_mtu < 1 || adapter.path_mtu > 5) return std::nullopt;
  adapter.description = text_at(mad, kDescriptionAt, kMaxDescriptionBytes);
  if (std::ranges::any_of(adapter.description, is_not_printable)) return std::nullopt;
  return announcement;
}

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
  set_text(mad, kVersionAt, info.version, kVersionBytes - 1);
  set_text(mad, kInfoDescriptionAt, info.description, kMaxDescriptionBytes);
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

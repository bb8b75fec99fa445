// SPDX-License-Identifier: Apache-2.0
#include "management/mad/mad.h"

namespace verbena::mad {
namespace {

constexpr uint16_t kDirectionBit = 0x8000;  // in the status field of directed routes: on the way back

}  // namespace

MadHeader header_of(const Mad& mad) {
  MadHeader header;
  header.base_version = mad.u8(kBaseVersionAt);
  header.management_class = mad.u8(kClassAt);
  header.class_version = mad.u8(kClassVersionAt);
  header.method = mad.u8(kMethodAt);
  header.transaction = mad.get<uint64_t>(kTransactionAt);
  header.attribute = mad.get<uint16_t>(kAttributeAt);
  header.modifier = mad.get<uint32_t>(kModifierAt);
  if (is_vendor_with_oui(header.management_class)) header.oui = load_be24(mad.at(kOuiAt));
  return header;
}

// Keeps the class, and so the position of the data. Both Set and Get are answered by GetResp.
Mad begin_answer(const Mad& request, MadStatus status) {
  Mad answer = request;
  const uint8_t method = request.u8(kMethodAt);
  answer.set_u8(kMethodAt,
                static_cast<uint8_t>((method == kMethodSet ? kMethodGet : method) | kMethodResponse));
  set_status(answer, status);
  return answer;
}

void set_status(Mad& mad, MadStatus status) {
  const bool directed = mad.u8(kClassAt) == kClassSubnDirected;
  mad.set(kStatusAt, static_cast<uint16_t>(static_cast<uint16_t>(status) | (directed ? kDirectionBit : 0)));
}

}  // namespace verbena::mad

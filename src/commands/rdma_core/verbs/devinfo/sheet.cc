// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/verbs/devinfo/sheet.h"

#include <algorithm>

#include <endian.h>

namespace verbena::rdma_core {

constexpr int kTab = 8;

void Sheet::row(int indent, const std::string& name, int column, const std::string& value) const {
  const int end = indent * kTab + static_cast<int>(name.size()) + 1;
  const int tabs = std::max(1, (column - end + kTab - 1) / kTab);
  output_.text("%s%s:%s%s\n", std::string(static_cast<size_t>(indent), '\t').c_str(), name.c_str(),
               std::string(static_cast<size_t>(tabs), '\t').c_str(), value.c_str());
}

Sheet::Json Sheet::flags(uint64_t value, std::span<const Flag> known, bool unknown_in_hex) const {
  Json names = Json::array();
  for (const Flag& flag : known) {
    if ((value & flag.bit) == 0) continue;
    output_.text("\t\t\t\t\t%s\n", flag.name);
    names.push_back(flag.name);
    value &= ~flag.bit;
  }
  if (value != 0 && unknown_in_hex) {
    const std::string rest = verbena::format("0x{:X}", value);
    output_.text("\t\t\t\t\tUnknown flags: %s\n", rest.c_str());
    names.push_back(rest);
  }
  return names;
}

void Rows::named(const char* name, std::span<const Name> names, int value, const char* unknown,
                 const char* unit) const {
  const std::string text = std::string(name_of(names, value, unknown)) + unit;
  row(name, verbena::format("{} ({})", text, value), text);
}

std::string guid_text(uint64_t guid_in_network_order) {
  const uint64_t guid = be64toh(guid_in_network_order);
  return verbena::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff, guid >> 16 & 0xffff,
                         guid & 0xffff);
}

std::string long_gid_text(const ibv_gid& gid) {
  std::string text;
  for (size_t i = 0; i < sizeof gid.raw; i += 2) {
    text += verbena::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid.raw[i], gid.raw[i + 1]);
  }
  return text;
}

}  // namespace verbena::rdma_core

// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma/row.h"

#include <algorithm>

#include "base/format.h"
#include "base/text.h"

namespace verbena::commands::rdma {

bool Row::passes(const Field& field, const Filters::Filter& filter) {
  if (!filter.is_number) return contains_text(filter.values, field.text);
  if (field.form != Form::kList) return contains_number(filter.values, field.number);
  return std::ranges::any_of(field.numbers,
                             [&](uint32_t number) { return contains_number(filter.values, number); });
}

// The filters "dev" and "link" select the device, which the caller has done.
bool Row::passes(const Filters& filters) const {
  return std::ranges::all_of(filters.all(), [&](const Filters::Filter& filter) {
    if (filter.name == "dev" || filter.name == "link") return true;
    const auto field = std::ranges::find(fields_, filter.name, &Field::key);
    return field != fields_.end() && passes(*field, filter);
  });
}

void Row::print_owner(Printer& printer) const {
  const std::string name = printable(link_.name);
  printer.member("ifindex", link_.device_index);
  printer.member("ifname", link_.name);
  if (!has_port_) return printer.text(verbena::format("dev {} ", name));
  if (port_ == 0) return printer.text(verbena::format("link {}/- ", name));
  printer.member("port", port_);
  printer.text(verbena::format("link {}/{} ", name, port_));
}

void Row::print(const Field& field, Printer& printer) {
  switch (field.form) {
    case Form::kNumber:
      return printer.field(field.key, field.number);
    case Form::kText:
      return printer.field(field.key, field.text);
    case Form::kHex:
      return printer.hex(field.key, field.number);
    case Form::kOnOff:
      return printer.on_off(field.key, field.number != 0);
    case Form::kList:
      break;
  }
  // iproute2 prints these numbers as strings in JSON.
  printer.text(verbena::format("{} {} ", field.key, verbena::join(field.numbers, ",")));
  printer.begin_array(field.key);
  for (const uint32_t number : field.numbers) printer.element(verbena::format("{}", number));
  printer.end_array();
}

void Row::print(Printer& printer) const {
  printer.begin_object();
  print_owner(printer);
  for (const Field& field : fields_) {
    if (field.is_shown) print(field, printer);
  }
  printer.end_object();
}

}  // namespace verbena::commands::rdma

// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma/row.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include <strings.h>

#include "base/format.h"
#include "base/text.h"

namespace verbena::commands::rdma {
namespace {

// The filters whose values are texts; those of all others are numbers.
constexpr std::string_view kTextFilters[] = {
    "dev",      "link",           "type",     "qp-type",  "state",    "path-mig-state",   "ps",
    "dev-type", "transport-type", "src-addr", "dst-addr", "poll-ctx", "optional-counters"};
constexpr std::string_view kNumberCharacters = "1234567890,-";

// Calls visit(item) for each item until it returns true. Returns whether it did.
template <class Visit>
bool any_item(std::string_view list, Visit visit) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (visit(list.substr(0, end))) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

std::optional<uint64_t> number_in(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

tl::expected<Filters, std::string> parse_filters(const Arguments& words,
                                                 std::span<const std::string_view> names) {
  Filters filters;
  if (words.empty()) return filters;
  if (words.size() == 1) {
    return tl::unexpected(verbena::format("No filter data was supplied to filter option {}", words.word()));
  }
  if (words.size() % 2 != 0) return tl::unexpected(std::string("There is filter option without data"));
  for (size_t i = 0; i < words.size(); i += 2) {
    const std::string& key = words[i];
    const std::string& values = words[i + 1];
    const auto found =
        std::ranges::find_if(names, [&](std::string_view name) { return abbreviates(key, name); });
    if (found == names.end()) return tl::unexpected(verbena::format("Unsupported filter option: {}", key));
    const bool is_number = std::ranges::find(kTextFilters, *found) == std::end(kTextFilters);
    if (is_number && values.find_first_not_of(kNumberCharacters) != std::string::npos) {
      return tl::unexpected(
          verbena::format("{} filter accepts \"{}\" characters only", key, kNumberCharacters));
    }
    filters.push_back({*found, is_number, values});
  }
  return filters;
}

bool contains_number(std::string_view values, uint64_t number) {
  return any_item(values, [&](std::string_view item) {
    const size_t dash = item.find('-');
    if (dash == std::string_view::npos) return number_in(item) == number;
    const uint64_t first = number_in(item.substr(0, dash)).value_or(0);
    const auto last = number_in(item.substr(dash + 1));
    return last && first <= number && number <= *last;
  });
}

bool contains_text(std::string_view values, std::string_view text) {
  return any_item(values, [&](std::string_view item) {
    return item.size() == text.size() && ::strncasecmp(item.data(), text.data(), text.size()) == 0;
  });
}

bool Row::passes(const Field& field, const Filter& filter) {
  if (!filter.is_number) return contains_text(filter.values, field.text);
  if (field.form != Form::kList) return contains_number(filter.values, field.number);
  return std::ranges::any_of(field.numbers,
                             [&](uint32_t number) { return contains_number(filter.values, number); });
}

// The filters "dev" and "link" select the device, which the caller has done.
bool Row::passes(const Filters& filters) const {
  return std::ranges::all_of(filters, [&](const Filter& filter) {
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

void Printer::text(std::string_view text) {
  if (!is_json()) out_ += text;
}

void Printer::field(std::string_view key, uint64_t value) {
  text(verbena::format("{} {} ", key, value));
  member(key, value);
}

void Printer::field(std::string_view key, std::string_view value) {
  text(verbena::format("{} {} ", key, printable(value)));
  member(key, value);
}

void Printer::hex(std::string_view key, uint64_t value) {
  text(verbena::format("{} {:#x} ", key, value));
  member(key, verbena::format("{:x}", value));
}

void Printer::on_off(std::string_view key, bool value) {
  text(verbena::format("{} {} ", key, value ? "on" : "off"));
  if (!is_json()) return;
  name(key);
  separate();
  out_ += value ? "true" : "false";
}

void Printer::element(uint64_t value) {
  if (!is_json()) return;
  separate();
  out_ += verbena::format("{}", value);
}

void Printer::element(std::string_view value) {
  if (!is_json()) return;
  separate();
  quote(value);
}

void Printer::begin_list() {
  if (!is_json()) return;
  open('[');
  if (form_ == Form::kPrettyJson) out_ += ' ';
}

void Printer::end_list() {
  if (!is_json()) return;
  end_array();
  out_ += '\n';
  needs_comma_ = false;
}

void Printer::begin_object() {
  if (is_json()) open('{');
}

void Printer::end_object() {
  text("\n");
  if (is_json()) close('}');
}

void Printer::begin_array(std::string_view key) {
  if (!is_json()) return;
  name(key);
  begin_list();
}

void Printer::end_array() {
  if (!is_json()) return;
  if (form_ == Form::kPrettyJson && needs_comma_) out_ += ' ';
  needs_comma_ = false;
  close(']');
}

void Printer::open(char bracket) {
  separate();
  out_ += bracket;
  ++depth_;
  needs_comma_ = false;
}

void Printer::close(char bracket) {
  --depth_;
  if (needs_comma_) break_line();
  out_ += bracket;
  needs_comma_ = true;
}

void Printer::separate() {
  if (needs_comma_) out_ += ',';
  needs_comma_ = true;
}

void Printer::break_line() {
  if (form_ != Form::kPrettyJson) return;
  out_ += '\n';
  out_.append(size_t{4} * depth_, ' ');
}

void Printer::name(std::string_view key) {
  separate();
  break_line();
  quote(key);
  out_ += ':';
  if (form_ == Form::kPrettyJson) out_ += ' ';
  needs_comma_ = false;
}

// Quotes a string. Names of other processes need not be UTF-8, so non-ASCII bytes become '?'.
void Printer::quote(std::string_view value) {
  out_ += '"';
  for (const char c : printable(value)) {
    if (c == '"' || c == '\\') out_ += '\\';
    out_ += static_cast<unsigned char>(c) < 0x80 ? c : '?';
  }
  out_ += '"';
}

}  // namespace verbena::commands::rdma

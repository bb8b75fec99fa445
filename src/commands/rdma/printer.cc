// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma/printer.h"

#include <iterator>

#include "base/format.h"
#include "base/text.h"

namespace verbena::commands::rdma {

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

void Printer::member(std::string_view key, uint64_t value) {
  if (!is_json()) return;
  name(key);
  element(value);
}

void Printer::member(std::string_view key, std::string_view value) {
  if (!is_json()) return;
  name(key);
  element(value);
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

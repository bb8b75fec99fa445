// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace verbena::commands::rdma {

// Prints objects as text or JSON in iproute2's layout, byte for byte, since scripts parse it.
class Printer {
 public:
  enum class Form : uint8_t { kText, kJson, kPrettyJson };
  Printer(Form form, std::string& out) : form_(form), out_(out) {}

  bool is_json() const { return form_ != Form::kText; }

  // Begin and end the list around the whole output in JSON. Print nothing as text.
  void begin_list();
  void end_list();
  // Begin and end an object. As text, an object is one line.
  void begin_object();
  void end_object();

  // Print "key value " as text, or the member "key":value in JSON.
  void field(std::string_view key, uint64_t value);
  void field(std::string_view key, std::string_view value);
  // Prints "key 0xff " as text, or the member "key":"ff" in JSON.
  void hex(std::string_view key, uint64_t value);
  // Prints "key on " or "key off " as text, or the member "key":true or false in JSON.
  void on_off(std::string_view key, bool value);
  // Print in one form only: text() prints as text, the functions below it print in JSON.
  void text(std::string_view text);
  void member(std::string_view key, uint64_t value);
  void member(std::string_view key, std::string_view value);
  void begin_array(std::string_view key);
  void element(uint64_t value);
  void element(std::string_view value);
  void end_array();
  // Continues the object on the next line, indented, as text. Prints nothing in JSON.
  void continue_line() { text("\n    "); }

 private:
  void open(char bracket);
  void close(char bracket);
  void separate();
  void break_line();
  void name(std::string_view key);
  void quote(std::string_view value);

  const Form form_;
  std::string& out_;
  unsigned depth_ = 0;
  bool needs_comma_ = false;
};

}  // namespace verbena::commands::rdma

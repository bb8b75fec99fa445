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

  // Begin and end the list around the whole output; JSON only.
  void begin_list();
  void end_list();
  // Begin and end an object, which in text is one line.
  void begin_object();
  void end_object();

  // Prints "key value " as text, or a member in JSON.
  void field(std::string_view key, uint64_t value);
  void field(std::string_view key, std::string_view value);
  // Prints "key 0xff " as text, or a member "ff" in JSON.
  void hex(std::string_view key, uint64_t value);
  // Prints "key on " as text, or a member `true` in JSON.
  void on_off(std::string_view key, bool value);
  // Print in one form only: text() as text, the others below in JSON.
  void text(std::string_view text);
  void member(std::string_view key, uint64_t value);
  void member(std::string_view key, std::string_view value);
  void begin_array(std::string_view key);
  void element(uint64_t value);
  void element(std::string_view value);
  void end_array();
  // Continues the object on the next line; text only.
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

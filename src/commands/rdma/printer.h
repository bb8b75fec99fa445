// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace verbena::commands::rdma {

// What `rdma` prints, as text or as JSON: iproute2's layout of both, to the byte, since scripts cut it up.
class Printer {
 public:
  enum class Form : uint8_t { kText, kJson, kPrettyJson };
  Printer(Form form, std::string& out) : form_(form), out_(out) {}

  bool is_json() const { return form_ != Form::kText; }

  // Of the whole answer; JSON only.
  void begin_list();
  void end_list();
  // One thing that is shown; a line of text.
  void begin_object();
  void end_object();

  // "key value ", or a member.
  void field(std::string_view key, uint64_t value);
  void field(std::string_view key, std::string_view value);
  // "key 0xff ", or "ff" as a member.
  void hex(std::string_view key, uint64_t value);
  // "key on ", or true as a member.
  void on_off(std::string_view key, bool value);
  // For one of the two only.
  void text(std::string_view text);
  void member(std::string_view key, uint64_t value);
  void member(std::string_view key, std::string_view value);
  void begin_array(std::string_view key);
  void element(uint64_t value);
  void element(std::string_view value);
  void end_array();
  // The next line of the same object; text only.
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

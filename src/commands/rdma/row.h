// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

#include "control/model/agent_status.h"

namespace verbena::commands::rdma {

// Whether `word` abbreviates `whole`, that is, is a prefix of it. As in iproute2, callers take the first
// command that an ambiguous word abbreviates.
inline bool abbreviates(std::string_view word, std::string_view whole) {
  return whole.starts_with(word);
}

// The words of a command that remain to be parsed. Parsing removes words from the front.
class Arguments {
 public:
  explicit Arguments(std::vector<std::string> words) : words_(std::move(words)) {}

  bool empty() const { return at_ == words_.size(); }
  size_t size() const { return words_.size() - at_; }
  // Returns the next word without removing it. REQUIRES: not empty()
  const std::string& word() const { return words_[at_]; }
  const std::string& operator[](size_t index) const { return words_[at_ + index]; }
  void drop() { at_ += empty() ? 0 : 1; }
  std::string take() { return words_[at_++]; }

 private:
  std::vector<std::string> words_;
  size_t at_ = 0;
};

// The user's selection of objects, such as "lqpn 5-9,17 type RC".
struct Filter {
  std::string_view name;
  bool is_number;  // the values are numbers and ranges, otherwise texts
  std::string values;
};
using Filters = std::vector<Filter>;

// Parses pairs of a filter's name, which may be abbreviated, and a list of values. `names` are the known
// filters. On failure returns a sentence for the user.
tl::expected<Filters, std::string> parse_filters(const Arguments& words,
                                                 std::span<const std::string_view> names);

// Whether `number` is in `values`, a list of numbers and ranges such as "5,7-9". Ranges include both ends.
bool contains_number(std::string_view values, uint64_t number);
// Whether `text` is in `values`, a list such as "a,b". Ignores case.
bool contains_text(std::string_view values, std::string_view text);

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
  template <class Value>
  void member(std::string_view key, const Value& value) {
    if (!is_json()) return;
    name(key);
    element(value);
  }
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

// One object as `rdma` prints it: its device or port, then names and values in iproute2's order. A Row must
// not outlive the Link from which it was made.
class Row {
 public:
  // Return a new row for a device ("dev rxe0 ...") or a port ("link rxe0/1 ...", or "link rxe0/- ..." for 0).
  static Row of_device(const control::Link& link) { return Row(link, 0, false); }
  static Row of_port(const control::Link& link, uint32_t port) { return Row(link, port, true); }

  Row& add(std::string_view key, uint64_t value) { return add({.key = key, .number = value, .text = {}}); }
  Row& add(std::string_view key, std::string_view value) {
    return add({.key = key, .form = Form::kText, .text = std::string(value)});
  }
  Row& add_hex(std::string_view key, uint64_t value) {
    return add({.key = key, .form = Form::kHex, .number = value, .text = {}});
  }
  Row& add_on_off(std::string_view key, bool value) {
    return add({.key = key, .form = Form::kOnOff, .number = value ? 1u : 0u, .text = {}});
  }
  // Adds several numbers under one name, printed as a list.
  Row& add_list(std::string_view key, std::vector<uint32_t> numbers) {
    return add({.key = key, .form = Form::kList, .text = {}, .numbers = std::move(numbers)});
  }
  // Add a field that filters can match but print() leaves out.
  Row& know(std::string_view key, std::string_view value) {
    return add({.key = key, .form = Form::kText, .is_shown = false, .text = std::string(value)});
  }
  Row& know(std::string_view key, uint64_t value) {
    return add({.key = key, .is_shown = false, .number = value, .text = {}});
  }

  // Whether each filter matches a field of the row, except "dev" and "link", which the caller has applied.
  bool passes(const Filters& filters) const;
  void print(Printer& printer) const;
  // Prints the row if it passes the filters.
  void print(Printer& printer, const Filters& filters) const {
    if (passes(filters)) print(printer);
  }

 private:
  enum class Form : uint8_t { kNumber, kText, kHex, kOnOff, kList };
  struct Field {
    std::string_view key;
    Form form = Form::kNumber;
    bool is_shown = true;
    uint64_t number = 0;
    std::string text;
    std::vector<uint32_t> numbers{};
  };
  Row(const control::Link& link, uint32_t port, bool has_port)
      : link_(link), port_(port), has_port_(has_port) {}
  Row& add(Field field) {
    fields_.push_back(std::move(field));
    return *this;
  }
  static bool passes(const Field& field, const Filter& filter);
  static void print(const Field& field, Printer& printer);
  void print_owner(Printer& printer) const;

  const control::Link& link_;
  const uint32_t port_;
  const bool has_port_;
  std::vector<Field> fields_;
};

// Returns iproute2's name for an enum ibv_qp_type, such as "RC", or "UNKNOWN".
const char* qp_type_text(uint32_t type);

}  // namespace verbena::commands::rdma

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "commands/rdma/filters.h"
#include "commands/rdma/printer.h"
#include "control/model/agent_status.h"

namespace verbena::commands::rdma {

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
  static bool passes(const Field& field, const Filters::Filter& filter);
  static void print(const Field& field, Printer& printer);
  void print_owner(Printer& printer) const;

  const control::Link& link_;
  const uint32_t port_;
  const bool has_port_;
  std::vector<Field> fields_;
};

}  // namespace verbena::commands::rdma

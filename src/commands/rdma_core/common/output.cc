// SPDX-License-Identifier: Apache-2.0
#include "commands/rdma_core/common/output.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <arpa/inet.h>

namespace verbena::rdma_core {

void complain(const std::string& sentence, const std::string& remedy) {
  // Keep the order of standard output and standard error.
  std::fflush(stdout);
  const std::string line = remedy.empty() ? sentence + "\n" : sentence + " (" + remedy + ")\n";
  std::fputs(line.c_str(), stderr);
}

void complain_of(int error, const std::string& sentence, const std::string& remedy) {
  complain(sentence + ": " + std::strerror(error), remedy);
}

void fail(const std::string& sentence, const std::string& remedy) {
  complain(sentence, remedy);
  throw Failure();
}

void fail_of(int error, const std::string& sentence, const std::string& remedy) {
  complain_of(error, sentence, remedy);
  throw Failure();
}

std::string gid_text(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

const char* name_of(std::span<const Name> names, int value, const char* unknown) {
  const auto found = std::ranges::find(names, value, &Name::value);
  return found != names.end() ? found->text : unknown;
}

void Output::text(const char* format, ...) const {
  if (json_) return;
  std::va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
}

void Output::finish() const {
  if (!json_) return;
  using nlohmann::ordered_json;
  // Replace invalid UTF-8: names of devices and addresses may hold any bytes.
  std::puts(object_.dump(2, ' ', false, ordered_json::error_handler_t::replace).c_str());
}

}  // namespace verbena::rdma_core

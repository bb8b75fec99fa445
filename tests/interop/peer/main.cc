// SPDX-License-Identifier: Apache-2.0
// verbs_peer DEVICE GID-INDEX PATH-MTU PORT [SERVER [ONLY]]: runs the same cases as its peer, and prints a
// line for each: the case's name, a tab, and the statuses at this end. It does not depend on the
// implementation of the verbs. ONLY: part of the names of the cases, or, after a '=', one whole name.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include <unistd.h>

#include "interop/peer/cases.h"

namespace verbena::interop {
namespace {

ibv_mtu mtu_of(int bytes) {
  int value = IBV_MTU_256;
  for (int size = 256; size < bytes; size *= 2) ++value;
  return static_cast<ibv_mtu>(value);
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (auto* some : {request_cases, window_cases, datagram_cases, shared_receive_cases})
    for (Case& one : some()) all.push_back(std::move(one));
  return all;
}

bool is_chosen(const std::string& name, const std::string& only) {
  return only.starts_with('=') ? name == only.substr(1) : name.find(only) != std::string::npos;
}

int run(const Setting& setting, int port, const char* server, const std::string& only) {
  Session session{setting, server ? Exchange::connect(server, port) : Exchange::listen(port),
                  server != nullptr};
  for (const Case& one : all_cases()) {
    if (!is_chosen(one.name, only)) continue;
    session.peer().meet();
    one.run(session);
    std::printf("%s\t%s\n", one.name.c_str(), session.take_outcome().c_str());
    std::fflush(stdout);
  }
  session.peer().meet();
  return EXIT_SUCCESS;
}

}  // namespace

std::string mark_of(const Region& region) {
  std::uint32_t sum = 2166136261U;
  for (const std::uint8_t byte : region.bytes) sum = (sum ^ byte) * 16777619U;
  char mark[16];
  std::snprintf(mark, sizeof mark, "#%08x", sum);
  return mark;
}

void fill(Region& region, bool is_client) {
  if (!is_client) return;
  for (std::uint8_t& byte : region.bytes) byte ^= 0x5a;
}

}  // namespace verbena::interop

int main(int count, char** words) {
  using namespace verbena::interop;
  if (count < 5) {
    std::fprintf(stderr, "usage: verbs_peer DEVICE GID-INDEX PATH-MTU PORT [SERVER|- [ONLY]]\n");
    return 2;
  }
  try {
    const std::string server = count > 5 ? words[5] : "-";
    return run({words[1], std::atoi(words[2]), mtu_of(std::atoi(words[3]))}, std::atoi(words[4]),
               server == "-" ? nullptr : server.c_str(), count > 6 ? words[6] : "");
  } catch (const std::exception& wrong) {
    std::printf("FAILED\t%s\n", wrong.what());
    return 1;
  }
}

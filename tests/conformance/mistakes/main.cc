// SPDX-License-Identifier: Apache-2.0
// mistakes DEVICE GID_INDEX ADDRESS NAME: makes the mistake called NAME. Exit status 0 if all its steps were
// reached; the caller checks the log.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mistakes.h"

namespace mistakes {

void need(bool good, const char* step) {
  if (good) return;
  std::perror(step);
  std::exit(2);
}

}  // namespace mistakes

namespace {

ibv_context* open_device(const char* name) {
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(ibv_get_device_name(devices[i]), name) == 0) return ibv_open_device(devices[i]);
  }
  return nullptr;
}

}  // namespace

int main(int count, char** arguments) {
  mistakes::need(count == 5, "arguments");
  mistakes::Place place{};
  place.context = open_device(arguments[1]);
  mistakes::need(place.context != nullptr, "ibv_open_device");
  place.gid_index = static_cast<uint8_t>(std::atoi(arguments[2]));
  mistakes::need(ibv_query_gid(place.context, 1, place.gid_index, &place.gid) == 0, "ibv_query_gid");
  place.address = arguments[3];
  for (const auto group : {mistakes::with_verbs(), mistakes::with_connections()}) {
    for (const mistakes::Mistake& mistake : group) {
      if (std::strcmp(mistake.name, arguments[4]) != 0) continue;
      mistake.make(place);
      return 0;
    }
  }
  std::fprintf(stderr, "no mistake is called %s\n", arguments[4]);
  return 2;
}

// SPDX-License-Identifier: Apache-2.0
#include "commands/perf/machine.h"

#include <array>
#include <cstdlib>
#include <fstream>

#include <limits.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "commands/perf/device.h"

namespace verbena::perf {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The kernel's name of the processor. ARM's kernels do not tell it.
std::string name_of_processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// The processors that this process may use, which a container may limit.
int count_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

std::string network_namespace() {
  std::array<char, PATH_MAX> target{};
  const ssize_t length = ::readlink("/proc/self/ns/net", target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<std::size_t>(length)) : "";
}

bool wants_wire_only() {
  const char* const value = ::secure_getenv("VERBENA_LOCAL");
  return value != nullptr && std::string(value) == "off";
}

}  // namespace

nlohmann::json describe_end(const Parameters& parameters) {
  const Device device(parameters);
  const ibv_device_attr attributes = device.context.attributes().value();
  utsname kernel{};
  ::uname(&kernel);
  return {{"host", kernel.nodename},
          {"kernel", std::string(kernel.sysname) + " " + kernel.release + " " + kernel.machine},
          {"processor", name_of_processor()},
          {"processors", count_processors()},
          {"program", "verbena perf " VERBENA_VERSION},
          {"device", device.context.name()},
          {"driver_version", std::string(attributes.fw_ver)},
          {"gid", verbena::to_string(device.gid.gid)},
          {"mtu", bytes_of(device.mtu(parameters))},
          {"boot", first_line("/proc/sys/kernel/random/boot_id")},
          {"network_namespace", network_namespace()},
          {"wire_only", wants_wire_only()}};
}

// The rule of docs/one-host.md: processes of one agent use shared memory unless one of them does not want it.
// A network namespace has an agent of its own.
std::string route_between(const nlohmann::json& own, const nlohmann::json& peer) {
  if (own.at("boot") != peer.at("boot")) return "wire";
  if (own.at("wire_only").get<bool>() || peer.at("wire_only").get<bool>())
    return "wire of one host (VERBENA_LOCAL=off)";
  if (own.at("network_namespace") != peer.at("network_namespace"))
    return "wire between two network namespaces of one host";
  return "shared memory";
}

}  // namespace verbena::perf

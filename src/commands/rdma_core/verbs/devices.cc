// SPDX-License-Identifier: Apache-2.0
// ibv_devices: lists the RDMA devices and their GUIDs.
#include <endian.h>

#include "base/format.h"
#include "commands/rdma_core/common/handles.h"
#include "commands/rdma_core/common/options.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {
namespace {

void print_devices_usage(const char* program) {
  std::printf("Usage: %s             list the RDMA devices\n", program);
  std::printf("\n");
  std::printf("Options:\n");
  std::printf("      --json             print one JSON object\n");
  std::printf("  -h, --help             print a help text and exit\n");
  std::printf("\n");
  std::printf("Example:\n");
  std::printf("  %s --json\n", program);
}

void list(const DeviceList& devices, Output& output) {
  output.text("    %-16s\t   node GUID\n", "device");
  output.text("    %-16s\t----------------\n", "------");
  auto& listed = output.object()["devices"] = nlohmann::ordered_json::array();
  for (ibv_device* device : devices.all()) {
    const std::string guid = verbena::format("{:016x}", be64toh(ibv_get_device_guid(device)));
    const char* name = ibv_get_device_name(device);
    output.text("    %-16s\t%s\n", name, guid.c_str());
    listed.push_back({{"name", name}, {"node_guid", guid}});
  }
}

}  // namespace

int ibv_devices(int argc, char** argv) {
  bool json = false;
  bool help = false;
  const Parsed parsed = parse(argc, argv, {flag(0, "json", json), flag('h', "help", help)});
  if (help || parsed.next == Next::kWrong) {
    print_devices_usage(argv[0]);
    return help ? 0 : 1;
  }
  Output output(json);
  list(DeviceList(), output);
  output.finish();
  return 0;
}

}  // namespace verbena::rdma_core

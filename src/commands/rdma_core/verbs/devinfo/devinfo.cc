// SPDX-License-Identifier: Apache-2.0
// ibv_devinfo: prints attributes of RDMA devices and their ports.
#include <cerrno>
#include <memory>

#include "base/format.h"
#include "commands/rdma_core/common/device_list.h"
#include "commands/rdma_core/common/options.h"
#include "commands/rdma_core/common/output.h"
#include "commands/rdma_core/verbs/devinfo/sheet.h"

namespace verbena::rdma_core {
namespace {

// Exit statuses. Those of several devices are combined bitwise.
enum Status : int {
  kNoDevice = -1,
  kDone = 0,
  kNotOpened = 1,
  kNotQueried = 2,
  kNotClosed = 3,
  kNoSuchPort = 4
};

struct Request {
  std::string device;
  uint8_t port = 0;  // 0: all
  bool list = false;
  bool verbose = false;
  bool json = false;
  bool help = false;
};

void print_devinfo_usage(const char* program) {
  std::printf("Usage: %s             print the ca attributes\n", program);
  std::printf("\n");
  std::printf("Options:\n");
  std::printf("  -d, --ib-dev=<dev>     use IB device <dev> (default first device found)\n");
  std::printf("  -i, --ib-port=<port>   use port <port> of IB device (default all ports)\n");
  std::printf("  -l, --list             print only the IB devices names\n");
  std::printf("  -v, --verbose          print all the attributes of the IB device(s)\n");
  std::printf("      --json             print one JSON object\n");
  std::printf("      --help             print this and exit\n");
}

// Prints a longer text than ibv_devinfo's usage, for --help only.
void print_help(const char* program) {
  print_devinfo_usage(program);
  std::printf("\n");
  std::printf("MTUs and sizes are in bytes.\n");
  std::printf("\n");
  std::printf("Examples:\n");
  std::printf("  %s                    each device and its ports\n", program);
  std::printf("  %s -v -d rxe_eth0     all of one device, with its GIDs\n", program);
  std::printf("  %s -v --json\n", program);
  std::printf("\n");
  std::printf("Exit status: 0 done, 255 no such device or wrong usage, else what failed.\n");
}

int print_names(const DeviceList& devices, Output& output) {
  output.text("%zu HCA%s found:\n", devices.all().size(), devices.all().size() != 1 ? "s" : "");
  auto& listed = output.object()["devices"] = nlohmann::ordered_json::array();
  for (ibv_device* device : devices.all()) {
    output.text("\t%s\n", ibv_get_device_name(device));
    listed.push_back({{"name", ibv_get_device_name(device)}});
  }
  output.text("\n");
  output.finish();
  return kDone;
}

int print_open(const Sheet& sheet, ibv_context* context, const Request& request,
               nlohmann::ordered_json& listed) {
  ibv_device_attr_ex attributes = {};
  if (const int error = ibv_query_device_ex(context, nullptr, &attributes); error != 0) {
    complain_of(error, "Failed to query device props");
    return kNotQueried;
  }
  const uint8_t ports = attributes.orig_attr.phys_port_cnt;
  if (request.port > ports) {
    complain("Invalid port requested for device",
             verbena::format("{} has {}", ibv_get_device_name(context->device), ports));
    return kNoSuchPort;
  }
  auto json = print_device(sheet, context, attributes, request.verbose);
  json["ports"] = nlohmann::ordered_json::array();
  for (int port = 1; port <= ports; ++port) {
    if (request.port != 0 && request.port != port) continue;
    auto printed = print_port(sheet, context, static_cast<uint8_t>(port), request.verbose);
    if (printed.is_null()) return kNotQueried;
    json["ports"].push_back(std::move(printed));
  }
  listed.push_back(std::move(json));
  return kDone;
}

int print(const Sheet& sheet, ibv_device* device, const Request& request, nlohmann::ordered_json& listed) {
  ibv_context* context = ibv_open_device(device);
  if (context == nullptr) {
    complain_of(errno, "Failed to open device", ibv_get_device_name(device));
    return kNotOpened;
  }
  const int status = print_open(sheet, context, request, listed);
  if (ibv_close_device(context) != 0) {
    complain_of(errno, "Failed to close device");
    return kNotClosed;
  }
  return status;
}

int print_all(const DeviceList& devices, const Request& request, Output& output) {
  const std::string complaint = request.device.empty()
                                    ? "No IB devices found"
                                    : verbena::format("IB device '{}' wasn't found", request.device);
  const ibv_device* found = devices.find(request.device, complaint);
  if (found == nullptr) return kNoDevice;
  const Sheet sheet(output);
  auto& listed = output.object()["devices"] = nlohmann::ordered_json::array();
  int status = kDone;
  for (ibv_device* device : devices.all()) {
    const bool wanted = request.device.empty() || device == found;
    if (wanted) status |= print(sheet, device, request, listed);
  }
  if (status == kDone) output.finish();
  return status;
}

}  // namespace

int ibv_devinfo(int argc, char** argv) {
  Request request;
  bool wrong_port = false;
  const std::vector<Option> options = {text('d', "ib-dev", request.device),
                                       {'i', "ib-port", true,
                                        [&](const char* word) {
                                          const Next next =
                                              number('i', "ib-port", request.port, 1).take(word);
                                          wrong_port = next == Next::kWrong;
                                          return next;
                                        }},
                                       last_flag('l', "list", request.list),
                                       flag('v', "verbose", request.verbose),
                                       flag(0, "json", request.json),
                                       last_flag(0, "help", request.help)};
  const Parsed parsed = parse(argc, argv, options);
  if (request.help) {
    print_help(argv[0]);
    return kDone;
  }
  if (parsed.next == Next::kWrong) {
    print_devinfo_usage(argv[0]);
    return wrong_port ? 1 : kNoDevice;
  }
  const DeviceList devices;
  if (!devices.listed()) return kNoDevice;
  Output output(request.json || (request.list && asks_for_json(argc, argv)));
  return request.list ? print_names(devices, output) : print_all(devices, request, output);
}

}  // namespace verbena::rdma_core

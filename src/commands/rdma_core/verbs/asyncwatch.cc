// SPDX-License-Identifier: Apache-2.0
// ibv_asyncwatch: prints the asynchronous events of a device.
#include <cerrno>
#include <cstdio>
#include <memory>
#include <span>

#include "base/format.h"
#include "commands/rdma_core/common/device_list.h"
#include "commands/rdma_core/common/options.h"
#include "commands/rdma_core/common/output.h"

namespace verbena::rdma_core {
namespace {

struct EventName {
  ibv_event_type type;
  const char* text;
};

// The events that do not belong to a queue of the process.
constexpr EventName kNames[] = {{IBV_EVENT_DEVICE_FATAL, "IBV_EVENT_DEVICE_FATAL"},
                                {IBV_EVENT_PORT_ACTIVE, "IBV_EVENT_PORT_ACTIVE"},
                                {IBV_EVENT_PORT_ERR, "IBV_EVENT_PORT_ERR"},
                                {IBV_EVENT_LID_CHANGE, "IBV_EVENT_LID_CHANGE"},
                                {IBV_EVENT_PKEY_CHANGE, "IBV_EVENT_PKEY_CHANGE"},
                                {IBV_EVENT_SM_CHANGE, "IBV_EVENT_SM_CHANGE"},
                                {IBV_EVENT_CLIENT_REREGISTER, "IBV_EVENT_CLIENT_REREGISTER"},
                                {IBV_EVENT_GID_CHANGE, "IBV_EVENT_GID_CHANGE"}};

const char* name_of(ibv_event_type type) {
  for (const EventName& each : kNames) {
    if (each.type == type) return each.text;
  }
  return "unexpected";
}

void print_asyncwatch_usage(const char* program) {
  std::printf("Usage:\n");
  std::printf("  %s            start an asyncwatch process\n", program);
  std::printf("\n");
  std::printf("Options:\n");
  std::printf("  -d, --ib-dev=<dev>     use IB device <dev> (default first device found)\n");
  std::printf("      --json             print a JSON object for each event, a line each\n");
  std::printf("  -h, --help             print a help text and exit\n");
}

// Prints one line, flushed at once by line buffering.
void print_event(const ibv_async_event& event, const char* device, bool json) {
  const char* name = name_of(event.event_type);
  const int port = event.element.port_num;
  if (!json) {
    std::printf("  event_type %s (%d), port %d\n", name, event.event_type, port);
    return;
  }
  const nlohmann::ordered_json object = {{"device", device},
                                         {"event_type", name},
                                         {"number", static_cast<int>(event.event_type)},
                                         {"port", port}};
  std::puts(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

// Prints events until the device is gone or the output is closed.
int watch(ibv_context* context, const char* device, bool json) {
  if (!json) std::printf("%s: async event FD %d\n", device, context->async_fd);
  ibv_async_event event = {};
  while (ibv_get_async_event(context, &event) == 0) {
    print_event(event, device, json);
    ibv_ack_async_event(&event);
    if (std::ferror(stdout) != 0) return 1;
  }
  complain_of(errno, "Couldn't get an async event",
              verbena::format("{} is gone, if it says nothing else", device));
  return 1;
}

}  // namespace

int ibv_asyncwatch(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // line buffering for pipes, too
  std::string wanted;
  bool json = false;
  const auto help = [](const char*) { return Next::kStop; };
  const Parsed parsed =
      parse(argc, argv, {text('d', "ib-dev", wanted), {'h', "help", false, help}, flag(0, "json", json)});
  if (parsed.next != Next::kGoOn) {
    print_asyncwatch_usage(argv[0]);
    return parsed.next == Next::kStop ? 0 : 1;
  }
  const DeviceList devices;
  if (!devices.listed()) return 1;
  ibv_device* device = devices.find(wanted, verbena::format("IB device {} not found", wanted));
  if (device == nullptr) return 1;
  const char* name = ibv_get_device_name(device);
  const std::unique_ptr<ibv_context, int (*)(ibv_context*)> context(ibv_open_device(device),
                                                                    ibv_close_device);
  if (!context) {
    complain_of(errno, verbena::format("Couldn't get context for {}", name));
    return 1;
  }
  return watch(context.get(), name, json);
}

}  // namespace verbena::rdma_core

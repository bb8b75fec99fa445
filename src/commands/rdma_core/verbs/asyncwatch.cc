// SPDX-License-Identifier: Apache-2.0
// ibv_asyncwatch: prints the asynchronous events of a device.
#include <cerrno>
#include <cstdio>

#include "base/format.h"
#include "commands/rdma_core/common/handles.h"
#include "commands/rdma_core/common/options.h"

namespace verbena::rdma_core {
namespace {

// The events that do not belong to a queue of the process.
constexpr Name kNames[] = {{IBV_EVENT_DEVICE_FATAL, "IBV_EVENT_DEVICE_FATAL"},
                           {IBV_EVENT_PORT_ACTIVE, "IBV_EVENT_PORT_ACTIVE"},
                           {IBV_EVENT_PORT_ERR, "IBV_EVENT_PORT_ERR"},
                           {IBV_EVENT_LID_CHANGE, "IBV_EVENT_LID_CHANGE"},
                           {IBV_EVENT_PKEY_CHANGE, "IBV_EVENT_PKEY_CHANGE"},
                           {IBV_EVENT_SM_CHANGE, "IBV_EVENT_SM_CHANGE"},
                           {IBV_EVENT_CLIENT_REREGISTER, "IBV_EVENT_CLIENT_REREGISTER"},
                           {IBV_EVENT_GID_CHANGE, "IBV_EVENT_GID_CHANGE"}};

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
  const char* name = name_of(kNames, event.event_type, "unexpected");
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
[[noreturn]] void watch(ibv_context* context, const char* device, bool json) {
  if (!json) std::printf("%s: async event FD %d\n", device, context->async_fd);
  ibv_async_event event = {};
  while (ibv_get_async_event(context, &event) == 0) {
    print_event(event, device, json);
    ibv_ack_async_event(&event);
    if (std::ferror(stdout) != 0) throw Failure();
  }
  fail_of(errno, "Couldn't get an async event",
          verbena::format("{} is gone, if it says nothing else", device));
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
  ibv_device* device = devices.find(wanted, verbena::format("IB device {} not found", wanted));
  const char* name = ibv_get_device_name(device);
  Handle<ibv_context, ibv_close_device> context;
  take(context, ibv_open_device(device), verbena::format("Couldn't get context for {}", name));
  watch(context.get(), name, json);
}

}  // namespace verbena::rdma_core

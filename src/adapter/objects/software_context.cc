// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/software_context.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "adapter/memory/guarded.h"
#include "adapter/objects/data_path.h"
#include "adapter/objects/software_adapter.h"
#include "base/failed_call.h"
#include "base/format.h"
#include "base/only_one.h"

namespace verbena::adapter {

using control::Link;

Result<std::unique_ptr<provider::Context>> SoftwareContext::open(const Link& link, uint64_t guid) {
  auto file = CommandFile::create(link.name);
  if (!file) return tl::unexpected(file.error());
  return make(link, guid, std::move(*file));
}

Result<std::unique_ptr<provider::Context>> SoftwareContext::import(const Link& link, uint64_t guid,
                                                                   std::shared_ptr<CommandFile> file,
                                                                   int cmd_fd) {
  auto context = make(link, guid, std::move(file));
  if (!context) return tl::unexpected(context.error());
  (*context)->imported_fd_ = OwnFd::with_known_number(UniqueFd(cmd_fd));
  (*context)->abi().context.cmd_fd = cmd_fd;
  return std::unique_ptr<provider::Context>(std::move(*context));
}

Result<std::unique_ptr<SoftwareContext>> SoftwareContext::make(const Link& link, uint64_t guid,
                                                               std::shared_ptr<CommandFile> file) {
  auto device = OpenDevice::open(link.device_index, guid, std::move(file));
  if (!device) return tl::unexpected(device.error());
  memory::install_fault_guard();
  std::unique_ptr<SoftwareContext> context(new SoftwareContext(std::move(*device)));
  context->device_->command_file().join(*context);
  return context;
}

SoftwareContext::SoftwareContext(std::unique_ptr<OpenDevice> device)
    : device_(std::move(device)),
      queue_pairs_(*device_),
      port_events_(kPortEvents, {.element = {.port_num = 1}, .event_type = {}}) {
  device_->engine()->subscribe(*this);
  ibv_context& abi_context = abi().context;
  device_->set_context(abi_context);
  device_->show_context();
  abi_context.async_fd = device_->events().fd();
  // Nothing is ever signalled by it, but programs poll, dup and keep it as they would /dev/infiniband's.
  abi_context.cmd_fd = device_->command_file().device_memory()->fd();
  abi_context.num_comp_vectors = kCompletionVectors;
  fill_data_path(abi_context.ops);
}

SoftwareContext::~SoftwareContext() {
  device_->command_file().leave(*this);
  device_->engine()->unsubscribe(*this);
  if (!device_->inherited()) port_events_.withdraw(device_->events());
}

// ---- the link

void SoftwareContext::on_links(const std::vector<control::Link>& before,
                               const std::vector<control::Link>& now) {
  const auto find = [&](const std::vector<control::Link>& links) -> const control::Link* {
    const auto at = std::ranges::find(links, device_->index(), &control::Link::device_index);
    return at == links.end() ? nullptr : &*at;
  };
  const control::Link* was = find(before);
  const control::Link* is = find(now);
  if (was == nullptr) return;
  if (is == nullptr) {
    on_device_gone();
    return;
  }
  if (device_->is_up(*was) != device_->is_up(*is)) {
    port_events_.post(device_->is_up(*is) ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, device_->events());
  }
  if (was->gids != is->gids) port_events_.post(IBV_EVENT_GID_CHANGE, device_->events());
}

void SoftwareContext::on_device_gone() {
  if (!device_->become_gone()) return;
  queue_pairs_.fail_all();
  port_events_.post(IBV_EVENT_DEVICE_FATAL, device_->events());
  device_->events().end();
}

int SoftwareContext::say_busy_object(const char* kind, const void* object, const std::string& users) {
  concerning(EBUSY, "{} {}", kind, verbena::ptr(object));
  return users.empty() ? EBUSY : because(EBUSY, "{} use it: destroy what uses it first", users);
}

// ---- queue pairs

int SoftwareContext::get_async_event(ibv_async_event* event) {
  const auto taken = device_->events().take([&](queues::EventSource& source) {
    const AsyncEvent& found = AsyncEvent::of(source);
    ++*found.taken;
    *event = found.event;
  });
  return taken ? 0 : taken.error().code;
}

// For an event of the port, nothing happens.
void SoftwareContext::ack_async_event(ibv_async_event* acknowledged) {
  const ibv_async_event& event = *acknowledged;
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return Cq::of(event.element.cq).async_events.acknowledge();
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return Qp::of(event.element.qp).async_events.acknowledge();
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return Srq::of(event.element.srq).async_events.acknowledge();
    case IBV_EVENT_WQ_FATAL:
      return Wq::of(event.element.wq).async_events.acknowledge();
    default:  // an event of the port: no call waits for its acknowledgement
      return;
  }
}

// ---- imports

// Imports objects of other contexts that share the command file. To the application each import is an object
// of its own; it shares the state behind it with the others. The application must not use any of them after
// one was destroyed (ibv_import_mr(3)); a program that does gets errors.
Result<ibv_pd*> SoftwareContext::import_pd(uint32_t handle) {
  CommandFile& file = device_->command_file();
  auto state = file.find_in_contexts([&](SoftwareContext& context) {
    return context.domains_.find_by_handle(handle, [](Pd& pd) { return pd.state; });
  });
  if (state == nullptr) return fail(file.is_foreign() ? EOPNOTSUPP : ENOENT);
  auto pd = std::make_unique<Pd>(*device_, std::move(state));
  pd->handle = handle;
  return domains_.add(std::move(pd));
}

Result<ibv_mr*> SoftwareContext::import_mr(ibv_pd* pd, uint32_t handle) {
  CommandFile& file = device_->command_file();
  auto registration = file.find_in_contexts([&](SoftwareContext& context) {
    return context.regions_.find_by_handle(handle, [](Mr& mr) { return mr.registration; });
  });
  if (registration == nullptr) return fail(file.is_foreign() ? EOPNOTSUPP : ENOENT);
  auto mr = std::make_unique<Mr>(*device_);
  mr->imported = true;
  return add_mr(std::move(mr), std::move(registration), pd, nullptr, handle);
}

Result<ibv_dm*> SoftwareContext::import_dm(uint32_t handle) {
  auto memory = device_->command_file().find_in_contexts([&](SoftwareContext& context) {
    return context.device_memories_.find_by_handle(handle, [](Dm& dm) { return dm.memory; });
  });
  return memory == nullptr ? import_foreign_dm(handle) : add_dm(std::move(memory), handle);
}

namespace {

// A device for one of the agent's links.
class SoftwareDevice : public provider::Device {
 public:
  explicit SoftwareDevice(const control::Link& link) : link_(link) {
    info_.name = link.name;
    info_.dev_name = verbena::format("uverbs{}", link.device_index);
    info_.dev_path = verbena::format("/sys/class/infiniband_verbs/{}", info_.dev_name);
    info_.ibdev_path = verbena::format("/sys/class/infiniband/{}", info_.name);
    const auto guid = control::guid_of(link);
    std::memcpy(&info_.guid, guid.data(), sizeof info_.guid);
    info_.index = static_cast<int>(link.device_index);
  }

  const provider::DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<provider::Context>> open() override {
    return SoftwareContext::open(link_, info_.guid);
  }

 private:
  const control::Link link_;
  provider::DeviceInfo info_;
};

class SoftwareAdapter : public provider::Provider {
 public:
  Result<std::vector<std::shared_ptr<provider::Device>>> devices() override {
    auto links = engine::Engine::list_links();
    if (!links) return tl::unexpected(links.error());
    std::vector<std::shared_ptr<provider::Device>> devices;
    devices.reserve(links->size());
    for (const control::Link& link : *links) devices.push_back(std::make_shared<SoftwareDevice>(link));
    return devices;
  }

  Result<Imported> import(int cmd_fd) override {
    auto file = CommandFile::import(cmd_fd);
    if (!file) return tl::unexpected(file.error());
    auto links = engine::Engine::list_links();
    if (!links) return tl::unexpected(links.error());
    for (const control::Link& link : *links) {
      if (link.name != (*file)->device_memory()->device()) continue;
      auto device = std::make_shared<SoftwareDevice>(link);
      auto context = SoftwareContext::import(link, device->info().guid, *file, cmd_fd);
      if (!context) return tl::unexpected(context.error());
      return Imported{std::move(device), std::move(*context)};
    }
    return fail(ENODEV);
  }
};

}  // namespace

provider::Provider& software_adapter() {
  static constinit OnlyOne<SoftwareAdapter> adapter;
  return adapter.get();
}

}  // namespace verbena::adapter

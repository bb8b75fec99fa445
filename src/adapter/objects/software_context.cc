// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/software_context.h"

#include <algorithm>
#include <cerrno>

#include "adapter/memory/guarded.h"
#include "adapter/objects/data_path.h"
#include "adapter/objects/qp.h"
#include "base/failed_call.h"

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
    const auto at = std::find_if(links.begin(), links.end(),
                                 [&](const control::Link& l) { return l.device_index == device_->index(); });
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

void SoftwareContext::settle() {
  device_->engine()->settle();
}

int SoftwareContext::say_busy_object(const char* kind, const void* object, const std::string& users) {
  concerning(EBUSY, "{} {}", kind, verbena::ptr(object));
  return users.empty() ? EBUSY : because(EBUSY, "{} use it: destroy what uses it first", users);
}

// ---- queue pairs

Result<ibv_qp*> SoftwareContext::create_qp(ibv_qp_init_attr_ex* attr) {
  return queue_pairs_.create(*attr);
}

Result<ibv_qp*> SoftwareContext::open_qp(ibv_qp_open_attr* attr) {
  return queue_pairs_.open(*attr);
}

int SoftwareContext::modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return concerning_qp(Qp::of(qp), queue_pairs_.modify(qp, *attr, mask));
}

int SoftwareContext::query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
  return concerning_qp(Qp::of(qp), queue_pairs_.query(qp, *attr, mask, *init_attr));
}

int SoftwareContext::destroy_qp(ibv_qp* qp) {
  const int error = queue_pairs_.destroy(qp);
  return error == 0 ? 0 : concerning_qp(Qp::of(qp), error);
}

// Null for a QP that was not created for ibv_wr_* (ibv_create_qp_ex(3)).
ibv_qp_ex* SoftwareContext::qp_to_qp_ex(ibv_qp* qp) {
  return Qp::of(qp).extended ? &Qp::of(qp) : nullptr;
}

int SoftwareContext::modify_qp_rate_limit(ibv_qp* qp, const ibv_qp_rate_limit_attr* attr) {
  return concerning_qp(Qp::of(qp), queue_pairs_.modify_rate_limit(qp, *attr));
}

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

void SoftwareContext::unimport_pd(ibv_pd* pd) {
  domains_.destroy(Pd::of(pd));
}

void SoftwareContext::unimport_mr(ibv_mr* mr) {
  regions_.destroy(Mr::of(mr));
}

void SoftwareContext::unimport_dm(ibv_dm* dm) {
  device_memories_.destroy(Dm::of(dm));
}

}  // namespace verbena::adapter

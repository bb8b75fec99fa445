// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/software_context.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "adapter/memory/guarded.h"
#include "adapter/objects/async_events.h"
#include "adapter/objects/data_path.h"
#include "adapter/objects/limits.h"
#include "adapter/objects/multicast.h"
#include "adapter/objects/objects.h"
#include "adapter/objects/raw_queue_pairs.h"
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
      link_watch_(*device_, [this] { queue_pairs_.fail_all(); }) {
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
}

void SoftwareContext::settle() {
  device_->engine()->settle();
}

int SoftwareContext::say_busy_object(const char* kind, const void* object, const std::string& users) {
  concerning(EBUSY, "{} {}", kind, verbena::ptr(object));
  return users.empty() ? EBUSY : because(EBUSY, "{} use it: destroy what uses it first", users);
}

int SoftwareContext::get_async_event(ibv_async_event* event) {
  return adapter::get_async_event(device_->events(), event);
}

void SoftwareContext::ack_async_event(ibv_async_event* event) {
  acknowledge_async_event(*event);
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

int SoftwareContext::attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return concerning_qp(Qp::of(qp), attach_to_group(Qp::of(qp), *gid, lid));
}

int SoftwareContext::detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return concerning_qp(Qp::of(qp), detach_from_group(Qp::of(qp), *gid, lid));
}

int SoftwareContext::modify_qp_rate_limit(ibv_qp* qp, const ibv_qp_rate_limit_attr* attr) {
  return concerning_qp(Qp::of(qp), queue_pairs_.modify_rate_limit(qp, *attr));
}

}  // namespace verbena::adapter

// SPDX-License-Identifier: Apache-2.0
#include "libraries/librdmacm/devices.h"

#include <cstdlib>

#include <fcntl.h>

#include "libraries/librdmacm/calls.h"

namespace verbena::rdmacm {
namespace {

// Owns the result of ibv_get_device_list(3). Devices that were opened stay open when the list is freed.
class DeviceList {
 public:
  DeviceList() : list_(ibv_get_device_list(&count_)) {}
  ~DeviceList() {
    if (list_ != nullptr) ibv_free_device_list(list_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ibv_device** begin() const { return list_; }
  ibv_device** end() const { return list_ != nullptr ? list_ + count_ : list_; }
  bool empty() const { return list_ == nullptr || count_ == 0; }

 private:
  int count_ = 0;
  ibv_device** list_;
};

}  // namespace

Result<ibv_pd*> Device::use() {
  const std::lock_guard lock(mutex);
  if (domain == nullptr) domain = ibv_alloc_pd(context);
  if (domain == nullptr) return fail(errno);
  ++users;
  return domain;
}

void Device::leave() {
  const std::lock_guard lock(mutex);
  if (--users != 0) return;
  // If the application left objects in a domain, the domain stays for the next user.
  if (xrc_domain != nullptr && ibv_close_xrcd(xrc_domain) == 0) xrc_domain = nullptr;
  if (domain != nullptr && ibv_dealloc_pd(domain) == 0) domain = nullptr;
}

Result<ibv_xrcd*> Device::shared_xrc_domain() {
  const std::lock_guard lock(mutex);
  if (xrc_domain != nullptr) return xrc_domain;
  ibv_xrcd_init_attr attributes{};
  attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attributes.fd = -1;
  attributes.oflags = O_CREAT;
  xrc_domain = ibv_open_xrcd(context, &attributes);
  if (xrc_domain == nullptr) return fail(errno);
  return xrc_domain;
}

Result<void> Devices::require_any() {
  const std::lock_guard lock(mutex_);
  if (any_) return {};
  if (DeviceList().empty()) return fail(ENODEV);
  any_ = true;
  return {};
}

Result<std::shared_ptr<Device>> Devices::find(const std::string& name, uint32_t index) {
  const std::lock_guard lock(mutex_);
  const std::pair key(name, index);
  if (const auto known = found_.find(key); known != found_.end()) return known->second;
  const DeviceList list;
  ibv_device* same_name = nullptr;
  for (ibv_device* device : list) {
    if (name != ibv_get_device_name(device)) continue;
    same_name = device;
    if (ibv_get_device_index(device) == static_cast<int>(index)) break;
  }
  if (same_name == nullptr) return fail(ENODEV);
  auto opened = open(same_name);
  if (opened) found_.emplace(key, *opened);
  return opened;
}

Result<std::vector<std::shared_ptr<Device>>> Devices::all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Device>> devices;
  const DeviceList list;
  if (list.empty()) return fail(ENODEV);
  for (ibv_device* device : list) {
    if (auto opened = open(device)) devices.push_back(*opened);
  }
  std::sort(devices.begin(), devices.end(), [](auto& a, auto& b) { return a->index < b->index; });
  return devices;
}

Result<std::shared_ptr<Device>> Devices::open(ibv_device* device) {
  if (const auto found = opened_.find(device); found != opened_.end()) return found->second;
  auto opened = std::make_shared<Device>();
  opened->context = ibv_open_device(device);
  if (opened->context == nullptr)
    return fail(
        because(ENODEV, "device {} cannot be opened: {}", ibv_get_device_name(device), std::strerror(errno)));
  ibv_device_attr attributes{};
  if (const int error = ibv_query_device(opened->context, &attributes)) {
    ibv_close_device(opened->context);
    return fail(error);
  }
  opened->index = ibv_get_device_index(device);
  opened->max_initiator_depth = static_cast<uint8_t>(std::min(attributes.max_qp_init_rd_atom, 255));
  opened->max_responder_resources = static_cast<uint8_t>(std::min(attributes.max_qp_rd_atom, 255));
  opened_.emplace(device, opened);
  return opened;
}

}  // namespace verbena::rdmacm

using verbena::rdmacm::Process;

VERBENA_ABI ibv_context** rdma_get_devices(int* count) {
  if (count != nullptr) *count = 0;
  return verbena::rdmacm::answer_pointer([&]() -> verbena::Result<ibv_context**> {
    auto devices = Process::current().devices.all();
    if (!devices) return verbena::fail(devices.error().code);
    // calloc(), because rdma_free_devices() must not depend on a replaced `new`.
    auto** list = static_cast<ibv_context**>(std::calloc(devices->size() + 1, sizeof(ibv_context*)));
    if (list == nullptr) return verbena::fail(ENOMEM);
    for (size_t i = 0; i < devices->size(); ++i) list[i] = (*devices)[i]->context;
    if (count != nullptr) *count = static_cast<int>(devices->size());
    return list;
  });
}

VERBENA_ABI void rdma_free_devices(ibv_context** list) {
  std::free(list);
}

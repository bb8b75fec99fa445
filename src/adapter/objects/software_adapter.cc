// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/software_adapter.h"

#include <cstring>

#include "adapter/objects/software_context.h"
#include "base/format.h"
#include "base/only_one.h"

namespace verbena::adapter {
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "control/link.h"
#include "transport/counters.h"

namespace verbena::agent {

// A file or symbolic link of a folder to be.
struct FolderEntry {
  std::string path;  // relative to the folder
  std::string text;  // the content, or where the link leads
  bool is_link = false;
};
using Folder = std::vector<FolderEntry>;

// What the kernel shows of an RDMA device in sysfs, in the kernel's formats (drivers/infiniband/core/sysfs.c
// and sw/rxe; Documentation/ABI/stable/sysfs-class-infiniband). Pure.

// /sys/class/infiniband/<link>
Folder device_folder(const control::Link& link, std::string_view version);
// /sys/class/infiniband_verbs/<uverbs_name(link)>
Folder uverbs_folder(const control::Link& link);
// As in ibv_device::dev_name.
std::string uverbs_name(const control::Link& link);

// A file of ports/1 that shows the sum of a counter over the device's QPs.
struct CounterFile {
  std::string_view path;  // relative to the device's folder
  transport::QpCounter counter;
  uint32_t unit;  // the number is divided by this
};
extern const std::array<CounterFile, 14> kCounterFiles;

}  // namespace verbena::agent

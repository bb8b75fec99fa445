// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "control/model/link.h"

namespace verbena::agent {

// A file or symbolic link of a folder to be.
struct FolderEntry {
  std::string path;  // relative to the folder
  std::string text;  // the content, or where the link leads
  bool is_link = false;
};
using Folder = std::vector<FolderEntry>;

// The files of RDMA devices in sysfs, in the kernel's formats (drivers/infiniband/core/sysfs.c
// and sw/rxe; Documentation/ABI/stable/sysfs-class-infiniband). Pure.

// The device behind a link: the hardware, as it would be under /sys/devices, and in it those that a class
// has: infiniband/<link>, infiniband_verbs/<uverbs_name>, infiniband_mad/<umad_name> and <issm_name>. It lies
// two folders below /sys, as links in it lead to /sys/class.
Folder device_folder(const control::Link& link, std::string_view version);
// /sys/devices/virtual/misc/rdma_cm
Folder connection_manager_folder();

// As in ibv_device::dev_name.
std::string uverbs_name(const control::Link& link);
std::string umad_name(const control::Link& link);
std::string issm_name(const control::Link& link);

}  // namespace verbena::agent

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "control/model/link.h"

namespace verbena::agent {

// A file or symbolic link to be created in a new folder.
struct FolderEntry {
  std::string path;  // relative to the folder
  std::string text;  // the content, or the link's target
  bool is_link = false;
};
using Folder = std::vector<FolderEntry>;

// The functions below return the sysfs files of RDMA devices, in the kernel's formats
// (drivers/infiniband/core/sysfs.c and sw/rxe; Documentation/ABI/stable/sysfs-class-infiniband). They do no
// I/O.

// Returns the folder of a link's hardware device, as under /sys/devices. The folder contains the class
// devices infiniband/<link>, infiniband_verbs/<uverbs_name>, infiniband_mad/<umad_name> and
// infiniband_mad/<issm_name>. The folder must be two levels below /sys, because its symbolic links lead to
// /sys/class.
Folder device_folder(const control::Link& link, std::string_view version);
// Returns the folder /sys/devices/virtual/misc/rdma_cm.
Folder connection_manager_folder();

// Return the names of the link's character devices, as in ibv_device::dev_name.
std::string uverbs_name(const control::Link& link);
std::string umad_name(const control::Link& link);
std::string issm_name(const control::Link& link);

}  // namespace verbena::agent

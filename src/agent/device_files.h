// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent_client/link.h"

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
Folder device_folder(const agent_client::Link& link, std::string_view version);
// /sys/class/infiniband_verbs/<uverbs_name(link)>
Folder uverbs_folder(const agent_client::Link& link);
// /sys/class/infiniband_mad/<umad_name(link)> and /sys/class/infiniband_mad/<issm_name(link)>
Folder umad_folder(const agent_client::Link& link);
Folder issm_folder(const agent_client::Link& link);
std::string umad_name(const agent_client::Link& link);
std::string issm_name(const agent_client::Link& link);
// As in ibv_device::dev_name.
std::string uverbs_name(const agent_client::Link& link);

}  // namespace verbena::agent

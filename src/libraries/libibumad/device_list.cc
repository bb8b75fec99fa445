// SPDX-License-Identifier: Apache-2.0
// umad_get_ca_device_list(3) and related functions.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <infiniband/umad.h>

#include "base/c_abi.h"
#include "libraries/libibumad/adapters.h"

namespace {

// Allocates a node with its name behind it, in one piece. Null if there is no memory.
umad_device_node* make_node(const std::string& name) {
  void* const memory = std::calloc(1, sizeof(umad_device_node) + name.size() + 1);
  if (memory == nullptr) return nullptr;
  auto* const node = static_cast<umad_device_node*>(memory);
  char* const text = reinterpret_cast<char*>(node + 1);
  std::memcpy(text, name.c_str(), name.size() + 1);
  node->ca_name = text;
  return node;
}

void join(const std::vector<umad_device_node*>& nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i]->next = i + 1 < nodes.size() ? nodes[i + 1] : nullptr;
}

}  // namespace

VERBENA_ABI void umad_free_ca_device_list(umad_device_node* head) {
  while (head != nullptr) {
    umad_device_node* const next = head->next;
    std::free(head);
    head = next;
  }
}

VERBENA_ABI umad_device_node* umad_get_ca_device_list() {
  umad_device_node* head = nullptr;
  const int failed = verbena::without_exceptions([&] {
    const auto links = verbena::umad::adapters();
    if (!links) return 0;
    std::vector<umad_device_node*> nodes;
    nodes.reserve(links->size());
    for (const auto& link : *links) {
      umad_device_node* const node = make_node(link.name);
      if (node == nullptr) {
        for (umad_device_node* made : nodes) std::free(made);
        return ENOMEM;
      }
      nodes.push_back(node);
    }
    join(nodes);
    if (!nodes.empty()) head = nodes.front();
    return 0;
  });
  errno = failed;
  return head;
}

// EINVAL: `size` is not the list's length.
VERBENA_ABI int umad_sort_ca_device_list(umad_device_node** head, size_t size) {
  return verbena::without_exceptions([&] {
    std::vector<umad_device_node*> nodes;
    for (umad_device_node* node = *head; node != nullptr; node = node->next) nodes.push_back(node);
    if (size == 0) size = nodes.size();
    if (size < 2) return 0;
    if (size != nodes.size()) return EINVAL;
    std::ranges::stable_sort(nodes, [](const umad_device_node* one, const umad_device_node* other) {
      return std::strcmp(one->ca_name, other->ca_name) < 0;
    });
    join(nodes);
    *head = nodes.front();
    return 0;
  });
}

// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/client_identifiers.h"

#include <cerrno>
#include <utility>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "agent/cm/client.h"
#include "agent/cm/refusals.h"

namespace verbena::agent {
namespace {

// Returns the QP type of an identifier as the kernel's ucma_get_qp_type() does; 0: none.
uint8_t qp_type_of(const protocol::CmCreateRequest& request) {
  switch (request.port_space) {
    case RDMA_PS_TCP:
      return IBV_QPT_RC;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      return IBV_QPT_UD;
    case RDMA_PS_IB:
      break;
    default:
      return 0;
  }
  for (const int type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV}) {
    if (request.qp_type == type) return request.qp_type;
  }
  return 0;
}

}  // namespace

ClientIdentifiers::~ClientIdentifiers() {
  clear(ids_.size());
}

size_t ClientIdentifiers::clear(size_t most) {
  size_t cleared = 0;
  for (; cleared < most && !ids_.empty(); ++cleared) {
    const auto next = ids_.begin();
    say_farewell(*next->second);
    discard(*next->second);
    ids_.erase(next);
  }
  return cleared;
}

// Disconnects an XRC target whose process has died. destroy() tells the peer of an XRC target nothing,
// because other processes may have the target open.
void ClientIdentifiers::say_farewell(CmIdentifier& id) {
  if (id.qp_type != IBV_QPT_XRC_RECV || id.connection == 0) return;
  [[maybe_unused]] const auto said = service_.manager().disconnect(id.connection, {}, MonotonicClock::now());
}

CmIdentifier* ClientIdentifiers::find(uint32_t number) {
  const auto found = ids_.find(number);
  return found == ids_.end() ? nullptr : found->second.get();
}

control::AdminResult<CmIdentifier*> ClientIdentifiers::make(const protocol::CmCreateRequest& request) {
  const bool is_own = request.id != 0 && (request.id & protocol::kCmAgentsNumber) == 0;
  if (!is_own || find(request.id) != nullptr) return refuse(EINVAL, "not a new number of the program's");
  if (channels_.find(request.channel) == nullptr) return refuse(ENOENT, "no such channel");
  const uint8_t qp_type = qp_type_of(request);
  if (qp_type == 0) return refuse(EINVAL, "no such port space, or not with this type of QP");
  if (!has_room()) return refuse(ENOMEM, "too many identifiers");
  auto id = std::make_unique<CmIdentifier>();
  id->client = &client_;
  id->owner = &client_;
  id->user = client_.user();
  id->number = request.id;
  id->channel = request.channel;
  id->port_space = request.port_space;
  id->qp_type = qp_type;
  id->starting_psn = static_cast<uint32_t>(service_.random().below(1u << 24));
  return &keep(std::move(id));
}

CmIdentifier& ClientIdentifiers::add(std::unique_ptr<CmIdentifier> request, const CmIdentifier& listener) {
  do {  // after two billion requests the numbers start again
    request->number = protocol::kCmAgentsNumber | next_agents_number_++;
  } while (find(request->number) != nullptr);
  request->channel = listener.channel;
  return keep(std::move(request));
}

// REQUIRES: its channel exists, and its number is new
CmIdentifier& ClientIdentifiers::keep(std::unique_ptr<CmIdentifier> id) {
  limits_.take_identifier();
  ++channels_.find(id->channel)->identifiers;
  if (id->listed_number == 0) id->listed_number = service_.next_listed_number();
  client_.recount(*id);
  return *(ids_[id->number] = std::move(id));
}

void ClientIdentifiers::erase(CmIdentifier& id) {
  const uint32_t number = id.number;
  discard(id);
  ids_.erase(number);
}

uint32_t ClientIdentifiers::erase_some_of(uint32_t channel, uint32_t from, size_t most) {
  auto entry = ids_.lower_bound(from);
  for (size_t i = 0; i < most && entry != ids_.end(); ++i) {
    if (entry->second->channel != channel) {
      ++entry;
      continue;
    }
    discard(*entry->second);
    entry = ids_.erase(entry);
  }
  return entry != ids_.end() ? entry->first : 0;
}

void ClientIdentifiers::discard(CmIdentifier& id) {
  if (id.resolving != 0) service_.neighbours().cancel(id.resolving);
  service_.release_port(id);
  service_.release_connection(id);
  if (id.connection != 0) {
    [[maybe_unused]] const auto destroyed = service_.manager().destroy(id.connection, MonotonicClock::now());
  }
  id.connection = 0;
  if (EventChannel* channel = channels_.find(id.channel)) --channel->identifiers;
  client_.recount(id, false);
  limits_.give_back_identifier();
  limits_.give_back_groups(id.groups.size());
}

}  // namespace verbena::agent

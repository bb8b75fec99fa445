// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/client_channels.h"

#include <cerrno>
#include <utility>

#include <sys/socket.h>

#include "agent/cm/refusals.h"

namespace verbena::agent {
namespace {

// Uses only calls that wait for no kind of file.
bool is_seqpacket(int socket) {
  int domain = 0;
  socklen_t length = sizeof domain;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX) return false;
  int type = 0;
  length = sizeof type;
  return ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

}  // namespace

ClientChannels::~ClientChannels() {
  limits_.give_back_channels(channels_.size());
}

control::AdminResult<void> ClientChannels::open(const protocol::CmChannelRequest& request,
                                                ClientFile events) {
  if (channels_.contains(request.channel)) return refuse(EEXIST, "the channel is open already");
  if (!limits_.allows_channel(channels_.size())) return refuse(EMFILE, "too many event channels");
  if (!events || !is_seqpacket(events.get())) return refuse(EINVAL, "without a SOCK_SEQPACKET socket");
  const EventChannel::Tallies waiting{waiting_events_, limits_.waiting_events()};
  channels_[request.channel] =
      std::make_unique<EventChannel>(loop_, host_.user(), std::move(events), request.generation, waiting);
  limits_.take_channel();
  return {};
}

void ClientChannels::close(uint32_t number) {
  channels_.erase(channels_.find(number));  // `number` may refer to the key in the map
  limits_.give_back_channels(1);
}

size_t ClientChannels::clear(size_t most) {
  size_t cleared = 0;
  while (cleared < most && !channels_.empty()) {
    const auto& [number, channel] = *channels_.begin();
    cleared += channel->drop_some(most - cleared);
    if (cleared == most) break;
    close(number);
    ++cleared;
  }
  return cleared;
}

EventChannel* ClientChannels::find(uint32_t number) {
  const auto found = channels_.find(number);
  return found == channels_.end() ? nullptr : found->second.get();
}

uint64_t ClientChannels::send(CmIdentifier& id, const protocol::CmEvent& event, const CmIdentifier& about) {
  EventChannel* channel = find(id.channel);
  if (channel == nullptr || hung_up_) return 0;
  trace_->told(about, event);
  ++id.events_sent;
  const uint64_t number = channel->send(event);
  if (!limits_.allow_waiting_events(waiting_events_)) {
    hung_up_ = true;
    host_.hang_up();
  }
  return number;
}

}  // namespace verbena::agent

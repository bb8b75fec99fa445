// SPDX-License-Identifier: Apache-2.0
#include "agent/cm/client_parts.h"

#include <infiniband/verbs.h>
#include <linux/sockios.h>
#include <rdma/rdma_cma.h>
#include <sys/ioctl.h>

#include "agent/cm/client.h"
#include "base/socket_option.h"
#include "control/model/message_socket.h"

namespace verbena::agent {

namespace {

using control::refuse;

// Number of events sent per piece of work. A program that reads as fast as the agent sends may have 131,072
// of them.
constexpr int kAtOnce = 16;

// Returns the bytes of unread messages in the socket, as the kernel counts them (unix(7)); -1: unknown.
int unread_bytes(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 ? bytes : -1;
}

// Uses only calls that wait for no kind of file.
bool is_seqpacket(int socket) {
  int domain = 0;
  socklen_t length = sizeof domain;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX) return false;
  int type = 0;
  length = sizeof type;
  return ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET;
}

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

EventChannel::EventChannel(EventLoop& loop, uid_t user, ClientFile socket, uint32_t generation,
                           Tallies waiting)
    : loop_(loop), user_(user), socket_(std::move(socket)), generation_(generation), waiting_(waiting) {}

EventChannel::~EventChannel() {
  if (watch_later_) loop_.cancel(*watch_later_);
  watch(false);
  tally(0, queue_.size());
}

void EventChannel::tally(size_t more, size_t less) {
  waiting_.client += more - less;
  waiting_.users.take(user_, more);
  waiting_.users.give_back(user_, less);
}

uint64_t EventChannel::send(protocol::CmEvent event) {
  event.generation = generation_;
  ++sent_;
  bool is_sent = false;
  if (queue_.empty()) loop_.try_send_to(user_, [&] { is_sent = transmit(event); });
  if (!is_sent) {
    queue_.emplace(sent_, event);
    by_id_.emplace(event.id, sent_);
    if (event.listener != 0) by_listener_.emplace(event.listener, sent_);
    tally(1, 0);
    watch_later(TimePoint{});
  }
  return sent_;
}

void EventChannel::take_out(Queue::iterator event) {
  const auto& [number, content] = *event;
  by_id_.erase({content.id, number});
  by_listener_.erase({content.listener, number});
  queue_.erase(event);
  tally(0, 1);
}

EventChannel::Queue::iterator EventChannel::next_of(const Index& index, uint32_t id, uint64_t from) {
  const auto at = index.lower_bound({id, from});
  return at != index.end() && at->first == id ? queue_.find(at->second) : queue_.end();
}

bool EventChannel::is_named() {
  if (!is_named_) is_named_ = has_name(socket_.get());
  return is_named_;
}

// Sends an event. False: no room now. True for a channel whose other end is closed.
bool EventChannel::transmit(const protocol::CmEvent& event) {
  if (!is_named()) return false;
  const int before = unread_bytes(socket_.get());
  if (before >= kMaxUnreadBytes) return false;
  const auto sent = control::send_message(socket_.get(), protocol::bytes_of(event));
  if (!sent) return sent.error().code != EAGAIN && sent.error().code != ENOBUFS;
  // The difference is zero or less if the program has read meanwhile. Then the next event is measured.
  if (message_cost_ == 0) message_cost_ = std::max(0, unread_bytes(socket_.get()) - before);
  return true;
}

// All events have one size, so the kernel's count of unread bytes tells how many are in the socket.
uint64_t EventChannel::taken() const {
  const int unread = unread_bytes(socket_.get());
  if (unread < 0) return sent_ - queue_.size();
  const auto cost = static_cast<uint64_t>(std::max(message_cost_, 1));
  const uint64_t left = (static_cast<uint64_t>(unread) + cost - 1) / cost + queue_.size();
  return sent_ - std::min(left, sent_);
}

bool EventChannel::on_writable() {
  if (!is_named()) {
    watch(false);
    watch_later(MonotonicClock::now() + kNamePatience);
    return false;
  }
  for (int i = 0; i < kAtOnce && !queue_.empty(); ++i) {
    bool is_sent = false;
    const bool pauses = !loop_.try_send_to(user_, [&] { is_sent = transmit(queue_.begin()->second); });
    if (pauses) return true;
    if (!is_sent) return false;
    take_out(queue_.begin());
  }
  if (queue_.empty()) watch(false);
  return !queue_.empty();
}

// The program may watch the socket itself, any number of times. Then epoll_ctl(2) takes long.
void EventChannel::watch_later(TimePoint when) {
  if (watching_ || watch_later_) return;
  watch_later_ = loop_.at_for(user_, when, [this] {
    watch_later_.reset();
    watch(!queue_.empty());
  });
}

void EventChannel::watch(bool wanted) {
  if (watching_ == wanted) return;
  if (wanted) {
    loop_.watch_for(user_, socket_.get(), EPOLLOUT, [this](uint32_t) { return on_writable(); });
  } else {
    loop_.forget(socket_.get());
  }
  watching_ = wanted;
}

size_t EventChannel::move_events(uint32_t id, EventChannel& other, size_t most) {
  if (&other == this) return 0;
  size_t moved = 0;
  for (uint64_t from = 0; moved < most; ++moved) {
    // Its own, and if it listens those of the requests that came to it; they are the listener's then.
    auto event = next_of(by_id_, id, from);
    while (event != queue_.end() && event->second.listener != 0)
      event = next_of(by_id_, id, event->first + 1);
    const auto requested = next_of(by_listener_, id, from);
    const bool is_request_first =
        event == queue_.end() || (requested != queue_.end() && requested->first < event->first);
    if (is_request_first) event = requested;
    if (event == queue_.end()) break;
    from = event->first + 1;
    other.send(event->second);
    take_out(event);
  }
  return moved;
}

size_t EventChannel::drop_some(size_t most) {
  size_t dropped = 0;
  for (; dropped < most && !queue_.empty(); ++dropped) take_out(queue_.begin());
  return dropped;
}

size_t EventChannel::drop_events(uint32_t id, size_t most) {
  size_t dropped = 0;
  for (; dropped < most; ++dropped) {
    const auto event = next_of(by_id_, id, 0);
    if (event == queue_.end()) break;
    take_out(event);
  }
  return dropped;
}

bool ClientLimits::allows_another(const Quota& items) const {
  return items.is_trusted(user_) || (items.of(user_) < CmService::Shares::kMaxOfUser && items.allows(user_));
}

bool ClientLimits::allows_identifier(size_t held) const {
  return held < kMaxIdentifiers && allows_another(service_.shares().identifiers);
}

// Clears only so much at a time that no other client has to wait.
bool ClientLimits::make_room_for_identifier(size_t held) const {
  return allows_identifier(held) || (service_.gone_clients().clear_some_of(user_) && allows_identifier(held));
}

bool ClientLimits::allows_channel(size_t held) const {
  return held < kMaxChannels && service_.channels().allows(user_);
}

bool ClientLimits::allows_group(size_t held_by_identifier) const {
  return held_by_identifier < kMaxGroups && allows_another(service_.shares().groups);
}

ClientChannels::~ClientChannels() {
  limits_.give_back_channels(channels_.size());
}

control::AdminResult<void> ClientChannels::open(const protocol::CmChannelRequest& request,
                                                ClientFile events) {
  if (channels_.contains(request.channel)) return refuse(EEXIST, "the channel is open already");
  if (!limits_.allows_channel(channels_.size())) return refuse(EMFILE, "too many event channels");
  if (!events || !is_seqpacket(events.get())) return refuse(EINVAL, "without a SOCK_SEQPACKET socket");
  // Older libraries do not name it.
  if (!has_name(events.get()) && !events.name_socket()) return refuse(EMFILE, "no descriptor for a copy");
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
  if (waiting_events_ > ClientLimits::kMaxWaitingEvents) {
    hung_up_ = true;
    host_.hang_up();
  }
  return number;
}

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

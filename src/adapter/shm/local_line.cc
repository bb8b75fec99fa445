// SPDX-License-Identifier: Apache-2.0
#include "adapter/shm/local_line.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "adapter/net/udp/system_calls.h"
#include "adapter/shm/kept_files.h"
#include "base/log.h"
#include "base/sealed_file.h"
#include "control/model/message_socket.h"

namespace verbena::engine {
namespace {

// The messages on the socket, apart from rings.
enum class HandshakeType : uint32_t {
  kOffer = 1,     // with the file of a channel
  kAccept,        // by a process of the same user: it uses that file
  kPresent,       // Presentation (peer_memory.h). Older libraries send the file of their board with it
  kBell,          // with the descriptor to ring from now on; only to a peer that takes bells
  kAskForGroup,   // GroupMessage; only to a peer that sends copies
  kDeclineGroup,  // the same
  // With the file of the sender's half (shm::ChannelHalf), whose ring stays narrow: a process of another user
  // answers an offer so, and the process that has offered sends its own half back. Nobody uses the file of
  // the offer. Older libraries sent halves with 7, and made their rings wide.
  kHalf = 8,
};
struct Handshake {
  uint32_t magic;
  uint32_t version;  // of the memory's layout
  HandshakeType type;
  uint32_t takes_bells;  // 1: who says this knows kBell. Of an offer and its answer; older libraries say 0
};
static_assert(sizeof(Handshake) == 16);

// An offer and its answers. Libraries of before groups say no more than the handshake, and read no more.
struct Greeting {
  Handshake handshake;
  uint32_t sends_copies;  // 1: who says this knows kAskForGroup and kDeclineGroup
  // sight_of_processes(), or 0 from one that shows nobody its memory. Older libraries say none.
  uint32_t sees;
};
static_assert(sizeof(Greeting) == 24);
constexpr size_t kBytesWithoutSight = offsetof(Greeting, sees);

struct GroupMessage {
  Handshake handshake;
  std::array<uint8_t, 16> group;
  uint32_t interface_index;
};
static_assert(sizeof(GroupMessage) == 36 && sizeof(GroupMessage) != sizeof(Presentation));

Handshake handshake(HandshakeType type) {
  return {shm::kChannelMagic, shm::kLayoutVersion, type, 1};
}

bool sends_copies(ConstBytes message) {
  Greeting said{};
  if (message.size() < kBytesWithoutSight) return false;
  std::memcpy(&said, message.data(), kBytesWithoutSight);
  return said.sends_copies == 1;
}

// Returns whether the other process sees the same processes as we. It must, to be one of ours: in a pid
// namespace below ours it does not see us, and so takes us for a process of another user. 0 comes from a
// process without a number in its user namespace, and from one that shows nobody its memory.
bool sees_the_same(ConstBytes message) {
  Greeting said{};
  if (message.size() < sizeof said) return true;
  std::memcpy(&said, message.data(), sizeof said);
  return said.sees != 0 && said.sees == sight_of_processes();
}

// `board`: that of the line, which is null if it shows nobody its memory.
Greeting greeting(HandshakeType type, const OwnBoard* board) {
  return {handshake(type), 1, board != nullptr ? sight_of_processes() : 0};
}

bool is_greeting(HandshakeType type) {
  return type == HandshakeType::kOffer || type == HandshakeType::kAccept || type == HandshakeType::kHalf;
}

constexpr size_t kRingBytes = 1;
// Messages. There are four in a handshake.
constexpr int kMaxAtOnce = 16;

// Boards of other versions are shown, too, and not used. One that is longer than any takes long to close.
constexpr size_t kMaxOfBoard = 16 << 20;

// Whether this, or nothing (-1), is what comes with such a message: then it is closed at once. What it is
// good for is another matter.
bool may_come_with(HandshakeType type, int file) {
  switch (type) {
    case HandshakeType::kOffer:
      return has_sealed_size(file, sizeof(shm::ChannelMemory));
    case HandshakeType::kHalf:
      return is_sealed_half(file);
    case HandshakeType::kPresent:
      return file < 0 || sealed_size(file).value_or(SIZE_MAX) <= kMaxOfBoard;
    case HandshakeType::kBell:
      return Bell::is_ringing_end(file);
    case HandshakeType::kAccept:
    case HandshakeType::kAskForGroup:
    case HandshakeType::kDeclineGroup:
      return file < 0;
  }
  return false;
}

// Whether the kernel says that the sender has another user number than this process.
bool is_of_another_user(const std::optional<ucred>& sender) {
  return sender && sender->uid != ::geteuid() && sender->uid != ::getuid();
}

// lanes[0] goes from who made the memory to the other.
constexpr size_t kMakersLane = 0;
constexpr size_t kOthersLane = 1;

}  // namespace

LocalLine::LocalLine(ForeignSocket socket, State state, OwnBoard* board, const Bell* bell,
                     ChannelAccounts accounts)
    : socket_(std::move(socket)),
      state_(state),
      accounts_(std::move(accounts)),
      board_(board),
      bell_(bell),
      awaits_presentation_(board != nullptr) {
  if (awaits_presentation_) ask_for_credentials(socket_.get(), true);
}

LocalLine::~LocalLine() {
  reader_.reset();
  peer_memory_.reset();
  if (visitor_ != nullptr && socket_) board_->dismiss(visitor_, hung_up_);
  measure_waits([this] {
    their_half_.reset();
    our_half_.reset();
  });
  drop_offer();
  half_file_.close();
  entry_.leave();
  is_foreign() ? sent_files_.hang_up(socket_, peer_user()) : socket_.hang_up();
}

Result<std::unique_ptr<LocalLine>> LocalLine::offer(ForeignSocket socket, OwnBoard* board, const Bell* bell,
                                                    ChannelAccounts accounts) {
  const uid_t user = accounts.open.user_id;
  if (!may_give_file(user) || !may_send_file(user)) return fail(EDQUOT);
  std::unique_ptr<LocalLine> line(
      new LocalLine(std::move(socket), State::kOffered, board, bell, std::move(accounts)));
  int file = offer_for_stranger(line->peer_user());
  if (file < 0) {
    auto made = ChannelMapping::make_file();
    if (!made) return tl::unexpected(made.error());
    line->offered_ = GivenFile(std::move(*made), line->peer_user());
    file = line->offered_.get();
  }
  const Greeting message = greeting(HandshakeType::kOffer, board);
  if (line->send(std::as_bytes(std::span(&message, 1)), {&file, 1})) return line;
  line->offered_.close_own();  // nobody has it
  return fail(EPIPE);
}

Result<std::unique_ptr<LocalLine>> LocalLine::loop(const Bell* bell) {
  auto made = ChannelMapping::make();
  if (!made) return tl::unexpected(made.error());
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return fail(errno);
  UniqueFd ours(ends[0]);
  UniqueFd other(ends[1]);
  std::unique_ptr<LocalLine> line(new LocalLine(std::move(ours), State::kOpen, nullptr, bell, {}));
  line->own_end_ = std::move(other);
  line->use(std::move(made->first), kMakersLane, kMakersLane);
  line->open();
  return line;
}

std::unique_ptr<LocalLine> LocalLine::await(ForeignSocket socket, OwnBoard* board, const Bell* bell,
                                            ChannelAccounts accounts) {
  return std::unique_ptr<LocalLine>(
      new LocalLine(std::move(socket), State::kAwaiting, board, bell, std::move(accounts)));
}

void LocalLine::use(ChannelMapping mapping, size_t ours, size_t theirs) {
  mapping_ = std::make_shared<ChannelMapping>(std::move(mapping));
  our_lane_ = &mapping_->memory().lanes[ours];
  their_lane_ = &mapping_->memory().lanes[theirs];
  writer_.emplace(*our_lane_);
  reader_.emplace(*their_lane_);
}

// Each reader's words are in its own half.
void LocalLine::use(TheirHalf theirs) {
  their_half_.emplace(std::move(theirs));
  writer_.emplace(our_half_->lane(), their_half_->lane());
  writer_->ring_use().may_be_wide = false;
  reader_.emplace(their_half_->lane(), our_half_->lane());
}

bool LocalLine::try_to_send(ConstBytes message, std::span<const int> files) {
  bool sent = false;
  if (!files.empty()) sent_files_.send(socket_, peer_user());
  measure(CallCosts::Cause::kOurs, [&] {
    sent = board_ == nullptr ? control::send_message(socket_.get(), message, files).has_value()
                             : send_with_credentials(socket_.get(), message,
                                                     files.empty() ? std::nullopt : std::optional(files[0]))
                                   .has_value();
  });
  return sent;
}

bool LocalLine::send(ConstBytes message, std::span<const int> files) {
  if (!try_to_send(message, files)) state_ = State::kLost;
  return state_ != State::kLost;
}

// A ring that finds the socket full is not needed: others lie there unheard. And who finds its bell silenced
// still hears the socket.
void LocalLine::ring(CallCosts::Cause cause) {
  const Bell* const bell = own_end_ ? bell_ : their_bell_ ? &*their_bell_ : nullptr;
  if (bell != nullptr && bell->ring()) return;
  if (!may_call(cause)) {
    if (owed_ring_ != CallCosts::Cause::kOurs) owed_ring_ = cause;
    return tell_of_pause();
  }
  owed_ring_.reset();
  const std::byte ring{};
  const int to = own_end_ ? own_end_.get() : socket_.get();
  measure(cause, [&] {
    net::system_calls::sendto(to, &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
  });
}

template <class Calls>
void LocalLine::measure(CallCosts::Cause cause, const Calls& calls) {
  if (!is_foreign()) return calls();
  accounts().measure(cause, calls, [this] { return is_foreign(); });
}

// A handshake is short. Afterwards the other has something to say if it was asked to ring.
CallCosts::Cause LocalLine::cause_of_read() const {
  return asked_rings_ > 0 || !was_open_ ? CallCosts::Cause::kOurs : CallCosts::Cause::kTheirs;
}

void LocalLine::read_socket() {
  const CallCosts::Cause cause = cause_of_read();
  if (state_ != State::kLost && !may_call(cause)) {
    entry_.leave();
    is_paused_ = true;
    return tell_of_pause();
  }
  asked_rings_ = std::max(asked_rings_ - 1, 0);
  measure(cause, [this] { read_messages(); });
}

TimePoint LocalLine::resume(int poll_set) {
  const bool is_lost = state_ == State::kLost;  // as the set is to tell
  if (is_lost) owed_ring_.reset();
  if (owed_ring_ && may_call(*owed_ring_)) ring(*owed_ring_);
  if (is_paused_ && (is_lost || may_call(cause_of_read()))) is_paused_ = !announce_in(poll_set);
  TimePoint next = kNever;
  if (owed_ring_) next = accounts().allowed_from(*owed_ring_);
  if (is_paused_) next = std::min(next, accounts().allowed_from(cause_of_read()));
  return next;
}

// One who rings, or says anything else, without end has no more of our time than a few messages take: what
// else there is the poll set tells of.
void LocalLine::read_messages() {
  std::array<std::byte, sizeof(Presentation)> buffer;
  bool is_ring = false;
  for (int i = 0; i < kMaxAtOnce && state_ != State::kLost && !is_ring; ++i) {
    auto message =
        socket_.look(buffer, {.sender = awaits_presentation_, .file = may_bring_file(), .user = peer_user()});
    if (!message && message.error().code == EAGAIN) return;
    hung_up_ = message.has_value() && message->bytes == 0;
    const bool is_sound = message && !hung_up_ && !message->is_longer && !message->has_more_files;
    if (!is_sound || !take(ConstBytes(buffer).first(message->bytes), *message)) {
      state_ = State::kLost;
      return;
    }
    // It has brought nothing, or something that take() knows.
    socket_.drop();
    is_ring = message->bytes == kRingBytes;
  }
}

// Tells the peer where our export table is: it may access our memory without our help. The table has all our
// keys, so only processes that the kernel lets look at this one get it (Presentation). An undumpable process,
// such as one that was started with privileges, lets nobody of its user do so, and says that it has none.
void LocalLine::present_ourselves() {
  if (board_ == nullptr) return;
  if (!is_ours_) {
    way_ = protocol::QpWay::kOtherUser;
    return expect_no_presentation();
  }
  const Handshake kind = handshake(HandshakeType::kPresent);
  Presentation said{};
  std::memcpy(&said, &kind, sizeof kind);
  said.board = 0;  // another field of a Handshake
  if (::prctl(PR_GET_DUMPABLE) == 1) {
    visitor_ = board_->admit(mapping_, *their_lane_);
    said.board = static_cast<uint32_t>(board_->file()) + 1;
    said.cookie_address = reinterpret_cast<uintptr_t>(board_->cookie().bytes.data());
    std::memcpy(said.cookie, board_->cookie().bytes.data(), sizeof said.cookie);
  }
  // If it fails, the peer does not access our memory.
  (void)send_with_credentials(socket_.get(), std::as_bytes(std::span(&said, 1)));
}

// Who may ring can ring without end, and keep others from it: not for a process of another user.
void LocalLine::give_bell() {
  if (bell_ == nullptr || !is_ours_ || !takes_bells_) return;
  const Handshake message = handshake(HandshakeType::kBell);
  // If it fails, the other rings by the socket.
  (void)send_with_credentials(socket_.get(), std::as_bytes(std::span(&message, 1)), bell_->ringing_fd());
}

bool LocalLine::take_bell(UniqueFd file) {
  if (state_ != State::kOpen || !is_ours_) return false;
  auto bell = Bell::of_other(std::move(file));
  if (bell) their_bell_.emplace(std::move(*bell));
  return bell.has_value();
}

void LocalLine::expect_no_presentation() {
  awaits_presentation_ = false;
  ask_for_credentials(socket_.get(), false);
}

// The other presents itself once, when the channel is open.
bool LocalLine::take_presentation(ConstBytes bytes, const std::optional<ucred>& sender, UniqueFd file) {
  if (state_ != State::kOpen || std::exchange(is_presented_, true)) return false;
  Presentation said;
  if (!awaits_presentation_ || bytes.size() != sizeof said) return true;
  std::memcpy(&said, bytes.data(), sizeof said);
  expect_no_presentation();
  if (!sender) return true;
  if (!file && said.board == 0) {
    way_ = protocol::QpWay::kForbidden;
    return true;
  }
  auto opened = PeerMemory::open(said, file.get(), *sender, *our_lane_);
  peer_memory_ = std::move(opened.memory);
  way_ = opened.way;
  reader_->fetch_from(peer_memory_.get());
  return true;
}

// None but who it may be; another user's is not even looked at.
bool LocalLine::may_bring_file() const {
  if (state_ == State::kAwaiting || state_ == State::kOffered) return true;
  return state_ == State::kOpen && (awaits_presentation_ || is_ours_ || board_ == nullptr);
}

bool LocalLine::take(ConstBytes bytes, ForeignMessage& message) {
  if (awaits_presentation_) is_ours_ = sees_the_same_ && is_of_our_user(message.sender);
  if (bytes.size() == kRingBytes) return !message.file && state_ == State::kOpen;
  Handshake said;
  if (bytes.size() < sizeof said) return false;
  std::memcpy(&said, bytes.data(), sizeof said);
  if (said.magic != shm::kChannelMagic || said.version != shm::kLayoutVersion) return false;
  if (!may_come_with(said.type, message.file.get())) return false;
  if (is_greeting(said.type)) {
    takes_bells_ = said.takes_bells == 1;
    sends_copies_ = sends_copies(bytes);
    // Its own word is not enough: a process in a container may claim to be here.
    sees_the_same_ = said.type != HandshakeType::kHalf && awaits_presentation_ &&
                     is_of_our_user(message.sender) && sees_the_same(bytes) &&
                     is_in_our_pid_namespace(message.sender->pid);
    is_ours_ = sees_the_same_;
  }
  // Another user's file stays with the message, whose destructor discards it.
  UniqueFd ours = is_ours_ ? message.file.take_known() : UniqueFd();
  const int file = ours ? ours.get() : message.file.get();
  switch (said.type) {
    case HandshakeType::kOffer:
      return state_ == State::kAwaiting && take_offer(file);
    case HandshakeType::kAccept:
      return state_ == State::kOffered && offered_ && is_ours_ && take_acceptance();
    case HandshakeType::kHalf:
      if (is_of_another_user(message.sender)) note_stranger(peer_user());
      return state_ == State::kOffered && take_half(file);
    case HandshakeType::kPresent:
      return take_presentation(bytes, message.sender, std::move(ours));
    case HandshakeType::kBell:
      return take_bell(std::move(ours));
    case HandshakeType::kAskForGroup:
      return hear_of_group(bytes, true);
    case HandshakeType::kDeclineGroup:
      return hear_of_group(bytes, false);
  }
  return false;
}

LocalLine::Asked LocalLine::ask_for(const GroupKey& group) {
  if (std::ranges::find(asked_, group) != asked_.end()) return Asked::kBefore;
  if (asked_.size() == kMaxGroups) return Asked::kNo;
  try {
    asked_.reserve(kMaxGroups);
  } catch (const std::bad_alloc&) {
    return Asked::kNo;
  }
  if (!say_of_group(group, true)) return Asked::kNo;
  asked_.push_back(group);
  return Asked::kJustNow;
}

// If it cannot be said, the other goes on sending what nobody takes.
void LocalLine::decline(const GroupKey& group) {
  const auto asked = std::ranges::find(asked_, group);
  if (asked != asked_.end() && say_of_group(group, false)) asked_.erase(asked);
}

bool LocalLine::say_of_group(const GroupKey& group, bool asks) {
  if (own_end_) {
    want(group, asks);
    return true;
  }
  if (state_ != State::kOpen || !sends_copies_) return false;
  const GroupMessage message{handshake(asks ? HandshakeType::kAskForGroup : HandshakeType::kDeclineGroup),
                             group.group.bytes, group.interface_index};
  return may_call(CallCosts::Cause::kOurs) && try_to_send(std::as_bytes(std::span(&message, 1)));
}

bool LocalLine::hear_of_group(ConstBytes message, bool asks) {
  GroupMessage said;
  if (state_ != State::kOpen || message.size() < sizeof said) return false;
  std::memcpy(&said, message.data(), sizeof said);
  want({{said.group}, said.interface_index}, asks);
  return true;
}

// More than there may be go without.
void LocalLine::want(const GroupKey& group, bool wanted) {
  const auto known = std::ranges::find(wanted_, group);
  if (wanted == (known != wanted_.end())) return;
  if (!wanted) {
    wanted_.erase(known);
  } else if (wanted_.size() == kMaxGroups || !group.group.is_multicast()) {
    return;
  } else {
    try {
      wanted_.push_back(group);
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  ++wanted_changes_;
}

// A process of another user could punch holes into memory that both write: each access of ours would wait
// meanwhile, with the shard's lock held. So it gets a half that only this process writes, and we read its.
bool LocalLine::offer_half() {
  if (!may_give_file(peer_user()) || !may_send_file(peer_user())) {
    log_debug("no channel to a process of user {}: its processes keep files of earlier ones", peer_user());
    return false;
  }
  auto made = make_half();
  if (!made) {
    log_debug("no channel to a process of another user: error {}", made.error().code);
    return false;
  }
  our_half_.emplace(std::move(made->first));
  half_file_ = GivenFile(std::move(made->second), peer_user());
  state_ = State::kOffered;
  const Greeting message = greeting(HandshakeType::kHalf, board_);
  const int file = half_file_.get();
  return send(std::as_bytes(std::span(&message, 1)), {&file, 1});
}

void LocalLine::drop_offer() {
  is_foreign() ? offered_.close() : offered_.close_own();
}

bool LocalLine::take_half(int file) {
  drop_offer();
  Result<TheirHalf> theirs = fail(EPROTO);
  measure_waits([&] { theirs = map_half(file); });
  if (!theirs) {
    log_debug("no channel to a process of another user: its half cannot be used, error {}",
              theirs.error().code);
    return false;
  }
  if (!our_half_ && !offer_half()) return false;
  use(std::move(*theirs));
  open();
  return true;
}

// Maps the memory only now: the other process, which has the file, too, is of our user.
bool LocalLine::take_acceptance() {
  if (!offered_.is_ours()) return false;
  auto mapping = ChannelMapping::map(offered_.get());
  drop_offer();
  if (!mapping) return false;
  use(std::move(*mapping), kMakersLane, kOthersLane);
  open();
  return true;
}

bool LocalLine::take_offer(int file) {
  if (!is_ours_) return offer_half();
  auto mapping = ChannelMapping::map(file);
  if (!mapping) {
    log_warning("a channel that another process offers cannot be used: error {}", mapping.error().code);
    return false;
  }
  use(std::move(*mapping), kOthersLane, kMakersLane);
  const Greeting message = greeting(HandshakeType::kAccept, board_);
  if (!send(std::as_bytes(std::span(&message, 1)))) return false;
  open();
  return true;
}

void LocalLine::open() {
  state_ = State::kOpen;
  was_open_ = true;
  if (own_end_) return;
  present_ourselves();
  give_bell();
}

// The other must see the parent's end, while we live on.
void LocalLine::abandon() {
  entry_.forget();
  socket_.abandon();
  own_end_.reset();
  offered_.abandon();
  half_file_.abandon();
  their_bell_.reset();
  peer_memory_.reset();
}

}  // namespace verbena::engine

// SPDX-License-Identifier: Apache-2.0
#include "agent/mad/dispatcher.h"
#include "base/sealed_file.h"
#include "management/mad/rmpp.h"

namespace verbena::agent {

OpenPort::OpenPort(MadDispatcher& owner, uint64_t number, EventLoop& loop, ClientSockets& sockets, uid_t user,
                   uint32_t device_index, UniqueFd socket, bool takes_files, QuotaShare share)
    : owner_(owner),
      number_(number),
      loop_(loop),
      sockets_(sockets),
      user_(user),
      device_index_(device_index),
      socket_(sockets, user, std::move(socket), ClientSockets::For::kEvents, std::move(share)),
      timer_(loop, user, [&owner, number] { owner.on_timer(number); }),
      takes_files_(takes_files) {
  loop_.watch_for(user, socket_.get(), EPOLLIN, [this](uint32_t events) {
    // A paused port reads nothing, and would not notice that its program has ended. But one that waits for a
    // file reads on.
    if (read_file_) return false;
    if ((!paused_ && ticket_ == 0) || (events & (EPOLLHUP | EPOLLERR)) == 0) return on_readable();
    end();
    return false;
  });
}

OpenPort::~OpenPort() {
  loop_.forget(socket_.get());
  sockets_.cancel_wait(user_, ticket_);
}

bool OpenPort::on_readable() {
  if (ended_ || read_file_) return false;
  [[maybe_unused]] const bool counted = socket_.is_read();  // received descriptors do not count any more
  if (!owner_.has_room(number_)) {
    paused_ = true;
    loop_.set_events(socket_.get(), 0);
    return false;
  }
  std::array<std::byte, protocol::kUserMadBytes + protocol::kMadBytes> buffer;
  const bool takes_file = takes_files_ && sockets_.closer().allows(user_);
  sockets_.cancel_wait(user_, std::exchange(ticket_, 0));
  auto seen = socket_.look(buffer, takes_file);
  if (!seen && seen.error().code == EAGAIN) return false;
  if (seen && seen->has_files && takes_files_ && !takes_file) {
    ticket_ = sockets_.await_room(user_, socket_.get());
    loop_.set_events(socket_.get(), 0);
    return false;
  }
  bool goes_on = seen && seen->bytes != 0 && !seen->has_files;
  if (goes_on) {
    socket_.drop();
    const bool is_datagram =
        !seen->is_longer && seen->bytes >= protocol::kUserMadBytes + protocol::kLeastSentMadBytes;
    if (is_datagram) goes_on = take(ConstBytes(buffer).first(seen->bytes), std::move(seen->file));
  }
  if (!goes_on) end();
  return goes_on;
}

bool OpenPort::take(ConstBytes message, ClientFile file) {
  auto header = protocol::read_as<protocol::UserMad>(message);
  const ConstBytes mad = message.subspan(protocol::kUserMadBytes);
  if (!takes_files_) header.status = 0;
  if (!file) {
    owner_.on_datagram(number_, header, mad);
    return true;
  }
  const size_t bytes = header.length > protocol::kUserMadBytes ? header.length - protocol::kUserMadBytes : 0;
  const bool can_be = mad.size() == protocol::kMadBytes && bytes > mad.size() && bytes <= mad::kMaxRmppBytes;
  if (!can_be) return false;
  read_file_ = owner_.reserve(user_, bytes);
  auto whole = std::make_shared<std::vector<std::byte>>(mad.begin(), mad.end());
  file.work_and_close(
      [whole, bytes](int memory_file) {
        const size_t first = whole->size();
        whole->resize(bytes);
        if (!read_memory_file(memory_file, Bytes(*whole).subspan(first))) whole->clear();
      },
      [whole, bytes, header, &owner = owner_, number = number_] {
        owner.on_file(number, header, whole->size() == bytes ? ConstBytes(*whole) : ConstBytes());
      });
  return true;
}

void OpenPort::take_whole(const protocol::UserMad& header, ConstBytes message) {
  read_file_.reset();
  if (message.empty()) return end();
  owner_.on_datagram(number_, header, message);
  loop_.set_events(socket_.get(), EPOLLIN);  // reports what came meanwhile
}

void OpenPort::resume() {
  if (!std::exchange(paused_, false)) return;
  loop_.set_events(socket_.get(), EPOLLIN);
}

void OpenPort::deliver(protocol::UserMad header, ConstBytes mad) {
  header.length = static_cast<uint32_t>(sizeof header + mad.size());
  const bool in_file = mad.size() > protocol::kMaxMadBytesInline;
  const ConstBytes in_message = mad.first(in_file ? protocol::kMadBytes : mad.size());
  std::vector<std::byte> message(sizeof header + in_message.size());
  std::memcpy(message.data(), &header, sizeof header);
  std::memcpy(message.data() + sizeof header, in_message.data(), in_message.size());
  Result<void> sent = fail(EAGAIN);
  if (in_file) {
    sent = send_with_file(message, mad.subspan(in_message.size()));
  } else {
    loop_.try_send_to(user_, [&] { sent = socket_.send(message); });
  }
  if (!sent) {
    const ActingFor user(user_);
    log_debug("a management datagram is lost: its program does not take it (errno {})", sent.error().code);
  }
}

Result<void> OpenPort::send_with_file(ConstBytes header_and_first, ConstBytes rest) {
  if (!takes_files_) return fail(EOPNOTSUPP);
  if (!socket_.may_send(1)) return fail(EAGAIN);
  const auto theirs =
      sockets_.files().lease(user_, rest.size(), [&] { return write_memory_file("verbena-mad", rest); });
  if (!theirs) return fail(theirs.error().code);
  const int fd = theirs->get();
  // Measures the message only: the time to write the file is not the user's fault.
  Result<void> sent = fail(EAGAIN);
  loop_.try_send_to(user_, [&] { sent = socket_.send(header_and_first, {&fd, 1}); });
  return sent;
}

void OpenPort::end() {
  if (ended_) return;
  loop_.later([&owner = owner_, number = number_] { owner.close(number); });
  ended_ = true;
  loop_.set_events(socket_.get(), 0);
}

}  // namespace verbena::agent

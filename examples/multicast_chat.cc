// SPDX-License-Identifier: Apache-2.0
// A chat without a server: each line goes to all members of a multicast group as one datagram. Shows
// verbena/cm/multicast.hpp, and how a loop watches a descriptor of the program: the standard input.
//
//   verbena run multicast_chat ADDRESS ann 239.1.2.3     # in one shell
//   verbena run multicast_chat ADDRESS bob 239.1.2.3     # in another shell, or on another host
//
// ADDRESS is that of the interface to use, such as 127.0.0.1 for one host. The end of the input (Ctrl-D)
// leaves the group. The input is a terminal or a pipe. Leaves out: lines that are lost, control characters in
// what others write, and proof of who wrote it.
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <poll.h>
#include <unistd.h>
#include <verbena/cm/multicast.hpp>

namespace {

using namespace verbena;

// Hands the lines of the standard input to a function. At the end of the input, calls another.
class keyboard final : public event_source {
 public:
  keyboard(loop& io, std::function<void(const std::string&)> on_line, std::function<void()> on_end)
      : io_(io), on_line_(std::move(on_line)), on_end_(std::move(on_end)) {
    io_.add(*this);
  }
  keyboard(const keyboard&) = delete;
  keyboard& operator=(const keyboard&) = delete;
  ~keyboard() override { end(); }

  bool poll() override {
    if (has_ended_ || !is_readable()) return false;
    char bytes[512];
    const ssize_t size = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (size <= 0) {
      end();
      on_end_();
      return true;
    }
    typed_.append(bytes, static_cast<std::size_t>(size));
    for (std::size_t end = 0; (end = typed_.find('\n')) != std::string::npos; typed_.erase(0, end + 1))
      on_line_(typed_.substr(0, end));
    return true;
  }
  bool arm() override { return has_ended_ || !is_readable(); }
  int fd() const override { return STDIN_FILENO; }

 private:
  static bool is_readable() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return ::poll(&input, 1, 0) > 0;
  }
  void end() {
    if (!std::exchange(has_ended_, true)) io_.remove(*this);
  }

  loop& io_;
  std::function<void(const std::string&)> on_line_;
  std::function<void()> on_end_;
  std::string typed_;
  bool has_ended_ = false;
};

task<> chat(loop& io, std::string own_address, std::string name, std::string group_address) {
  multicast_group group = co_await join_multicast(io, group_address, own_address);
  std::printf("joined %s\n", group_address.c_str());
  std::fflush(stdout);
  const keyboard input(
      io, [&](const std::string& line) { io.spawn(group.send(name + ": " + line)); },
      [&] { io.spawn(group.close()); });
  while (const buffer datagram = co_await group.receive()) {
    const std::string_view line = datagram.text();
    if (line.starts_with(name + ": ")) continue;  // some adapters return what this end has sent
    std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: multicast_chat ADDRESS NAME GROUP\n", stderr);
    return 1;
  }
  try {
    loop io({.spin = duration::zero()});  // people type slowly: sleep instead of polling
    io.run(chat(io, argv[1], argv[2], argv[3]));
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "multicast_chat: %s\n", failed.what());
    return 1;
  }
}

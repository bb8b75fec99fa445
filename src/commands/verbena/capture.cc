// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include <CLI/CLI.hpp>
#include <poll.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/command_line/command_line.h"
#include "base/command_line/output_file.h"
#include "base/format.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "commands/verbena/commands.h"
#include "commands/verbena/end_signals.h"
#include "commands/verbena/help.h"
#include "commands/verbena/installation.h"
#include "commands/verbena/names.h"
#include "commands/verbena/recorder.h"
#include "commands/verbena/report.h"
#include "control/client/command_client.h"

namespace verbena::commands {

using namespace command_line;

namespace {

using control::CaptureClient;
using control::CaptureNews;
using protocol::CaptureNewsReply;

constexpr const char* kCaptureExamples =
    "Writes what processes of this host send each other by memory, which tcpdump does not see, as the "
    "RoCEv2\n"
    "packets that it would have been between two hosts. Packets over UDP are not in it: use tcpdump for "
    "those.\n"
    "Each packet has a comment: the process and queue pair that sent it, and those that get it. Packets that "
    "come\n"
    "faster than they can be written are left out, and counted. Until Ctrl-C, if nothing else is said.\n"
    "\n"
    "Examples:\n"
    "  verbena capture traffic.pcapng           into a file, which only you may read\n"
    "  verbena capture - | wireshark -k -i -    to look on\n"
    "  verbena capture --seconds 10 traffic.pcapng\n"
    "Packets on the wire, to and from other hosts:\n"
    "  tcpdump -i DEV -w wire.pcap udp port 4791\n"
    "\n"
    "A user captures with their own agent; only root captures what root's agent serves.\n";

constexpr uint32_t kLeastSnap = 64;
constexpr uint32_t kMaxSnap = 262'144;

// Sleep after a round without records. A busy process fills its ring within milliseconds.
constexpr Duration kShortPause = std::chrono::milliseconds(1);
constexpr Duration kLongPause = std::chrono::milliseconds(10);  // while no process is captured
constexpr Duration kNewsInterval = std::chrono::milliseconds(5);
// Limit on the time for records that are still in the rings at the end.
constexpr Duration kMaxAtEnd = std::chrono::seconds(2);

struct CaptureWish {
  std::string file;
  CaptureChoice choice;
  uint64_t seconds = 0;  // 0: until a signal
};

// One run of the command, once the agent is connected.
class Capture {
 public:
  Capture(const CaptureWish& wish, CaptureClient& client, UniqueFd output)
      : wish_(wish),
        client_(client),
        output_(std::move(output)),
        links_([this] { return client_.links().value_or(std::vector<control::Link>()); }),
        recorder_(wish.choice, links_) {}

  int run();

 private:
  bool take_news(TimePoint now);
  bool write_out();
  bool pause(Duration duration);
  void drain();

  const CaptureWish& wish_;
  CaptureClient& client_;
  const UniqueFd output_;
  CaptureLinks links_;
  Recorder recorder_;
  const EndSignals signals_;
  TimePoint next_news_ = TimePoint::min();
  // All processes that existed before this time are known. Records after it wait, or the capture could not
  // name their processes.
  TimePoint known_until_ = TimePoint::min();
  std::optional<std::string> failure_;
};

// Handles the agent's news of processes that begin or end. Returns false once the agent has ended: then no
// further news comes.
bool Capture::take_news(TimePoint now) {
  if (now < next_news_) return true;
  next_news_ = now + kNewsInterval;
  for (;;) {
    auto news = client_.next();
    if (!news) {
      failure_ = news.error().text.empty() ? std::strerror(news.error().code) : news.error().text;
      return false;
    }
    switch (news->kind) {
      case CaptureNewsReply::kNothing:
        known_until_ = now;
        return true;
      case CaptureNewsReply::kBegun:
        recorder_.begin(std::move(*news));
        break;
      case CaptureNewsReply::kEnded:
        recorder_.end(news->slot);
        break;
      default:
        complain(
            "{} (pid {}) is not captured: {}", printable(news->program), news->pid,
            news->error == EOPNOTSUPP ? "its library is of an older version" : std::strerror(news->error));
    }
  }
}

// Writes pending bytes to the output. False: the output takes no more.
bool Capture::write_out() {
  for (const std::string& text : recorder_.take_complaints()) complain("{}", printable(text));
  ConstBytes bytes = recorder_.writer().pending();
  int error = 0;
  while (!bytes.empty() && error == 0) {
    const ssize_t put = ::write(output_.get(), bytes.data(), bytes.size());
    if (put >= 0) bytes = bytes.subspan(static_cast<size_t>(put));
    if (put < 0 && errno != EINTR) error = errno;
  }
  recorder_.writer().clear();
  if (error != 0 && error != EPIPE) {
    failure_ = verbena::format("cannot write '{}': {}; what was written until then can be read", wish_.file,
                               std::strerror(error));
  }
  return error == 0;
}

// Sleeps for `duration`. False: a signal asks to stop, or the reader of the output has gone.
bool Capture::pause(Duration duration) {
  pollfd entries[] = {{signals_.fd(), POLLIN, 0}, {output_.get(), 0, 0}};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  ::poll(entries, 2, static_cast<int>(ms));
  return entries[0].revents == 0 && (entries[1].revents & POLLERR) == 0;
}

// Records all packets that were sent before this call.
void Capture::drain() {
  const TimePoint end = MonotonicClock::now();
  if (!failure_) {
    next_news_ = TimePoint::min();
    take_news(end);
  }
  while (MonotonicClock::now() < end + kMaxAtEnd && !recorder_.is_complete()) {
    if (recorder_.record(end, MonotonicClock::now()) == 0 || !write_out()) break;
  }
}

int Capture::run() {
  const TimePoint began = MonotonicClock::now();
  const TimePoint end = wish_.seconds == 0 ? kNever : began + std::chrono::seconds(wish_.seconds);
  take_news(began);
  complain("capturing into {}", wish_.file == "-" ? "standard output" : wish_.file);
  TimePoint round = began;
  bool goes_on = !failure_ && write_out();
  while (goes_on && !recorder_.is_complete()) {
    // A process that was sending when a round began has written its record by the next round. So each round
    // handles the records up to the start of the previous one.
    const TimePoint limit = std::exchange(round, MonotonicClock::now());
    if (round >= end) break;
    goes_on = take_news(round);
    const uint64_t recorded = recorder_.record(std::min(limit, known_until_), round);
    goes_on = write_out() && goes_on;
    const Duration rest = recorder_.has_processes() ? kShortPause : kLongPause;
    goes_on = goes_on && pause(recorded > 0 ? Duration::zero() : rest);
  }
  drain();
  recorder_.finish();
  write_out();
  const uint64_t left_out = recorder_.left_out();
  complain("{} packets written, {} left out{}", recorder_.written(), left_out,
           left_out == 0 ? "" : ": they came faster than they could be written");
  if (recorder_.written() == 0 && left_out == 0 && !failure_) {
    complain(
        "no process sent through shared memory meanwhile; traffic on the wire: tcpdump -i any udp port 4791");
  }
  if (!failure_) return kDone;
  return complain("{}", *failure_);
}

std::string why_not_opened(const std::string& file, int error) {
  if (error == EISDIR && file == "-")
    return "standard output is a terminal; send it into a file or a program: verbena capture - | wireshark "
           "-k -i -";
  if (error == EISDIR) return "it is a directory; name a file, such as traffic.pcapng";
  if (error == EPERM)
    return "another user's file or link is there, and that user could read it; name another file";
  if (error == ENOENT) return "its directory does not exist; make that first";
  return std::strerror(error);
}

// Runs `verbena capture`. Truncates an existing file only after all other checks have passed.
int capture(const CaptureWish& wish) {
  if (wish.choice.pid != 0 && ::kill(wish.choice.pid, 0) != 0 && errno == ESRCH) {
    complain("warning: --pid: there is no process {} here; 'verbena status' lists those that use Verbena",
             wish.choice.pid);
  }
  const auto client = CaptureClient::connect(start_installed_agent());
  if (!client) return report(client.error());
  if (const std::string& name = wish.choice.link; !name.empty()) {
    const auto links = (*client)->links();
    if (!links) return report(links.error());
    if (std::ranges::find(*links, name, &control::Link::name) == links->end()) {
      return complain("no link '{}'; 'verbena link show' lists the links", printable(name));
    }
  }
  const auto started = (*client)->start(wish.choice.payload_snap_bytes());
  if (!started) return report(started.error());
  // It is private, since it holds the data that programs send.
  auto output = open_output(wish.file, OutputReaders::kThisUser);
  if (!output) {
    return complain("cannot write '{}': {}", printable(wish.file),
                    why_not_opened(wish.file, output.error().code));
  }
  return Capture(wish, **client, std::move(*output)).run();
}

}  // namespace

void add_capture(CLI::App& verbena, int& status) {
  CLI::App* command =
      verbena.add_subcommand("capture", "Write what goes by memory as packets, for Wireshark");
  explain(*command, "verbena capture [OPTION...] FILE", kCaptureExamples);
  const auto wish = std::make_shared<CaptureWish>();
  CaptureChoice& choice = wish->choice;
  command->add_option("FILE", wish->file, "where to: a pcapng file, or '-' for standard output")->required();
  command
      ->add_option("--snaplen", choice.snap_bytes, "of each packet at most so many bytes, 64 to 262144 (all)")
      ->transform(whole_number("a number of bytes from 64 to 262144", kLeastSnap, kMaxSnap))
      ->type_name("BYTES");
  command->add_option("--link", choice.link, "only packets from or to an address of this link")
      ->type_name("NAME");
  command->add_option("--pid", choice.pid, "only packets from or to this process")
      ->transform(process_id())
      ->type_name("PID");
  command->add_option("--seconds", wish->seconds, "end after so many seconds, 1 to 86400")
      ->transform(whole_number("a number of seconds from 1 to 86400", 1, 86'400))
      ->type_name("SECONDS");
  command->add_option("--count", choice.count, "end after so many packets, at least 1")
      ->transform(whole_number("a number of packets, 1 or more", 1, UINT64_MAX))
      ->type_name("PACKETS");
  command->callback([wish, &status] { status = capture(*wish); });
}

}  // namespace verbena::commands

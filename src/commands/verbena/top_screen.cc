// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>

#include "commands/verbena/top_table.h"

// ncurses' macros would collide with names of the C++ library.
#define NCURSES_NOMACROS
#include <curses.h>
#include <poll.h>
#include <unistd.h>

#include "base/format.h"
#include "commands/verbena/end_signals.h"

namespace verbena::commands {
namespace {

constexpr Duration kShortest = std::chrono::milliseconds(100);
constexpr Duration kLongest = std::chrono::seconds(60);

constexpr std::array kHelp = std::to_array<const char*>({
    "p  processes        u  queue pairs      l  links",
    "s  sort by the next: bytes, packets, retransmissions, RNRs, waiting requests",
    "r  the other way round",
    "/  show only rows with this in a name; an empty line shows all",
    "+  slower           -  faster           space  look now",
    "h  this help        q  end",
    "",
    "SENT B/s and RECV B/s are bytes of payload in a second; RETR/s retransmitted packets; RNR/s messages "
    "that",
    "met no receive request, here or there; SENDS and RECVS requests that are posted and wait.",
    "A line that ends in '>' goes on beyond the edge of the terminal.",
    "",
    "Press a key.",
});

// Puts the terminal into curses mode for its lifetime.
class Terminal {
 public:
  Terminal() {
    ::initscr();
    ::cbreak();
    ::noecho();
    ::keypad(stdscr, TRUE);
    ::curs_set(0);
  }
  ~Terminal() { ::endwin(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void show(const std::vector<std::string>& lines) {
    ::erase();
    for (int y = 0; y < std::min(LINES, static_cast<int>(lines.size())); ++y) {
      const std::string& line = lines[static_cast<size_t>(y)];
      ::mvaddnstr(y, 0, line.c_str(), COLS);
      if (line.size() > static_cast<size_t>(COLS)) ::mvaddch(y, COLS - 1, '>');
    }
    ::refresh();
  }
  // Waits at most `at_most` for a key. Returns ERR if none comes, and 'q' for SIGINT, SIGTERM or SIGHUP.
  int key(Duration at_most) {
    ::timeout(0);
    if (const int typed = ::getch(); typed != ERR) return typed;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(at_most).count();
    pollfd entries[] = {{STDIN_FILENO, POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
    ::poll(entries, std::size(entries), static_cast<int>(ms));
    return entries[1].revents != 0 ? 'q' : ::getch();
  }
  std::string ask(const char* question) {
    std::array<char, 64> text{};
    ::mvaddstr(LINES - 1, 0, question);
    ::clrtoeol();
    ::echo();
    ::timeout(-1);
    ::getnstr(text.data(), static_cast<int>(text.size()) - 1);
    ::noecho();
    return text.data();
  }

 private:
  const EndSignals signals_;
};

class Top {
 public:
  Top(const Look& look, TopSettings settings, Duration interval)
      : look_(look), settings_(std::move(settings)), interval_(interval) {}

  void run() {
    take_look();
    while (!ended_) {
      draw();
      const TimePoint next = looked_ + interval_;
      const int key = terminal_.key(std::max(next - MonotonicClock::now(), Duration(0)));
      if (key != ERR) obey(key);
      if (MonotonicClock::now() >= looked_ + interval_) take_look();
    }
  }

 private:
  void take_look() {
    auto looked = look_();
    std::optional<control::AgentStatus> now;
    if (looked) now = std::move(*looked);
    absence_ = looked ? std::string() : looked.error().text;
    const TimePoint when = MonotonicClock::now();
    // The first status has no predecessor, so all rates are zero.
    before_ = now_ ? std::move(now_) : now;
    seconds_ = std::chrono::duration<double>(when - looked_).count();
    now_ = std::move(now);
    looked_ = when;
  }

  void draw() {
    std::vector<std::string> lines;
    if (!now_) {
      lines = {absence_, "q ends, h helps"};
    } else {
      lines.push_back(verbena::format(
          "verbena top  agent {}  by {}{}  every {:.1f} s{}  h helps", now_->pid, name_of(settings_.order),
          settings_.reversed ? ", least first" : "", std::chrono::duration<double>(interval_).count(),
          settings_.filter.empty() ? "" : verbena::format("  only '{}'", settings_.filter)));
      lines.emplace_back();
      for (std::string& line : top_lines(before_ ? *before_ : *now_, *now_, seconds_, settings_)) {
        lines.push_back(std::move(line));
      }
    }
    terminal_.show(lines);
  }

  void obey(int key) {
    if (key == 'q') ended_ = true;
    if (key == 'p') settings_.view = TopView::kProcesses;
    if (key == 'u') settings_.view = TopView::kQueuePairs;
    if (key == 'l') settings_.view = TopView::kLinks;
    if (key == 's') {
      constexpr int kOrders = static_cast<int>(TopOrder::kCount);
      settings_.order = static_cast<TopOrder>((static_cast<int>(settings_.order) + 1) % kOrders);
    }
    if (key == 'r') settings_.reversed = !settings_.reversed;
    if (key == '+') interval_ = std::min(interval_ * 2, kLongest);
    if (key == '-') interval_ = std::max(interval_ / 2, kShortest);
    if (key == '/') settings_.filter = terminal_.ask("only rows with: ");
    if (key == ' ') take_look();
    if (key == 'h' || key == '?') {
      terminal_.show({kHelp.begin(), kHelp.end()});
      terminal_.key(kLongest);
    }
  }

  const Look& look_;
  TopSettings settings_;
  Duration interval_;
  std::optional<control::AgentStatus> before_;
  std::optional<control::AgentStatus> now_;
  std::string absence_;  // reason for a missing status
  TimePoint looked_{};
  double seconds_ = 1;
  bool ended_ = false;
  Terminal terminal_;
};

}  // namespace

void show_top(const Look& look, TopSettings settings, Duration interval) {
  Top(look, std::move(settings), interval).run();
}

}  // namespace verbena::commands

// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include "base/format.h"
#include "base/paths/state_path.h"
#include "base/paths/users.h"
#include "commands/doctor/checks.h"
#include "commands/doctor/command_output.h"
#include "commands/verbena/installation.h"
#include "commands/verbena/names.h"
#include "control/client/command_client.h"
#include "control/model/agent_process.h"

namespace verbena::commands::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAgent = "agent";
// An agent that starts successfully prints no error within this time.
constexpr Duration kPatience = std::chrono::seconds(2);

// ---- the agent's directory

struct Complaint {
  std::string what;
  std::string remedy;
};

// Explains why an agent of `owner` cannot use its directory. It never advises to remove a directory: programs
// of another user may be using it.
Complaint complaint_about(const char* path, const struct stat& status, uid_t owner) {
  if (!S_ISDIR(status.st_mode)) {
    return {"is no directory",
            verbena::format("have its owner (user {}) give it another name", status.st_uid)};
  }
  if (paths::is_ambiguous(status.st_uid)) {
    return {verbena::format("belongs to a user who has no number in this user namespace (shown as {}), and "
                            "users without a number can write above it",
                            status.st_uid),
            "have root allow only itself to write to the directories above it, or start the agent in this "
            "user namespace beforehand: verbena agent"};
  }
  if (status.st_uid != paths::shown_as(owner)) {
    return {verbena::format("belongs to user {}", status.st_uid),
            verbena::format("have user {} give it another name, if no agent of that user uses it",
                            status.st_uid)};
  }
  return {verbena::format("can be written to by others (mode {:o})", status.st_mode & 07777),
          verbena::format("chmod go-w {}", path)};
}

void look_at_directory(uid_t owner, Findings& findings) {
  for (const paths::PathText& path : {paths::state_home_for(owner), paths::state_path_for(owner)}) {
    struct stat status {};
    if (!path.valid() || ::lstat(path.c_str(), &status) != 0) continue;
    if (paths::is_private_directory(path.c_str(), owner)) continue;
    const Complaint complaint = complaint_about(path.c_str(), status, owner);
    findings.fault(
        kAgent,
        verbena::format("{} {}: the agent of user {} does not use it, and programs find no device in /sys",
                        path.c_str(), complaint.what, owner),
        complaint.remedy);
    return;
  }
}

// ---- the agent's process

struct AgentProcess {
  std::string pid;
  char state = '?';  // as in proc(5); T: stopped
};

std::string network_of(const std::string& pid) {
  std::error_code ignored;
  return fs::read_symlink("/proc/" + pid + "/ns/net", ignored).string();
}

char state_of(const std::string& pid) {
  std::ifstream stream("/proc/" + pid + "/stat");
  std::string line;
  std::getline(stream, line);
  const size_t end = line.rfind(')');  // the name may contain any character
  return end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
}

// Finds an agent in this network namespace; prefers a stopped one.
std::optional<AgentProcess> find_agent_process() {
  std::optional<AgentProcess> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string name;
    std::ifstream stream(entry.path() / "comm");
    std::getline(stream, name);
    const std::string network = network_of(pid);
    if (name != "verbena-agent" || (!network.empty() && network != network_of("self"))) continue;
    const AgentProcess one{pid, state_of(pid)};
    if (!found || one.state == 'T') found = one;
  }
  return found;
}

void say_it_is_silent(const control::AdminError& error, Findings& findings) {
  const auto process = find_agent_process();
  if (process && process->state == 'T') {
    findings.fault(kAgent, verbena::format("agent (pid {}) does not respond; it is stopped", process->pid),
                   verbena::format("let it go on: kill -CONT {}", process->pid));
    return;
  }
  findings.fault(
      kAgent,
      verbena::format("an agent is there{} and does not answer: {}",
                      process ? verbena::format(" (pid {})", process->pid) : "", error.text),
      process ? verbena::format("end it, the next one takes over what it has: kill -9 {}", process->pid)
              : "look for it: ps -C verbena-agent");
}

// ---- no agent runs

// Tries to start an agent and returns its error; empty if it starts.
std::string last_words_of(const std::string& program) {
  const auto ran = run_command({program, "--foreground"}, kPatience, {"VERBENA_LOG=error"});
  if (!ran) return verbena::format("{} cannot be run", program);
  if (ran->timed_out) return {};
  const std::string first = ran->errors.substr(0, ran->errors.find('\n'));
  return first.empty() ? verbena::format("it ends with status {}", ran->status) : first;
}

void say_none_can_be_started(const std::string& program, Findings& findings) {
  if (program.empty() || ::access(program.c_str(), X_OK) != 0) {
    findings.fault(kAgent,
                   program.empty() ? "no agent runs, and there is no verbena-agent to start"
                                   : verbena::format("no agent runs, and {} cannot be started: {}", program,
                                                     std::strerror(errno)),
                   "install Verbena as a whole, or have VERBENA_AGENT name the program");
    return;
  }
  const std::string words = last_words_of(program);
  findings.fault(kAgent,
                 verbena::format("no agent runs, and none can be started: {}",
                                 words.empty() ? "it does not listen in time" : words),
                 "see what it says: VERBENA_LOG=debug verbena agent");
}

// ---- an agent answers

void look_at_answer(const control::AgentStatus& status, Findings& findings) {
  if (status.refused.count > 0) {
    findings.fault(kAgent,
                   verbena::format("programs came whose libraries speak another version of the protocol than "
                                   "the agent's {}: {} times, the last was pid {} with version {}",
                                   status.protocol_version, status.refused.count, status.refused.last_pid,
                                   status.refused.last_version),
                   "start those programs again with the libraries that are installed now");
  }
  if (status.version != VERBENA_VERSION) {
    findings.cost(kAgent,
                  verbena::format("the agent is of Verbena {}, this command of {}", printable(status.version),
                                  VERBENA_VERSION),
                  verbena::format("have a new one take over, programs go on: kill {}", status.pid));
  }
  if (findings.amiss(kAgent)) return;
  findings.fine(kAgent, verbena::format("answers: pid {}, {}", status.pid,
                                        status.uid == 0 ? "root's, which serves every user"
                                                        : verbena::format("of user {}", status.uid)));
}

}  // namespace

std::optional<control::AgentStatus> look_at_agent(Findings& findings) {
  const uid_t own = paths::own_user();
  for (const uid_t owner : {uid_t{0}, own}) {
    look_at_directory(owner, findings);
    if (own == 0) break;
  }
  const auto installation = Installation::of_this_program();
  const std::string program = control::find_agent_program(installation ? installation->agent.string() : "");
  auto admin = control::Admin::connect({.start_agent = true, .agent_program = program});
  if (!admin) {
    const control::AdminError& error = admin.error();
    if (error.code == ECONNREFUSED) {
      say_none_can_be_started(program, findings);
    } else if (error.code == EPROTONOSUPPORT) {
      findings.fault(kAgent, error.text,
                     "have the agent of this installation take over, programs go on: end the other one");
    } else if (error.code == EPERM) {
      findings.fault(kAgent, error.text, "ask root to start it without --serve-only, or for you");
    } else {
      say_it_is_silent(error, findings);
    }
    return std::nullopt;
  }
  auto status = (*admin)->status();
  if (!status) {
    say_it_is_silent(status.error(), findings);
    return std::nullopt;
  }
  look_at_answer(*status, findings);
  return std::move(*status);
}

}  // namespace verbena::commands::doctor

// SPDX-License-Identifier: Apache-2.0
#include "adapter/objects/support/environment.h"

#include <cstdio>
#include <cstdlib>
#include <exception>

#include <sys/wait.h>
#include <unistd.h>

namespace verbena::adapter::testing {
namespace {

struct Place {
  test::NetworkNamespace network;
  std::unique_ptr<test::AgentProcess> agent;
};
std::unique_ptr<Place> place;

constexpr const char* kNoNamespace = "no network namespace can be made here (neither root nor userns)";
constexpr int kSkipped = 77;

}  // namespace

void Environment::SetUp() {
  // Keeps the library from starting another agent where a test has ended ours.
  ::setenv("VERBENA_AGENT", "/nonexistent/verbena-agent", 1);  // NOLINT(concurrency-mt-unsafe): one thread
  place = std::make_unique<Place>();
  if (!place->network.entered()) GTEST_SKIP() << kNoNamespace;
  start_agent();
}

void Environment::TearDown() {
  place.reset();
}

test::AgentProcess& Environment::agent() {
  return *place->agent;
}

void Environment::kill_agent(int signal) {
  place->agent->stop(signal);
  place->agent.reset();
}

void Environment::start_agent() {
  place->agent = std::make_unique<test::AgentProcess>();
}

void isolated(const std::function<void()>& body, const std::function<void()>& before) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    place.release();  // NOLINT(bugprone-unused-return-value): belongs to the parent
    place = std::make_unique<Place>();
    if (!place->network.entered()) std::_Exit(kSkipped);
    try {
      before();
      Environment::start_agent();
      body();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    place->agent.reset();
    std::fflush(nullptr);
    std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << kNoNamespace;
  EXPECT_EQ(status, 0) << "the isolated process failed: see above";
}

}  // namespace verbena::adapter::testing

// SPDX-License-Identifier: Apache-2.0
// Protocol Buffers over the remote procedure calls of the C++ API.
#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

#include <google/protobuf/stubs/callback.h>
#include <greeter.pb.h>
#include <gtest/gtest.h>
#include <verbena/rpc.hpp>
#include <verbena/rpc/protobuf.hpp>

namespace verbena {
namespace {

using google::protobuf::Closure;
using google::protobuf::RpcController;
using test::Greeting;
using test::Name;

Greeting greeting_of(const Name& wanted) {
  Greeting made;
  for (int i = 0; i < wanted.times(); ++i) *made.mutable_text() += "hello " + wanted.name() + "; ";
  return made;
}

// Answers at once, or when the test says so.
class Greeter final : public test::Greeter {
 public:
  void Greet(RpcController* its, const Name* wanted, Greeting* made, Closure* done) override {
    controller = its;
    if (on_cancel != nullptr) its->NotifyOnCancel(on_cancel);
    *made = greeting_of(*wanted);
    if (is_late) {
      waiting.push_back(done);
    } else {
      done->Run();
    }
  }
  void Refuse(RpcController* outcome, const Name* wanted, Greeting*, Closure* done) override {
    outcome->SetFailed("no " + wanted->name());
    done->Run();
  }
  bool is_late = false;
  std::vector<Closure*> waiting;
  Closure* on_cancel = nullptr;
  RpcController* controller = nullptr;  // of the last call
};

class Protobuf : public ::testing::Test {
 protected:
  Protobuf() {
    rpc::protobuf::on<"greet", Name>(methods_, greeting_of);
    rpc::protobuf::on<"later", Name>(methods_, [this](const Name& wanted) -> task<Greeting> {
      co_await io_.yield();
      co_return greeting_of(wanted);
    });
    rpc::protobuf::add(io_, methods_, greeter_);
    name_.set_name("you");
    name_.set_times(2);
  }
  template <class Work>
  void run(Work work) {
    io_.run([this, &work](loop&) -> task<> {
      rpc::server server(io_, "127.0.0.1:0", methods_, options_);
      rpc::client client = co_await rpc::connect(io_, "127.0.0.1:" + std::to_string(server.port()));
      co_await work(client);
    });
  }

  loop io_;
  rpc::service methods_;
  rpc::server_options options_;
  Greeter greeter_;
  Name name_;
};

TEST_F(Protobuf, CallsMethodsOfMessages) {
  run([this](rpc::client& client) -> task<> {
    for (const char* method : {"greet", "later"}) {
      const auto made = co_await rpc::protobuf::call<Greeting>(client, method, name_);
      EXPECT_EQ(made.text(), "hello you; hello you; ");
    }
    name_.set_times(10'000);
    const auto large = co_await rpc::protobuf::call<Greeting>(client, "greet", name_);
    EXPECT_EQ(large.text().size(), 110'000U);
  });
}

TEST_F(Protobuf, RefusesWhatIsNoMessage) {
  run([](rpc::client& client) -> task<> {
    try {
      co_await client.call<"greet">("\xff\xff\xff");
      ADD_FAILURE();
    } catch (const exception& thrown) {
      EXPECT_EQ(thrown.error().code(), EBADMSG);
    }
  });
}

TEST_F(Protobuf, ServesGeneratedServices) {
  run([this](rpc::client& client) -> task<> {
    rpc::protobuf::channel channel(io_, client);
    test::Greeter::Stub stub(&channel);
    rpc::protobuf::detail::controller outcome;
    Greeting made;
    bool is_done = false;
    stub.Greet(&outcome, &name_, &made,
               google::protobuf::NewCallback(
                   +[](bool* done) { *done = true; }, &is_done));
    while (!is_done) co_await io_.yield();
    EXPECT_FALSE(outcome.Failed());
    EXPECT_EQ(made.text(), "hello you; hello you; ");
    is_done = false;
    stub.Refuse(&outcome, &name_, &made,
                google::protobuf::NewCallback(
                    +[](bool* done) { *done = true; }, &is_done));
    while (!is_done) co_await io_.yield();
    EXPECT_TRUE(outcome.Failed());
    EXPECT_NE(outcome.ErrorText().find("no you"), std::string::npos);
  });
}

// The service still has the messages of a call that the client has cancelled.
TEST_F(Protobuf, OutlivesCancelledCalls) {
  greeter_.is_late = true;
  run([this](rpc::client& client) -> task<> {
    {
      const auto forgotten = client.call("verbena.test.Greeter.Greet", name_.SerializeAsString());
      while (greeter_.waiting.empty()) co_await io_.yield();
    }
    const auto next = co_await rpc::protobuf::call<Greeting>(client, "greet", name_);
    EXPECT_FALSE(next.text().empty());
    for (Closure* each : greeter_.waiting) each->Run();
  });
}

// A client that cancels its calls has no more of them than others.
TEST_F(Protobuf, CountsCancelledCallsUntilTheServiceEndsThem) {
  options_.max_calls = 1;
  greeter_.is_late = true;
  run([this](rpc::client& client) -> task<> {
    for (std::size_t i = 1; i <= 3; ++i) {
      const auto forgotten = client.call("verbena.test.Greeter.Greet", name_.SerializeAsString());
      for (int turns = 0; turns < 200; ++turns) co_await io_.yield();
    }
    EXPECT_EQ(greeter_.waiting.size(), 1U);
    greeter_.waiting[0]->Run();
    const auto next = co_await rpc::protobuf::call<Greeting>(client, "greet", name_);
    EXPECT_FALSE(next.text().empty());
    EXPECT_EQ(greeter_.waiting.size(), 1U);
  });
}

TEST_F(Protobuf, TellsTheServiceOfCancellations) {
  greeter_.is_late = true;
  bool is_told = false;
  greeter_.on_cancel = google::protobuf::NewCallback(
      +[](bool* told) { *told = true; }, &is_told);
  run([&](rpc::client& client) -> task<> {
    {
      const auto forgotten = client.call("verbena.test.Greeter.Greet", name_.SerializeAsString());
      while (greeter_.waiting.empty()) co_await io_.yield();
      EXPECT_FALSE(is_told);
      EXPECT_FALSE(greeter_.controller->IsCanceled());
    }
    while (!is_told) co_await io_.yield();
    EXPECT_TRUE(greeter_.controller->IsCanceled());
    greeter_.waiting[0]->Run();
  });
}

// protobuf: "The closure will always be called exactly once", here at the end of the call.
TEST_F(Protobuf, TellsTheServiceOfTheEnd) {
  bool is_told = false;
  greeter_.on_cancel = google::protobuf::NewCallback(
      +[](bool* told) { *told = true; }, &is_told);
  run([&](rpc::client& client) -> task<> {
    co_await client.call("verbena.test.Greeter.Greet", name_.SerializeAsString());
    EXPECT_TRUE(is_told);
  });
}

}  // namespace
}  // namespace verbena

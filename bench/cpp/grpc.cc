// SPDX-License-Identifier: Apache-2.0
// Measures gRPC in the same way as rpc.cc measures our calls: a client and a server on one host, by loopback
// TCP, with gRPC's own threads. Prints calls per second with many under way, and percentiles of single calls.
//
// cpp_grpc [SECONDS [CALLS]]: SECONDS of each phase, 3 by default; CALLS under way, 256 by default.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <echo.grpc.pb.h>
#include <grpcpp/grpcpp.h>

namespace {

using Clock = std::chrono::steady_clock;
using verbena::bench::Echo;
using verbena::bench::Text;

class EchoService final : public Echo::CallbackService {
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const Text* in, Text* out) override {
    *out = *in;
    auto* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// One of the calls under way. Begins the next when it has ended.
class Caller {
 public:
  Caller(Echo::Stub& stub, const std::atomic<bool>& end) : stub_(stub), end_(end) {
    request_.set_text("eight by");
  }
  void begin() {
    is_done_ = false;
    context_ = std::make_unique<grpc::ClientContext>();
    stub_.async()->Call(context_.get(), &request_, &reply_, [this](const grpc::Status& status) {
      if (status.ok()) ++calls_;
      if (!end_ && status.ok()) return begin();
      is_done_ = true;
      is_done_.notify_one();
    });
  }
  std::uint64_t wait() {
    is_done_.wait(false);
    return calls_;
  }

 private:
  Echo::Stub& stub_;
  const std::atomic<bool>& end_;
  Text request_, reply_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::uint64_t calls_ = 0;
  std::atomic<bool> is_done_ = false;
};

double throughput(Echo::Stub& stub, std::chrono::seconds time, int depth) {
  std::atomic<bool> end = false;
  std::vector<std::unique_ptr<Caller>> all;
  const auto begin = Clock::now();
  for (int i = 0; i < depth; ++i) all.push_back(std::make_unique<Caller>(stub, end));
  for (const auto& each : all) each->begin();
  while (Clock::now() - begin < time) ::usleep(10'000);
  end = true;
  std::uint64_t calls = 0;
  for (const auto& each : all) calls += each->wait();
  return static_cast<double>(calls) / std::chrono::duration<double>(Clock::now() - begin).count();
}

void latency(Echo::Stub& stub, std::chrono::seconds time) {
  std::vector<double> all;
  Text request, reply;
  request.set_text("eight by");
  const auto end = Clock::now() + time;
  for (auto before = Clock::now(); before < end;) {
    grpc::ClientContext context;
    if (!stub.Call(&context, request, &reply).ok()) std::exit(1);
    const auto after = Clock::now();
    all.push_back(std::chrono::duration<double, std::micro>(after - before).count());
    before = after;
  }
  std::ranges::sort(all);
  const auto at = [&](double part) {
    return all[static_cast<std::size_t>(part * static_cast<double>(all.size() - 1))];
  };
  std::printf("gRPC, one call at a time: %zu calls, p50 %.2f us, p99 %.2f us, p99.9 %.2f us\n", all.size(),
              at(0.5), at(0.99), at(0.999));
}

}  // namespace

int main(int argc, char** argv) {
  const auto time = std::chrono::seconds(argc > 1 ? std::atoi(argv[1]) : 3);
  const int depth = argc > 2 ? std::atoi(argv[2]) : 256;
  EchoService service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const auto stub = Echo::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  throughput(*stub, std::chrono::seconds(1), depth);
  std::printf("gRPC, %d calls under way: %.0f calls/s\n", depth, throughput(*stub, time, depth));
  latency(*stub, time);
  server->Shutdown();
}

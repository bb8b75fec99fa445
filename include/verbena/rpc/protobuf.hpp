// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <google/protobuf/message.h>
#include <google/protobuf/service.h>
#include <verbena/async/loop.hpp>
#include <verbena/rpc/client.hpp>
#include <verbena/rpc/service.hpp>

// Protocol Buffers over remote procedure calls. A program that includes this header links libprotobuf.
//
//   rpc::protobuf::on<"store.get", GetRequest>(
//       methods, [&](const GetRequest& wanted) { return find(wanted); });
//   GetReply reply = co_await rpc::protobuf::call<GetReply>(client, "store.get", wanted, {.deadline = 1ms});
//
// Services that protoc generates (option cc_generic_services) work as they are: add() serves one, and its
// Stub takes a protobuf::channel.
namespace verbena::rpc::protobuf {

namespace detail {

inline error malformed(std::string_view method) {
  return {"parse a message of", EBADMSG, method, "client and server have different .proto files?"};
}

// The controller of a call of a generated service. The service reports failures by it, and learns by it when
// the call is cancelled or has ended.
class controller final : public google::protobuf::RpcController {
 public:
  void Reset() override {
    has_failed_ = is_cancelled_ = false;
    reason_.clear();
  }
  bool Failed() const override { return has_failed_; }
  std::string ErrorText() const override { return reason_; }
  void StartCancel() override {
    is_cancelled_ = true;
    run_on_cancel();
  }
  void SetFailed(const std::string& reason) override {
    has_failed_ = true;
    reason_ = reason;
  }
  bool IsCanceled() const override { return is_cancelled_; }
  // Runs the closure once: when the call is cancelled, or at its end.
  void NotifyOnCancel(google::protobuf::Closure* closure) override {
    on_cancel_ = closure;
    if (is_cancelled_ || has_ended_) run_on_cancel();
  }
  void end() {
    has_ended_ = true;
    run_on_cancel();
  }

 private:
  void run_on_cancel() {
    if (auto* const closure = std::exchange(on_cancel_, nullptr)) closure->Run();
  }

  bool has_failed_ = false;
  bool is_cancelled_ = false;
  bool has_ended_ = false;
  std::string reason_;
  google::protobuf::Closure* on_cancel_ = nullptr;
};

// A call of a generated service: its messages, and the closure that ends it. Shared by the handler's
// coroutine and the service, because a cancelled coroutine ends before the service does.
class generated_call final : public google::protobuf::Closure,
                             public std::enable_shared_from_this<generated_call> {
 public:
  explicit generated_call(loop& io) : io_(io) {}
  // Begins the call. This object and the client's call stay until the service has called its closure.
  void begin(google::protobuf::Service& service, const google::protobuf::MethodDescriptor& method,
             running_call& its) {
    kept_ = shared_from_this();
    hold_ = its.hold();
    service.CallMethod(&method, &outcome, request.get(), response.get(), this);
  }
  void Run() override {
    const auto kept = std::move(kept_);
    is_done_ = true;
    outcome.end();
    io_.wake_all(waiting_);
    hold_.reset();
  }
  // Tells the service that the client does not want the result any more. The service may then end the call
  // early.
  void cancel() {
    if (!is_done_) outcome.StartCancel();
  }
  auto done() {
    return verbena::detail::wait_in(waiting_, [this] { return is_done_; });
  }

  std::unique_ptr<google::protobuf::Message> request, response;
  controller outcome;

 private:
  loop& io_;
  bool is_done_ = false;
  verbena::detail::list<verbena::detail::waiter> waiting_;
  std::shared_ptr<generated_call> kept_;
  std::shared_ptr<void> hold_;
};

// Cancels a call whose coroutine is destroyed before the end of the call.
struct cancellation {
  generated_call& its;
  ~cancellation() { its.cancel(); }
};

inline task<reply> run(loop& io, google::protobuf::Service& service,
                       const google::protobuf::MethodDescriptor& method, std::string_view arguments,
                       running_call& its) {
  const auto own = std::make_shared<generated_call>(io);
  own->request.reset(service.GetRequestPrototype(&method).New());
  own->response.reset(service.GetResponsePrototype(&method).New());
  if (!own->request->ParseFromArray(arguments.data(), static_cast<int>(arguments.size())))
    co_return reply::failure(EBADMSG, "the arguments are no such message");
  own->begin(service, method, its);
  const cancellation at_end{*own};
  co_await own->done();
  if (own->outcome.Failed()) co_return reply::failure(EIO, own->outcome.ErrorText());
  co_return reply(own->response->SerializeAsString());
}

template <class Response>
task<Response> parsed(pending_call call, std::string method) {
  const std::string bytes = co_await call;
  Response response;
  if (!response.ParseFromString(bytes)) throw exception(malformed(method));
  co_return response;
}

}  // namespace detail

// Adds a method. Its handler is a function of a Request that returns a message, or a task of one.
template <method_name Name, class Request, class Handler>
void on(service& to, Handler with) {
  to.on<Name>([with = std::move(with)](std::string_view arguments) mutable -> task<reply> {
    Request request;
    if (!request.ParseFromArray(arguments.data(), static_cast<int>(arguments.size())))
      co_return reply::failure(EBADMSG, "the arguments are no such message");
    using returned = std::invoke_result_t<Handler&, const Request&>;
    if constexpr (std::is_base_of_v<google::protobuf::MessageLite, returned>) {
      co_return reply(with(request).SerializeAsString());
    } else {
      const auto made = co_await with(request);
      co_return reply(made.SerializeAsString());
    }
  });
}

// Adds all methods of a generated service, under names such as "package.Service.Method". Its methods may call
// their closures at any time on the loop's thread. REQUIRES: the service outlives the server
inline void add(loop& io, service& to, google::protobuf::Service& from) {
  const google::protobuf::ServiceDescriptor& all = *from.GetDescriptor();
  for (int i = 0; i < all.method_count(); ++i) {
    const google::protobuf::MethodDescriptor& method = *all.method(i);
    to.add(method.full_name(), [&io, &from, &method](std::string_view arguments, running_call& its) {
      return detail::run(io, from, method, arguments, its);
    });
  }
}

// Calls a method, and parses the reply. Throws exception: with EBADMSG for a reply of another type, or with
// the errors of pending_call.
template <class Response>
task<Response> call(client& by, std::string_view method, const google::protobuf::MessageLite& request,
                    call_options how = {}) {
  return detail::parsed<Response>(by.call(method, request.SerializeAsString(), how), std::string(method));
}

// Lets the stub of a generated service make its calls through a client. Only the thread of the client's loop
// may use it. Each call needs a controller, which gets the failures.
class channel final : public google::protobuf::RpcChannel {
 public:
  // REQUIRES: the client outlives the channel and its calls
  channel(loop& io, client& by, call_options how = {}) : io_(io), client_(by), how_(how) {}

  void CallMethod(const google::protobuf::MethodDescriptor* method, google::protobuf::RpcController* outcome,
                  const google::protobuf::Message* request, google::protobuf::Message* response,
                  google::protobuf::Closure* done) override {
    io_.spawn(finish(client_.call(method->full_name(), request->SerializeAsString(), how_), outcome, response,
                     done));
  }

 private:
  static task<> finish(pending_call call, google::protobuf::RpcController* outcome,
                       google::protobuf::Message* response, google::protobuf::Closure* done) {
    try {
      const std::string bytes = co_await call;
      if (!response->ParseFromString(bytes)) outcome->SetFailed("the reply is no such message");
    } catch (const exception& thrown) {
      outcome->SetFailed(thrown.what());
    }
    done->Run();
  }

  loop& io_;
  client& client_;
  const call_options how_;
};

}  // namespace verbena::rpc::protobuf

#include "triax/parallel/comm/gpu/device_comm.h"

#include <deque>

#include "triax/core/backend.h"
#include "triax/core/check.h"

namespace triax::parallel {

DeviceComm::DeviceComm(std::unique_ptr<Communicator> host, Device device)
    : WrapperComm(std::move(host)), device_(device) {}

Work DeviceComm::start(Transfer t) {
  bool here = false;
  for (const Tensor* x : {&t.from, &t.to}) {
    if (!x->defined()) continue;
    here = x->device() == device_;
    check(here || x->device() == cpu, "{}: {}; expected a tensor on {} or the cpu",
          name(t.call.kind), *x, device_);
  }
  if (here) return start_on_device(std::move(t));
  keep_order();
  return start_on_host(std::move(t));
}

std::unique_ptr<Communicator> DeviceComm::start_split(Group group, int number, int color) {
  return on(split_inner(std::move(group), number, color), color);
}

namespace {

using StartOnHost = std::function<Work(Transfer)>;

/// A transfer with its tensors on the GPU and their images on the host.
struct Staged {
  Transfer gpu, host;
  std::unique_ptr<Mark> arriving = {};  ///< until the host's input is there
  bool started = false;
  Work work = {};
  std::exception_ptr error = {};
};

/// The transfers of one communicator, which start in the order of the calls, each when its input
/// is on the host.
class StagingQueue final : public Engine {
 public:
  StagingQueue(Device device, std::shared_ptr<Fault> fault, StartOnHost start)
      : backend_(backend(device)), fault_(std::move(fault)), start_(std::move(start)) {
    Engines::of_this_thread().add(*this);
  }
  ~StagingQueue() override { Engines::of_this_thread().remove(*this); }

  std::shared_ptr<Staged> add(Transfer t) {
    auto s = std::make_shared<Staged>(Staged{.gpu = std::move(t)});
    s->host.call = s->gpu.call;
    s->host.from = image(s->gpu.from);
    bool in_place = s->gpu.from.defined() && s->gpu.to.defined() &&
                    s->gpu.from.data() == s->gpu.to.data() &&
                    s->gpu.from.bytes() == s->gpu.to.bytes();
    s->host.to = in_place ? s->host.from : image(s->gpu.to);
    if (s->gpu.from.defined() && s->gpu.from.numel()) {
      backend_.transfer(s->gpu.from, s->host.from);
      s->arriving = backend_.mark();
    }
    waiting_.push_back(s);
    advance();
    return s;
  }

  /// Copies the results of a transfer that is over on the host back to the GPU.
  void bring_back(Staged& s) {
    if (s.gpu.to.defined() && s.gpu.to.numel()) backend_.transfer(s.host.to, s.gpu.to);
    s.gpu = s.host = {};
  }
  void abandon(Staged& s) {
    std::erase_if(waiting_, [&](auto& w) { return w.get() == &s; });
  }

  void advance() noexcept override {
    while (!waiting_.empty() && arrived(*waiting_.front())) start_first();
  }
  void settle() noexcept override {
    for (; !waiting_.empty(); start_first()) arrived(*waiting_.front(), Wait::until_it_is);
  }
  /// Closes the queue with its communicator: transfers not started yet never will.
  void close() noexcept {
    for (auto& s : waiting_)
      s->error = std::make_exception_ptr(Error(
          Exit::peer_lost, "communicator: ended with operations in flight that had not started"));
    waiting_.clear();
    start_ = nullptr;
  }

 private:
  Tensor image(const Tensor& x) const {
    if (!x.defined()) return {};
    memory::Scope scope(memory::offloaded);
    auto storage = std::make_shared<Storage>(x.bytes(), cpu, backend_.host_allocator());
    return Tensor(std::move(storage), x.dtype(), x.shape(), contiguous_strides(x.shape()));
  }
  enum class Wait { no, until_it_is };

  bool arrived(Staged& s, Wait wait = Wait::no) noexcept {
    if (!s.arriving) return true;
    try {
      if (wait == Wait::no && !s.arriving->reached()) return false;
      s.arriving->wait();
      s.arriving = nullptr;
    } catch (...) {
      fail(s);
    }
    return true;
  }
  void start_first() noexcept {
    auto s = waiting_.front();
    waiting_.pop_front();
    if (s->error) return;
    try {
      if (fault_->error) std::rethrow_exception(fault_->error);
      s->work = start_(s->host);
      s->started = true;
    } catch (...) {
      fail(*s);
    }
  }
  void fail(Staged& s) noexcept {
    s.error = std::current_exception();
    fault_->note(s.error);
  }

  Backend& backend_;
  std::shared_ptr<Fault> fault_;
  StartOnHost start_;
  std::deque<std::shared_ptr<Staged>> waiting_;
};

class StagedOperation final : public Operation {
 public:
  StagedOperation(std::shared_ptr<StagingQueue> queue, std::shared_ptr<Staged> staged,
                  std::shared_ptr<Fault> fault)
      : queue_(std::move(queue)), staged_(std::move(staged)), fault_(std::move(fault)) {}

  bool advance() override {
    Engines::of_this_thread().poll();
    if (staged_->error) std::rethrow_exception(staged_->error);
    if (!staged_->started || !staged_->work.done()) return false;
    queue_->bring_back(*staged_);
    return true;
  }
  void wait() override {
    Engines::of_this_thread().settle();
    if (staged_->error) std::rethrow_exception(staged_->error);
    staged_->work.wait();
    queue_->bring_back(*staged_);
  }
  void abandon(std::exception_ptr error) noexcept override {
    fault_->note(error);
    queue_->abandon(*staged_);  // its work goes with it, and abandons what it has on the host
  }

 private:
  std::shared_ptr<StagingQueue> queue_;
  std::shared_ptr<Staged> staged_;
  std::shared_ptr<Fault> fault_;
};

class HostStaged final : public DeviceComm {
 public:
  HostStaged(std::unique_ptr<Communicator> on, Device device)
      : DeviceComm(std::move(on), device),
        queue_(std::make_shared<StagingQueue>(
            device, fault(), [this](Transfer t) { return start_on_host(std::move(t)); })) {
    transport_ = fmt::format("{} by way of the host", host().transport());
  }
  ~HostStaged() override {
    if (!std::uncaught_exceptions()) queue_->settle();
    queue_->close();
  }
  const char* transport() const override { return transport_.c_str(); }

 private:
  Work start_on_device(Transfer t) override {
    auto staged = queue_->add(std::move(t));
    return Work(std::make_shared<StagedOperation>(queue_, std::move(staged), fault()));
  }
  void keep_order() override { queue_->settle(); }
  std::unique_ptr<Communicator> on(std::unique_ptr<Communicator> part, int) override {
    return staged_on_host(std::move(part), device());
  }

  std::shared_ptr<StagingQueue> queue_;
  std::string transport_;
};

}  // namespace

std::unique_ptr<Communicator> staged_on_host(std::unique_ptr<Communicator> host, Device device) {
  return std::make_unique<HostStaged>(std::move(host), device);
}

}  // namespace triax::parallel

#include "triax/parallel/comm/gpu/nccl_comm.h"

#include <cstdlib>
#include <cstring>
#include <deque>

#include "triax/core/check.h"
#include "triax/core/shared/team.h"
#include "triax/parallel/comm/gpu/device_comm.h"
#include "triax/parallel/comm/gpu/gpu_ranks.h"
#include "triax/parallel/comm/gpu/nccl_handle.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/comm/together.h"

namespace triax::parallel {
namespace {

constexpr int oldest = 22600;  // no older one was read for what is relied on here

ncclDataType_t type_of(DType dtype) {
  constexpr ncclDataType_t types[dtype_count] = {
      ncclFloat32, ncclFloat64, ncclFloat16, ncclBfloat16, ncclInt32, ncclInt64, ncclUint8};
  return types[int(dtype)];
}

ncclRedOp_t op_of(ReduceOp op) {
  return op == ReduceOp::sum ? ncclSum : op == ReduceOp::max ? ncclMax : ncclMin;
}

/// The state of one rank, for all its communicators.
struct NcclRank {
  NcclRank(int on, std::function<void(const Error&)> lost, std::shared_ptr<CallLog> log)
      : device(on), watchdog(on, std::move(lost), std::move(log)) {}

  /// Returns an event that is no longer used, or a new one.
  std::shared_ptr<cuda::Event> event() {
    if (events.empty() || events.front().use_count() > 1)
      events.push_front(std::make_shared<cuda::Event>());
    events.push_back(std::move(events.front()));
    events.pop_front();
    return events.back();
  }

  int device;
  NcclWatchdog watchdog;
  std::deque<std::shared_ptr<cuda::Event>> events;  ///< those used last at the end
  std::vector<Transfer> abandoned;  ///< their tensors, until all communicators are gone
};

class NcclOperation final : public Operation {
 public:
  NcclOperation(Transfer t, std::shared_ptr<NcclRank> rank, std::shared_ptr<cuda::Event> done,
                std::shared_ptr<Fault> fault)
      : transfer_(std::move(t)),
        rank_(std::move(rank)),
        done_(std::move(done)),
        fault_(std::move(fault)) {}

  bool advance() override {
    rank_->watchdog.check();
    return !cuda::context(rank_->device).capturing() && done_->done();
  }
  void wait() override {
    rank_->watchdog.check();
    done_->hold(cuda::context(rank_->device).stream());
  }
  void abandon(std::exception_ptr error) noexcept override {
    fault_->note(error);
    rank_->abandoned.push_back(std::move(transfer_));
  }

 private:
  Transfer transfer_;
  std::shared_ptr<NcclRank> rank_;
  std::shared_ptr<cuda::Event> done_;
  std::shared_ptr<Fault> fault_;
};

/// Messages that start together.
class NcclMessages {
 public:
  NcclMessages(ncclComm_t comm, cudaStream_t stream)
      : comm_(comm), stream_(stream), first_(ncclGroupStart()) {}
  void send(const void* data, size_t bytes, int to) {
    if (bytes) note(ncclSend(data, bytes, ncclUint8, to, comm_, stream_));
  }
  void receive(void* data, size_t bytes, int from) {
    if (bytes) note(ncclRecv(data, bytes, ncclUint8, from, comm_, stream_));
  }
  /// Returns NCCL's first error, or its status.
  ncclResult_t end() {
    ncclResult_t end = ncclGroupEnd();
    return first_ == ncclSuccess ? end : first_;
  }

 private:
  void note(ncclResult_t result) {
    if (first_ == ncclSuccess && result != ncclInProgress) first_ = result;
  }
  ncclComm_t comm_;
  cudaStream_t stream_;
  ncclResult_t first_;
};

class NcclComm final : public DeviceComm {
 public:
  NcclComm(std::unique_ptr<Communicator> on, std::shared_ptr<NcclRank> rank,
           std::shared_ptr<NcclHandle> handle)
      : DeviceComm(std::move(on), {Device::Kind::cuda, rank->device}),
        rank_(std::move(rank)),
        handle_(std::move(handle)) {
    rank_->watchdog.add(handle_);
    if (group().traffic.messages && size() == 2) connect();
  }
  ~NcclComm() override {
    if (std::uncaught_exceptions() > unwinding_) rank_->watchdog.abort_in_flight();
    if (fault()->error) handle_->abort();
    handle_->close();
  }
  const char* transport() const override { return "NCCL"; }

 private:
  Work start_on_device(Transfer t) override {
    rank_->watchdog.check();
    if (t.call.numel == 0) return {};
    auto done = queue(t.call, [&](ncclComm_t comm) { return ask(t, comm); });
    return Work(std::make_shared<NcclOperation>(std::move(t), rank_, std::move(done), fault()));
  }

  /// Queues a call of NCCL after what the compute stream holds now.
  std::shared_ptr<cuda::Event> queue(const Call& call,
                                     const std::function<ncclResult_t(ncclComm_t)>& ask_nccl) {
    ready_.record(cuda::context(rank_->device).stream());
    ready_.hold(handle_->stream());
    rank_->watchdog.log().note(handle_->logged(), call);
    ++calls_;
    handle_->run(name(call.kind).data(), ask_nccl);
    auto done = rank_->event();
    done->record(handle_->stream());
    // What is captured is watched by what is queued behind its launch.
    if (!cuda::context(rank_->device).capturing())
      rank_->watchdog.watch(call, calls_, handle_, done);
    return done;
  }

  ncclResult_t ask(const Transfer& t, ncclComm_t comm) const {
    const Call& c = t.call;
    const void* from = t.from.defined() ? t.from.data() : nullptr;
    void* to = t.to.defined() ? t.to.data() : nullptr;
    auto n = size_t(c.numel);
    ncclDataType_t type = type_of(c.dtype);
    cudaStream_t stream = handle_->stream();
    switch (c.kind) {
      case Call::all_reduce:
        return ncclAllReduce(from, to, n, type, op_of(c.op), comm, stream);
      case Call::all_gather:
        return ncclAllGather(from, to, n, type, comm, stream);
      case Call::reduce_scatter:
        return ncclReduceScatter(from, to, n, type, op_of(c.op), comm, stream);
      case Call::broadcast:
        return ncclBroadcast(from ? from : to, to ? to : const_cast<void*>(from), n, type, c.peer,
                             comm, stream);
      case Call::reduce:
        return ncclReduce(from, to, n, type, op_of(c.op), c.peer, comm, stream);
      case Call::gather:
      case Call::scatter:
        return exchange_with_root(t, comm);
      case Call::send:
        return ncclSend(from, n, type, c.peer, comm, stream);
      case Call::recv:
        return ncclRecv(to, n, type, c.peer, comm, stream);
      case Call::all_to_all:
        return swap_slices(t, comm);
      case Call::barrier:
      case Call::split:
        break;  // never of tensors on a GPU
    }
    return ncclInvalidUsage;
  }

  /// Done by messages: NCCL has gather and scatter from 2.28 on only.
  ncclResult_t exchange_with_root(const Transfer& t, ncclComm_t comm) const {
    const Call& c = t.call;
    bool gathers = c.kind == Call::gather, is_root = rank() == c.peer;
    size_t bytes = size_t(c.numel) * size_of(c.dtype);
    auto* from = t.from.defined() ? static_cast<const char*>(t.from.data()) : nullptr;
    auto* to = t.to.defined() ? static_cast<char*>(t.to.data()) : nullptr;
    NcclMessages messages(comm, handle_->stream());
    for (int r = 0; is_root && r < size(); ++r)
      if (gathers) messages.receive(to + size_t(r) * bytes, bytes, r);
      else messages.send(from + size_t(r) * bytes, bytes, r);
    if (gathers) messages.send(from, bytes, c.peer);
    else messages.receive(to, bytes, c.peer);
    return messages.end();
  }

  ncclResult_t swap_slices(const Transfer& t, ncclComm_t comm) const {
    NcclMessages messages(comm, handle_->stream());
    for (int r = 0; r < size(); ++r) {
      Slice out = t.call.slice(size(), rank(), r), in = t.call.slice(size(), r, rank());
      messages.send(static_cast<const char*>(t.from.data()) + out.from, out.bytes, r);
      messages.receive(static_cast<char*>(t.to.data()) + in.to, in.bytes, r);
    }
    return messages.end();
  }

  /// Connects two ranks, as NCCL does at their first message, letting neither go on before.
  /// Pipeline stages send first messages in different orders, so it is done here, where both are.
  void connect() {
    Tensor bytes = empty({2}, u8);
    Call call{.kind = Call::split, .numel = 1, .place = Place::here()};
    auto done = queue(call, [&](ncclComm_t comm) {
      auto* data = static_cast<char*>(bytes.data());
      NcclMessages messages(comm, handle_->stream());
      messages.send(data, 1, 1 - rank());
      messages.receive(data + 1, 1, 1 - rank());
      return messages.end();
    });
    done->hold(cuda::context(rank_->device).stream());
  }

  std::unique_ptr<Communicator> on(std::unique_ptr<Communicator> part, int color) override {
    int nccl_color = part->size() > 1 ? color : NCCL_SPLIT_NOCOLOR;
    auto handle = std::make_shared<NcclHandle>(part->group(), *handle_, nccl_color);
    return std::make_unique<NcclComm>(std::move(part), rank_, std::move(handle));
  }

  std::shared_ptr<NcclRank> rank_;
  std::shared_ptr<NcclHandle> handle_;
  cuda::Event ready_;
  int64_t calls_ = 0;
  int unwinding_ = std::uncaught_exceptions();  // when it was made
};

void end_process(const Error& error) {
  report_failure(error, announced_by_launcher().rank);
  std::_Exit(int(error.code()));
}

}  // namespace

void prepare_nccl() {
  constexpr int unless_set = 0;
  ::setenv("CUDA_MODULE_LOADING", "EAGER", unless_set);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", unless_set);
  ::setenv("NCCL_RUNTIME_CONNECT", "0", unless_set);
}

std::string nccl_version() {
  int version = 0;
  ncclGetVersion(&version);
  std::string text = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  check_input(version >= oldest, Exit::config,
              "nccl: version {} was found; 2.26 or later is needed\n  Put the directory of another "
              "libnccl.so.2 first in LD_LIBRARY_PATH, or use --comm mpi.",
              text);
  return text;
}

std::unique_ptr<Communicator> nccl_world(std::unique_ptr<Communicator> world, Device device,
                                         NcclOptions options) {
  std::string obstacle =
      nccl_obstacle(gather_gpu_ranks(*world, gpu_rank_of(device, usable_cores())));
  check_input(obstacle.empty(), Exit::config, "{}", obstacle);
  cuda::context(device.index);
  ncclUniqueId id{};
  if (world->rank() == 0)
    if (ncclResult_t made = ncclGetUniqueId(&id); made != ncclSuccess)
      throw nccl_error(made, "ncclGetUniqueId", nullptr);
  std::string bytes = broadcast_text(*world, {reinterpret_cast<char*>(&id), sizeof id});
  std::memcpy(&id, bytes.data(), sizeof id);
  std::string job = fmt::format("{:016x}", std::hash<std::string>()(bytes));
  auto rank =
      std::make_shared<NcclRank>(device.index, options.lost ? std::move(options.lost) : end_process,
                                 std::make_shared<CallLog>(job, world->group()));
  auto handle = std::make_shared<NcclHandle>(world->group(), id);
  return std::make_unique<NcclComm>(std::move(world), std::move(rank), std::move(handle));
}

}  // namespace triax::parallel

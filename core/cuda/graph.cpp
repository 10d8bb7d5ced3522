#include "triax/core/check.h"
#include "triax/core/cuda/cuda.h"
#include "triax/core/cuda/runtime/context.h"
#include "triax/core/cuda/runtime/status.h"

// A whole step captured from the calling thread's stream. Streams that join by events (transfers
// between ranks) are captured with it.

namespace triax::cuda::TRIAX_TARGET {

namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const noexcept { cudaGraphDestroy(graph); }
  void operator()(cudaGraphExec_t graph) const noexcept { cudaGraphExecDestroy(graph); }
};
using Captured = std::unique_ptr<CUgraph_st, DestroyGraph>;

/// While it lives, work is captured and not run. An exception drops what was captured.
class Capture : Immovable {
 public:
  Capture(Context& c, const int64_t* shifted_rows) : context_(c) {
    require(cudaStreamBeginCapture(c.stream(), cudaStreamCaptureModeThreadLocal),
            "cudaStreamBeginCapture");
    context_.set_shifted_rows(shifted_rows);
  }
  ~Capture() {
    context_.set_shifted_rows(nullptr);
    if (ended_) return;
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(context_.stream(), &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  Captured end() {
    ended_ = true;
    cudaGraph_t graph = nullptr;
    require(cudaStreamEndCapture(context_.stream(), &graph), "cudaStreamEndCapture");
    return Captured(graph);
  }

 private:
  Context& context_;
  bool ended_ = false;
};

class StepGraph final : public Graph {
 public:
  StepGraph(int index, const std::function<void()>& work)
      : index_(index), shift_(zeros({1}, i64, {Device::Kind::cuda, index})) {
    Context& c = context(index);
    Captured graph;
    {
      Capture capture(c, shift_.data<int64_t>());
      work();
      graph = capture.end();
    }
    cudaGraphExec_t exec = nullptr;
    require(cudaGraphInstantiate(&exec, graph.get(), 0), "cudaGraphInstantiate");
    exec_.reset(exec);
    blocks_ = c.pool()->set_aside();
  }
  /// It may be running. While an exception unwinds it may also wait for ranks that never come.
  ~StepGraph() override {
    if (!std::uncaught_exceptions()) cudaStreamSynchronize(context(index_).stream());
  }

  void launch(int64_t rows) override {
    copy_(shift_, from_host(std::vector<int64_t>{rows}, {1}, cpu));
    require(cudaGraphLaunch(exec_.get(), context(index_).stream()), "cudaGraphLaunch");
  }

 private:
  int index_;
  Tensor shift_;
  std::shared_ptr<void> blocks_;
  std::unique_ptr<CUgraphExec_st, DestroyGraph> exec_;
};

}  // namespace

std::unique_ptr<Graph> Cuda::capture(const std::function<void()>& work) {
  return std::make_unique<StepGraph>(index_, work);
}

}  // namespace triax::cuda::TRIAX_TARGET

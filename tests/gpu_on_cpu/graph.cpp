#include <utility>

#include "tests/gpu_on_cpu/device.h"

using namespace triax::gpu_on_cpu;

namespace {

thread_local std::vector<std::shared_ptr<CUgraph_st>> captures;  // that this thread began
thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;

}  // namespace

bool triax::gpu_on_cpu::thread_captures() {
  return !captures.empty() && mode != cudaStreamCaptureModeRelaxed;
}
cudaError_t triax::gpu_on_cpu::invalidate(cudaError_t status) {
  for (auto& graph : captures) graph->invalid = true;
  return remember(status);
}
cudaError_t triax::gpu_on_cpu::refuse_while_captured() {
  return invalidate(cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* other) {
  std::swap(mode, *other);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capture()) return remember(cudaErrorIllegalState);
  stream->capture() = std::make_shared<CUgraph_st>();
  stream->began = true;
  captures.push_back(stream->capture());
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream->capture()) return remember(cudaErrorIllegalState);
  if (!stream->began) return remember(cudaErrorStreamCaptureUnmatched);
  std::shared_ptr<CUgraph_st> ended = stream->capture();
  ended->over = true;
  std::erase(captures, ended);
  if (ended->invalid) return remember(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{std::move(ended->works), true};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec =
      new CUgraphExec_st{std::make_shared<const std::vector<std::function<void()>>>(graph->works)};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (capturing(stream)) return remember(cudaErrorStreamCaptureUnsupported);
  enqueue(stream, [works = exec->works] {
    for (auto& work : *works) work();
  });
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  *count = graph->works.size();
  return cudaSuccess;
}

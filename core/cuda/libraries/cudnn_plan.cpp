#include <algorithm>

#include "triax/core/check.h"
#include "triax/core/cuda/libraries/cudnn_graph.h"

namespace triax::cuda::dnn {

namespace {

/// True if the library is there but incomplete, or does not fit the driver or CUDA's runtime.
bool is_installation(cudnnStatus_t status) {
  return status == CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER ||
         status == CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART ||
         status == CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING ||
         status == CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE;
}

/// Returns the engines that a search found.
std::vector<Descriptor> results_of(const Descriptor& search) {
  int64_t count = 0;
  require(cudnnBackendGetAttribute(search.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
          "cudnnBackendGetAttribute");
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> filled;
  for (int64_t i = 0; i < count; ++i)
    filled.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  if (count > 0)
    require(cudnnBackendGetAttribute(search.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, filled.data()),
            "cudnnBackendGetAttribute");
  found.erase(found.begin() + count, found.end());
  return found;
}

}  // namespace

std::string describe(cudnnStatus_t status) {
  char details[1024] = "";
  cudnnGetLastErrorString(details, sizeof details);
  std::string text = cudnnGetErrorString(status);
  if (*details) text += std::string(": ") + details;
  if (is_installation(status))
    text +=
        "\n  Install what cuDNN needs (docs/gpu.md), or put TRIAX_CUDNN=0 into the environment: "
        "triax's own kernels are slower.";
  return text;
}

void require(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  bool memory = status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  fail(memory ? Exit::memory : Exit::internal, "cuda: {}: {}", call, describe(status));
}

bool is_refusal(cudnnStatus_t status) {
  return status >= 2000 && status < 4000 && !is_installation(status);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  require(cudnnBackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor");
  descriptor_.reset(made);
}
Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t count, const void* values) {
  require(cudnnBackendSetAttribute(get(), name, type, count, values), "cudnnBackendSetAttribute");
  return *this;
}
Descriptor& Descriptor::refer(cudnnBackendAttributeName_t name, const Descriptor& to) {
  return refer(name, std::span(&to, 1));
}
Descriptor& Descriptor::refer(cudnnBackendAttributeName_t name, std::span<const Descriptor> to) {
  std::vector<cudnnBackendDescriptor_t> others;
  for (const Descriptor& d : to) others.push_back(d.get());
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, int64_t(others.size()), others.data());
}
int64_t Descriptor::number(cudnnBackendAttributeName_t name) const {
  int64_t count = 0, value = 0;
  require(cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_INT64, 1, &count, &value),
          "cudnnBackendGetAttribute");
  return value;
}
cudnnStatus_t Descriptor::try_finalize() { return cudnnBackendFinalize(get()); }
void Descriptor::finalize() { require(try_finalize(), "cudnnBackendFinalize"); }

std::vector<cudnnBackendNumericalNote_t> notes_of(const Descriptor& engine) {
  Descriptor kind(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t filled = kind.get();
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  int64_t count = 0;
  require(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &filled),
          "cudnnBackendGetAttribute");
  require(
      cudnnBackendGetAttribute(filled, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                               int64_t(notes.size()), &count, notes.data()),
      "cudnnBackendGetAttribute");
  notes.resize(size_t(count));
  return notes;
}

bool Graph::is_avoided(const Descriptor& engine) const {
  if (avoided_.empty()) return false;
  auto notes = notes_of(engine);
  return std::find_first_of(notes.begin(), notes.end(), avoided_.begin(), avoided_.end()) !=
         notes.end();
}

std::vector<Descriptor> Graph::engines(const Descriptor& gpu, std::string& refusal) {
  whole_ = std::make_unique<Descriptor>(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  whole_->refer(CUDNN_ATTR_OPERATIONGRAPH_OPS, ops_);
  cudnnStatus_t status = whole_->try_finalize();
  bool accepted = status == CUDNN_STATUS_SUCCESS;
  // Fast ones by its heuristic first; where all of these are avoided or refused, what works.
  for (auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (!accepted) break;
    Descriptor search(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    search.refer(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, *whole_);
    search.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    search.refer(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, gpu);
    status = search.try_finalize();
    if (status != CUDNN_STATUS_SUCCESS) continue;
    std::vector<Descriptor> found = results_of(search);
    std::erase_if(found, [&](const Descriptor& engine) { return is_avoided(engine); });
    if (!found.empty()) return found;
  }
  if (status != CUDNN_STATUS_SUCCESS && !is_refusal(status))
    require(status, "cudnnBackendFinalize");
  refusal = status == CUDNN_STATUS_SUCCESS ? "no engine for this graph" : describe(status);
  return {};
}

Plan::Plan(Graph graph, std::vector<Descriptor> engines, Descriptor plan)
    : graph_(std::move(graph)),
      engines_(std::move(engines)),
      plan_(std::move(plan)),
      workspace_(size_t(plan_.number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE))) {}

std::unique_ptr<Plan> Plan::make(Graph graph, const Descriptor& gpu, std::string& refusal) {
  std::vector<Descriptor> engines = graph.engines(gpu, refusal);
  std::string failure;
  for (const Descriptor& engine : engines) {
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.refer(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
    plan.refer(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, gpu);
    cudnnStatus_t status = plan.try_finalize();
    if (status == CUDNN_STATUS_SUCCESS)
      return std::unique_ptr<Plan>(new Plan(std::move(graph), std::move(engines), std::move(plan)));
    (is_refusal(status) ? refusal : failure) = describe(status);
  }
  check(failure.empty(), "cuda: cudnnBackendFinalize of an execution plan: {}", failure);
  return nullptr;
}

void Plan::execute(cudnnHandle_t handle, std::span<const Place> places, void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<void*> addresses;
  for (const Place& p : places) ids.push_back(p.id), addresses.push_back(p.address);
  Descriptor arguments(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  arguments.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(ids));
  arguments.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(addresses));
  arguments.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
  arguments.finalize();
  std::lock_guard guard(executing_);
  require(cudnnBackendExecute(handle, plan_.get(), arguments.get()), "cudnnBackendExecute");
}

}  // namespace triax::cuda::dnn

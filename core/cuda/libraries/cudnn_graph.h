#pragma once
#include <cudnn.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

// cuDNN's backend interface (cuDNN 9, "Graph API"), as far as fused graphs need it.

namespace triax::cuda::dnn {

/// Throws `cuda: CALL: the library's text` unless `status` is success: Error 71 if memory ran out,
/// else Error 70.
void require(cudnnStatus_t status, const char* call);

/// Returns the library's text for `status` and for its last failure on this thread.
std::string describe(cudnnStatus_t status);

/// True if `status` says that the library has nothing for the request (its 2000s and 3000s).
bool is_refusal(cudnnStatus_t status);

template <class T> inline constexpr cudnnBackendAttributeType_t attribute_type = {};
template <> inline constexpr auto attribute_type<int64_t> = CUDNN_TYPE_INT64;
template <> inline constexpr auto attribute_type<int32_t> = CUDNN_TYPE_INT32;
template <> inline constexpr auto attribute_type<bool> = CUDNN_TYPE_BOOLEAN;
template <> inline constexpr auto attribute_type<char> = CUDNN_TYPE_CHAR;
template <> inline constexpr auto attribute_type<float> = CUDNN_TYPE_FLOAT;
template <> inline constexpr auto attribute_type<void*> = CUDNN_TYPE_VOID_PTR;
template <> inline constexpr auto attribute_type<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <> inline constexpr auto attribute_type<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr auto attribute_type<cudnnReduceTensorOp_t> = CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
template <> inline constexpr auto attribute_type<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr auto attribute_type<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;

/// An object of the library: made, given attributes, and made final; after that others may refer to
/// it and nothing more is set.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  template <class T> Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, attribute_type<T>, 1, &value);
  }
  template <class T> Descriptor& set(cudnnBackendAttributeName_t name, std::span<T> values) {
    return set(name, attribute_type<std::remove_const_t<T>>, int64_t(values.size()), values.data());
  }
  /// Sets references to others, which must live on.
  Descriptor& refer(cudnnBackendAttributeName_t name, const Descriptor& to);
  Descriptor& refer(cudnnBackendAttributeName_t name, std::span<const Descriptor> to);
  int64_t number(cudnnBackendAttributeName_t name) const;
  void finalize();
  cudnnStatus_t try_finalize();
  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }

 private:
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void* values);
  struct Destroy {
    void operator()(cudnnBackendDescriptor_t d) const noexcept { cudnnBackendDestroyDescriptor(d); }
  };
  std::unique_ptr<void, Destroy> descriptor_;
};

/// Returns the library's notes on the numbers of an engine, one of Graph::engines().
std::vector<cudnnBackendNumericalNote_t> notes_of(const Descriptor& engine);

using Sizes = std::vector<int64_t>;

/// A tensor of a graph: an argument in memory, or a result that lives in registers only. Sizes are
/// (batch, head, row, column), for convolutions (batch, channel, row, column).
struct Value {
  const Descriptor* tensor;
  Sizes sizes, strides;
};

/// y = mode(x, b), elementwise, with b stretched to x; or x where `condition`, elsewhere b; or the
/// index along `axis` of every element of x.
struct Pointwise {
  cudnnPointwiseMode_t mode;
  const Value& x;
  const Value *b = nullptr, *condition = nullptr;
  const Value& y;
  int64_t axis = -1;
  cudnnDataType_t computed_in = CUDNN_DATA_FLOAT;
};

/// A cross-correlation or one of its gradients: `pass` names which of y, x and weight is written
/// from the other two.
struct Convolution {
  enum class Pass { forward, input_gradient, weight_gradient } pass;
  const Value &x, &weight, &y;
  Sizes stride, padding, dilation;  // (row, column)
};

/// A list of ops, in the order in which they are added. Results without a place are f32 and not
/// stored; sums are made in f32.
class Graph {
 public:
  /// Adds a tensor in memory, at an address (a multiple of 16) that an execution gives under `id`.
  Value argument(int64_t id, const Sizes& sizes, const Sizes& strides, cudnnDataType_t type);
  /// Adds one f32 of host memory, read when the execution begins.
  Value scalar(int64_t id);
  Value temporary(const Sizes& sizes, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  /// Adds an f32 temporary of x's sizes and strides.
  Value temporary_like(const Value& x);

  Value matmul(const Value& a, const Value& b);
  void matmul(const Value& a, const Value& b, const Value& c);
  /// Adds mode(x), or mode(x, b) with b stretched to x.
  Value pointwise(cudnnPointwiseMode_t mode, const Value& x);
  Value pointwise(cudnnPointwiseMode_t mode, const Value& x, const Value& b);
  void add(const Pointwise& p);
  void add(const Convolution& c);
  /// Adds x where column <= row, else `masked`.
  Value lower_triangle(const Value& x, const Value& masked);
  /// Adds a reduction over columns.
  Value reduce(cudnnReduceTensorOp_t op, const Value& x);
  /// Adds x with rows and columns exchanged, as another view.
  Value transpose(const Value& x, cudnnDataType_t type);

  /// Makes engines() leave out those with one of these notes.
  void avoid(std::vector<cudnnBackendNumericalNote_t> notes) { avoided_ = std::move(notes); }
  /// Returns the library's engines for this graph, configured, best first, for `gpu`, a
  /// CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR. Empty, with the reason in `refusal`, if there are none.
  std::vector<Descriptor> engines(const Descriptor& gpu, std::string& refusal);
  size_t ops() const { return ops_.size(); }

 private:
  Value tensor(int64_t id, Value shape, cudnnDataType_t type, bool temporary, bool by_value);
  const Descriptor& keep(Descriptor d);
  bool is_avoided(const Descriptor& engine) const;

  std::vector<std::unique_ptr<Descriptor>> kept_;
  std::vector<Descriptor> ops_;
  std::unique_ptr<Descriptor> whole_;
  std::vector<cudnnBackendNumericalNote_t> avoided_;
  int64_t next_id_ = 1000;  // of temporaries; arguments stay below
};

/// The address of an argument in one execution.
struct Place {
  int64_t id;
  void* address;
};

/// A graph compiled by one of its engines.
class Plan {
 public:
  /// Compiles with the first of `engines` that can; null, with the reason in `refusal`, if none
  /// can. Throws Error 70 if compiling failed for another reason than the graph.
  static std::unique_ptr<Plan> make(Graph graph, const Descriptor& gpu, std::string& refusal);
  size_t workspace() const { return workspace_; }
  /// Queues the plan on the handle's stream; `workspace` is large enough and a multiple of 16. One
  /// thread at a time: not all of the library's engines allow more.
  void execute(cudnnHandle_t handle, std::span<const Place> places, void* workspace) const;

 private:
  Plan(Graph graph, std::vector<Descriptor> engines, Descriptor plan);
  Graph graph_;
  std::vector<Descriptor> engines_;
  Descriptor plan_;
  size_t workspace_;
  mutable std::mutex executing_;
};

}  // namespace triax::cuda::dnn

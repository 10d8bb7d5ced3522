#pragma once
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "triax/core/error.h"
#include "triax/nn/buffer.h"
#include "triax/nn/parameter.h"

namespace triax::nn {

/// A named tree of parameters. A module owns its parameters and children by name and keeps plain
/// references to them; what it computes is its call operator, of whatever form fits:
///
///   struct Mlp : nn::Module {
///     nn::Linear& up = child<nn::Linear>("up", 2, 64);
///     nn::Linear& down = child<nn::Linear>("down", 64, 1);
///     Tensor operator()(const Tensor& x) const { return down(relu(up(x))); }
///   };
///
/// Constructors allocate no tensors, so a rank can build the whole model and hold only its part.
class Module : Immovable {
 public:
  virtual ~Module() = default;

  /// Returns all parameters: own ones in order of declaration, then each child's.
  std::vector<Parameter*> parameters();
  /// Returns all buffers, in that order.
  std::vector<Buffer*> buffers();
  /// Fixes every full name and with it every random stream. Called once, on the root.
  void bind(uint64_t seed);
  /// Calls bind(), then allocates and initialises every parameter and buffer, each in its own
  /// memory. (DataParallel puts parameters into flat buckets instead.)
  void materialize(Device device, DType dtype, uint64_t seed);
  /// Returns the key of this module's random stream (dropout), after bind.
  uint64_t key() const { return key_; }

 protected:
  /// Throws Error 78 unless the name is of letters, digits, `_` and `-`.
  static void check_name(const std::string& name);
  /// Throws Error 78 if the name is taken.
  Parameter& parameter(Parameter p);
  Buffer& buffer(Buffer b);
  /// Adds a child made of `args`. Its errors get its name in front.
  template <class M, class... Args> M& child(std::string name, Args&&... args) try {
    take_name(name, "children");
    children_.emplace_back(name, std::make_unique<M>(std::forward<Args>(args)...));
    return static_cast<M&>(*children_.back().second);
  } catch (const Error& e) {
    throw e.saying(name + ": " + e.what());
  }

 private:
  void take_name(const std::string& name, const char* kind);
  void bind(uint64_t seed, const std::string& path);

  uint64_t key_ = 0;
  bool bound_ = false;
  std::vector<std::unique_ptr<Parameter>> own_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  std::set<std::string> names_;
};

}  // namespace triax::nn

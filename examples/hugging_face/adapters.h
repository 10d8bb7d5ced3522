#pragma once
#include <string>
#include <vector>

#include "examples/hugging_face/conversion.h"
#include "triax/parallel/checkpoint/checkpoint.h"

namespace triax::hf {

/// The adapters in a checkpoint of a model with --lora.
class Adapters {
 public:
  /// `checkpoint` must outlive it. No `lora`, or rank 0: there are none.
  Adapters(parallel::Checkpoint& checkpoint, const parallel::LoraOptions* lora,
           parallel::Weights weights);

  /// Returns the weight, f32 [out, in], with what its adapter adds to it; as it is without one.
  Tensor merged(const std::string& name, const Tensor& weight) const;
  /// Writes them as PEFT's adapter_config.json and adapter_model.safetensors. A projection here is
  /// joint, such as queries, keys and values: there each of its parts has the same A. Throws Error
  /// 78 if there are none.
  void write(const Architecture& a, const std::string& to, const Files& files) const;

 private:
  bool on(const std::string& weight) const;
  Tensor read(const std::string& weight, const char* factor) const;

  parallel::Checkpoint& checkpoint_;
  parallel::LoraOptions lora_;
  parallel::Weights weights_;
};

}  // namespace triax::hf

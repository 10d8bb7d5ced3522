#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "examples/llama/config.h"
#include "examples/llama/program.h"
#include "examples/minigpt/config.h"
#include "examples/minigpt/model.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tensors.h"
#include "triax/nn/state.h"
#include "triax/parallel/checkpoint/directory.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/train/step/replica.h"

/// @file The models of tests/reference that transformers saved, as tests use them.
namespace triax::test {

/// A model directory of tests/reference and the program's side of it.
struct HubModel {
  std::string folder;
  hf::Architecture architecture;
  std::function<parallel::Build()> build;  ///< of the settings that were read last
};

inline HubModel gpt2_model() {
  auto c = std::make_shared<minigpt::Config>();
  auto a = minigpt::gpt2(*c);
  auto build = [c]() -> parallel::Build {
    return [m = c->model](auto& tp) { return std::make_unique<minigpt::Gpt>(m, tp); };
  };
  return {TRIAX_TEST_REFERENCE "/gpt2", a, build};
}

inline HubModel llama_model(const std::string& folder = "llama") {
  auto c = std::make_shared<LlamaConfig>();
  auto a = llama_of_hugging_face(*c, settings(*c));
  auto build = [c]() -> parallel::Build {
    return [m = *c](auto& tp) { return std::make_unique<Llama>(m, tp); };
  };
  return {TRIAX_TEST_REFERENCE "/" + folder, a, build};
}

inline HubModel hub_model(const std::string& name) {
  return name == "gpt2" ? gpt2_model() : llama_model(name);
}

/// What conversions print; the log of a test does not need it.
struct Silence {
  Silence() { testing::internal::CaptureStdout(); }
  ~Silence() { testing::internal::GetCapturedStdout(); }
};

inline void import_to(const HubModel& m, const std::string& from, const std::string& out,
                      const Files& files = disk()) {
  Silence silence;
  hf::import_model(m.architecture, {from, out}, files);
}

inline void export_to(const HubModel& m, const std::string& checkpoint, const std::string& to,
                      const Files& files = disk(),
                      parallel::Weights weights = parallel::Weights::trained) {
  Silence silence;
  hf::export_model(m.architecture, {checkpoint, to, weights}, files);
}

/// All tensors of a model directory by their names there.
inline std::map<std::string, Tensor> hub_tensors(const std::string& folder) {
  std::map<std::string, Tensor> all;
  for (auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string file = entry.path().filename().string();
    if (!file.starts_with("model") || !file.ends_with(".safetensors")) continue;
    for (auto& [name, value] : nn::load_tensors(entry.path().string())) all[name] = value;
  }
  return all;
}

/// A copy of the model directory that a test may change.
class HubCopy {
 public:
  explicit HubCopy(const HubModel& m) { std::filesystem::copy(m.folder, path()); }
  std::string path() const { return directory_ / "model"; }
  std::string operator/(const std::string& name) const { return path() + "/" + name; }
  /// Puts text in place of a part of a file that is there once.
  void replace(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = read_bytes(*this / file);
    size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << file << " does not hold " << from;
    ASSERT_EQ(text.find(from, at + 1), text.npos) << file << " holds more than one " << from;
    write_bytes(*this / file, text.replace(at, from.size(), to));
  }
  /// Saves all tensors again, in one file, as `change` leaves them.
  void rewrite(const std::function<void(std::map<std::string, Tensor>&)>& change) const {
    auto tensors = hub_tensors(path());
    change(tensors);
    for (auto& entry : std::filesystem::directory_iterator(path()))
      if (entry.path().filename().string().starts_with("model")) remove(entry.path());
    std::vector<nn::NamedTensor> all;
    for (auto& [name, value] : tensors) all.push_back({name, value});
    nn::save_tensors(*this / "model.safetensors", all, {{"format", "pt"}});
  }

 private:
  TemporaryDirectory directory_;
};

/// The logits that a mesh computes with the weights of a checkpoint.
inline std::vector<double> logits_of(const HubModel& m, const std::string& checkpoint,
                                     const parallel::MeshShape& shape = {}) {
  std::vector<double> result;
  parallel::run_ranks(shape.size(), [&](parallel::Communicator& world) {
    NoGrad guard;
    parallel::Mesh mesh(world, shape);
    auto build = m.build();
    nn::Batch batch{
        .input = nn::TensorFile(m.folder + "/reference.safetensors").read("ids").to(i32),
        .first = nn::evaluation};
    auto options = parallel::inference_options(shape, f32);
    parallel::Replica model(mesh, build, options,
                            parallel::probe(build, batch, parallel::probe_options(options)));
    auto opened = parallel::open_checkpoint(checkpoint, world);
    model.load(opened);
    Tensor y = model.predict(batch);
    if (world.rank() == 0) result = values(y);
  });
  return result;
}

}  // namespace triax::test

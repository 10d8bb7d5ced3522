#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "examples/llama/config.h"
#include "examples/minigpt/config.h"
#include "packaging/python/module.h"
#include "triax/autograd/record.h"
#include "triax/core/check.h"
#include "triax/parallel/checkpoint/directory.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace nb = nanobind;

namespace triax::python {
namespace {

/// A checkpoint and, once it is asked for logits, its model. Several threads may share it.
class CheckpointFile {
 public:
  explicit CheckpointFile(const std::string& path)
      : alone_(parallel::single_rank()), checkpoint_(parallel::open_checkpoint(path, *alone_)) {}

  const parallel::Checkpoint& checkpoint() const { return checkpoint_; }

  /// Returns a tensor by its name in the checkpoint: `block0.up.weight`, `block0.up.weight@m`.
  Tensor read(const std::string& name) {
    std::lock_guard hold(lock_);
    size_t at = std::min(name.find('@'), name.size());
    auto stored = checkpoint_.tensors().find(name);
    check_input(stored != checkpoint_.tensors().end(), Exit::data, "checkpoint {}: no tensor {}",
                checkpoint_.path(), name);
    return checkpoint_.read(name.substr(0, at), {.full = stored->second.full},
                            name.substr(std::min(at + 1, name.size())));
  }

  /// Returns the logits [.., tokens, vocabulary] in f32 of every position of `ids`, [tokens] or
  /// [sequences, tokens].
  Tensor logits(const Tensor& ids) {
    std::lock_guard hold(lock_);
    load();
    int64_t vocab = checkpoint_.tensors().at("tokens.table").full[0];
    check_ids(ids, vocab);
    NoGrad guard;
    Tensor y =
        replica_->predict({.input = ids.to(i32).view({-1, ids.size(-1)}), .first = nn::evaluation});
    Shape shape = ids.shape();
    shape.push_back(vocab);
    return y.to(f32).view(shape);
  }

 private:
  void load() {
    if (replica_) return;
    auto tokenizer = text::tokenizer_of(checkpoint_);
    bool gpt = checkpoint_.tensors().contains("positions.table");
    model_ = gpt ? minigpt::model_of(checkpoint_, tokenizer) : llama_of(checkpoint_, tokenizer);
    mesh_ = std::make_unique<parallel::Mesh>(*alone_, parallel::MeshShape{});
    replica_ = text::load_model(checkpoint_, model_, *mesh_, parallel::Weights::trained, f32);
  }

  void check_ids(const Tensor& ids, int64_t vocab) const {
    bool fits = is_index(ids.dtype()) && (ids.rank() == 1 || ids.rank() == 2) && ids.numel() > 0;
    check_input(fits && ids.size(-1) <= model_.context, Exit::data,
                "logits: ids {}; expected i32 or i64, [tokens] or [sequences, tokens] of 1 to {}",
                ids, model_.context);
    auto values = ids.to(i64).to_host<int64_t>();
    auto wrong = std::ranges::find_if(values, [&](int64_t id) { return id < 0 || id >= vocab; });
    if (wrong != values.end())
      fail(Exit::data, "logits: token {}; expected 0 to {}", *wrong, vocab - 1);
  }

  std::mutex lock_;
  std::unique_ptr<parallel::Communicator> alone_;
  parallel::Checkpoint checkpoint_;
  text::TextModel model_;
  std::unique_ptr<parallel::Mesh> mesh_;
  std::unique_ptr<parallel::Replica> replica_;
};

std::vector<std::string> names(const CheckpointFile& file) {
  return transformed(file.checkpoint().tensors(), [](auto& stored) { return stored.first; });
}

}  // namespace

void add_checkpoint(nb::module_& m) {
  nb::call_guard<nb::gil_scoped_release> unlocked;
  nb::class_<CheckpointFile>(m, "CheckpointFile")
      .def(nb::init<const std::string&>(), unlocked)
      .def_prop_ro("path", [](const CheckpointFile& c) { return c.checkpoint().path(); })
      .def_prop_ro("step", [](const CheckpointFile& c) { return c.checkpoint().step(); })
      .def("names", names)
      .def("settings",
           [](const CheckpointFile& c) { return parallel::saved_settings(c.checkpoint()); })
      .def("read", &CheckpointFile::read, unlocked)
      .def("logits", &CheckpointFile::logits, unlocked);
}

}  // namespace triax::python

// planted_runs FOLDER: pairs of certified runs on different meshes, of which the second of each has
// one planted difference. Prints a line for each pair: both directories, and the step, the kind,
// the tensor and the rank of the difference.
#include <fmt/core.h>

#include "tests/support/tiny_task.h"
#include "triax/core/check.h"

namespace triax::test {
namespace {

using namespace parallel;

constexpr int64_t steps = 6, batch = 16;

/// A difference from step `step` on.
struct Plant {
  enum Kind { weight, moment, gradient, row, seed, rate } kind;
  int64_t step = 1;
  std::string tensor = {};
  int rank = 0;
};

struct Setup {
  MeshShape mesh = {};
  int zero = 0;
  DType dtype = f32;
};

TrainOptions options(const Setup& s, const std::string& out) {
  TrainOptions o = tiny_options(s.mesh);
  o.steps = steps, o.certify = 1, o.out = out, o.val_every = 0, o.save_every = 2, o.keep = 100;
  o.lr.warmup = 0;
  o.step.zero = Zero(s.zero), o.step.dtype = s.dtype;
  o.step.micro_batch = 4, o.step.global_batch = batch;
  o.step.bitwise = true, o.step.tp_slices = 2;
  return o;
}

/// Flips a bit of the first element that the rank holds of a tensor. True if it holds any.
bool flip(const std::vector<Piece>& pieces, const std::string& name) {
  for (const Piece& piece : pieces)
    if (name_of(piece) == name && piece.value.numel() > 0) {
      auto* last = static_cast<uint8_t*>(piece.value.data()) + size_of(piece.value.dtype()) - 1;
      *last ^= 1;  // of the exponent: large enough to change what follows
      return true;
    }
  return false;
}

/// The samples of the task, but for one row of one step.
class OtherRow : public nn::Samples {
 public:
  OtherRow(std::shared_ptr<const nn::Samples> of, int64_t serial)
      : of_(std::move(of)), serial_(serial) {}
  int64_t count() const override { return of_->count(); }
  nn::Batch batch(std::span<const int64_t> indices) const override { return of_->batch(indices); }
  nn::Batch augmented(std::span<const int64_t> indices, int64_t first) const override {
    std::vector<int64_t> mine(indices.begin(), indices.end());
    if (first <= serial_ && serial_ < first + std::ssize(mine))
      mine[size_t(serial_ - first)] = (mine[size_t(serial_ - first)] + 1) % count();
    return of_->augmented(mine, first);
  }
  std::string identity() const override { return of_->identity(); }

 private:
  std::shared_ptr<const nn::Samples> of_;
  int64_t serial_;
};

void train(const Task& task, const TrainOptions& o, const Plant* plant) {
  run_worlds(o.step.mesh.size(), [&](World& world) {
    bool here = plant && world.rank() == plant->rank, planted = false;
    int64_t updates = 0;
    StepObserver observer;
    if (plant && plant->kind == Plant::gradient)  // on all ranks, since ranks without do more
      observer.gradients = [&](const Step& s) {
        if (++updates == plant->step && here)
          planted = flip(gradient_pieces(s.replica().data()), plant->tensor + "/gradient");
      };
    Trainer trainer(task, o, world, observer);
    auto step = [&](Trainer& t, const StepRecord& r) {
      if (r.result.step + 1 != plant->step) return;
      if (plant->kind == Plant::weight)
        planted = flip(o.step.zero == Zero::parameters ? t.update().pieces(Holder::any)
                                                       : read_pieces(t.update().replica()),
                       plant->tensor);
      if (plant->kind == Plant::moment)
        planted = flip(t.update().pieces(Holder::any), plant->tensor + "/m");
    };
    if (here) trainer.on({.step = step}, On::all);
    trainer.run();
    bool flips = here && plant->kind <= Plant::gradient;
    check(!flips || planted, "rank {} holds nothing of {}", world.rank(),
          plant ? plant->tensor : "");
  });
}

/// One pair: a run, and another with the plant, on another mesh.
struct Pair {
  Setup a, b;
  Plant plant;
};

const char* name(Plant::Kind kind) {
  return std::array{"weight", "moment", "gradient", "row", "seed", "rate"}[size_t(kind)];
}

void train(const Pair& pair, const std::string& a, const std::string& b) {
  Task task = task_of();
  train(task, options(pair.a, a), nullptr);
  TrainOptions o = options(pair.b, b);
  const Plant& plant = pair.plant;
  if (plant.kind == Plant::seed) o.step.seed = 7;
  if (plant.kind == Plant::row)
    task.samples = std::make_shared<OtherRow>(task.samples, (plant.step - 1) * batch + 5);
  if (plant.kind == Plant::rate) {
    o.resume = fmt::format("{}/step-{}", a, plant.step - 1);
    o.resume_changed = true, o.lr.peak = 2e-3;
  }
  train(task, o, &plant);
}

/// A run that fails after step 5 and goes on with step 5 on another mesh, and one left alone.
void resume(const std::string& a, const std::string& b) {
  train(task_of(), options({{.dp = 2}, 1}, a), nullptr);
  TrainOptions o = options({{.pp = 2}}, b);
  auto fails = [&](World& world) {
    Trainer trainer(task_of(), o, world);
    trainer.on({.step = [](Trainer&, auto& r) { check(r.result.step < 5, "planted"); }}, On::all);
    trainer.run();
  };
  try {
    run_worlds(2, fails);
  } catch (const Error&) {
    o = options({{.dp = 2, .tp = 2}, 3}, b), o.resume = "auto";
    return train(task_of(), o, nullptr);
  }
  fail(Exit::internal, "a run did not fail");
}

std::vector<Pair> pairs() {
  const Setup one, dp2{{.dp = 2}}, pp2{{.pp = 2}}, tp2{{.tp = 2}}, all{{.dp = 2, .pp = 2, .tp = 2}};
  auto zero = [](Setup s, int stage) { return s.zero = stage, s; };
  auto half = [](Setup s) { return s.dtype = bf16, s; };
  const std::string up = "block1.up.weight", down = "block0.down.weight", head = "head.table",
                    norm = "block0.norm.gamma";
  using P = Plant;
  return {
      {one, one, {P::weight, 3, up}},
      {one, dp2, {P::weight, 2, down, 1}},
      {tp2, pp2, {P::weight, 4, head, 1}},
      {dp2, all, {P::weight, 5, norm, 3}},
      {all, zero(dp2, 1), {P::weight, 3, up, 1}},
      {pp2, zero(all, 2), {P::weight, 6, down, 1}},
      {one, zero(dp2, 3), {P::weight, 2, up, 1}},
      {half(one), half(tp2), {P::weight, 4, down, 1}},
      {half(dp2), half(zero(all, 1)), {P::weight, 3, head, 7}},
      {one, dp2, {P::moment, 3, up, 1}},
      {one, tp2, {P::moment, 2, down, 0}},
      {tp2, zero(dp2, 1), {P::moment, 4, head, 0}},
      {pp2, zero(dp2, 3), {P::moment, 5, up, 1}},
      {half(one), half(pp2), {P::moment, 3, norm, 0}},
      {half(all), half(zero(all, 2)), {P::moment, 6, up, 0}},
      {one, pp2, {P::gradient, 2, down, 0}},
      {one, tp2, {P::gradient, 3, up, 1}},
      {dp2, dp2, {P::gradient, 4, norm, 1}},
      {one, all, {P::gradient, 5, head, 7}},
      {all, zero(dp2, 1), {P::gradient, 1, up, 0}},
      {tp2, zero(dp2, 2), {P::gradient, 6, down, 1}},
      {pp2, zero(dp2, 3), {P::gradient, 3, head, 1}},
      {half(one), half(zero(all, 1)), {P::gradient, 2, norm, 2}},
      {one, dp2, {P::row, 3}},
      {tp2, pp2, {P::row, 5}},
      {half(one), half(zero(dp2, 2)), {P::row, 2}},
      {one, all, {P::seed, 0, "block0.up.weight"}},
      {half(dp2), half(tp2), {P::seed, 0, "block0.up.weight"}},
      {one, pp2, {P::rate, 3, norm}},
      {all, zero(all, 3), {P::rate, 5, norm}},
  };
}

}  // namespace
}  // namespace triax::test

int main(int, char** argv) {
  using namespace triax::test;
  std::string folder = argv[1];
  resume(folder + "/alone", folder + "/resumed");
  int number = 0, failed = 0;
  for (const Pair& pair : pairs()) {
    std::string place = fmt::format("{}/{}", folder, number++), a = place + "-a", b = place + "-b";
    const Plant& p = pair.plant;
    try {
      train(pair, a, b);
      fmt::print("planted\t{}\t{}\t{}\t{}\t{}\t{}\n", a, b, p.step, name(p.kind), p.tensor, p.rank);
    } catch (const triax::Error& e) {
      fmt::print(stderr, "pair {}: {}\n", number - 1, e.what());
      ++failed;
    }
  }
  return failed > 0;
}

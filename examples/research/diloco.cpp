// Local SGD with an outer optimizer: each site trains by itself, and every H steps an outer
// optimizer takes the mean of what they have moved (Douillard et al., "DiLoCo", 2023, algorithm 1).
// With one inner step of plain gradient descent it is data parallelism.
//   diloco train --comm threads --ranks 4 --sites 4 --every 10 --outer-lr 0.7 --outer-momentum 0.9
#include "points.h"
#include "triax/optim/sgd.h"

using namespace triax;
using namespace triax::parallel;

struct Outer {
  int64_t every = 1;
  double lr = 1, momentum = 0;
  std::string inner = "adamw";
};

/// Keeps the weights of the last meeting, and Nesterov's velocity.
class DiLoCo final : public optim::Optimizer {
 public:
  DiLoCo(std::unique_ptr<optim::Optimizer> inner, const std::vector<optim::Slot>& slots,
         Communicator& sites, const Outer& o)
      : inner_(std::move(inner)), slots_(slots), sites_(sites), o_(o) {
    for (auto& s : slots)
      met_.push_back(clone(s.weight)), velocity_.push_back(zeros_like(s.weight));
  }
  std::vector<optim::SlotState> state() const override {
    auto all = inner_->state();
    for (size_t i = 0; i < slots_.size(); ++i) {
      all.push_back({i, "met", met_[i]});
      if (o_.momentum > 0) all.push_back({i, "outer", velocity_[i]});
    }
    return all;
  }

 private:
  void update(const StepDecision& d) override {
    for (size_t i = 0; steps() == 1 && i < slots_.size(); ++i) copy_(met_[i], slots_[i].weight);
    inner_->set_steps(steps() - 1);
    inner_->step(d.lr, d.grad_scale);
    for (size_t i = 0; steps() % o_.every == 0 && i < slots_.size(); ++i) {
      Tensor moved = (met_[i] - slots_[i].weight) * (1. / sites_.size());
      sites_.all_reduce(moved).wait();
      copy_(velocity_[i], velocity_[i] * o_.momentum + moved);
      copy_(slots_[i].weight, met_[i] - (velocity_[i] * o_.momentum + moved) * o_.lr);
      copy_(met_[i], slots_[i].weight);
    }
  }
  std::unique_ptr<optim::Optimizer> inner_;
  std::vector<optim::Slot> slots_;
  Communicator& sites_;
  const Outer& o_;
  Tensors met_, velocity_;
};

int main(int argc, char** argv) {
  Outer outer;
  ProgramOptions o = program_of("diloco", "Tries local steps with an outer optimizer.");
  o.settings =
      SettingGroup("Outer optimizer")
          .add("every", "N", "steps between meetings", &outer.every, {{.min = 1}})
          .add("outer-lr", "X", "rate of the outer step", &outer.lr, {{.min = 0}})
          .add("outer-momentum", "X", "of Nesterov's", &outer.momentum, {{.min = 0, .max = 1}})
          .add("inner", "adamw|sgd", "its rule", &outer.inner, {.choices = {"adamw", "sgd"}});
  o.train.step.add_axis({.name = "sites",
                         .help = "sites that train by themselves between meetings",
                         .cuts = Cuts::samples | Cuts::weights,
                         .around = [&](auto inner, auto& slots, auto& sites) {
                           if (outer.inner == "sgd") inner = std::make_unique<optim::Sgd>(slots);
                           return std::make_unique<DiLoCo>(std::move(inner), slots, sites, outer);
                         }});
  return program(argc, argv, o);
}

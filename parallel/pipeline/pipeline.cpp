#include "triax/parallel/pipeline/pipeline.h"

#include <algorithm>

#include "triax/core/check.h"
#include "triax/core/meta/meta.h"
#include "triax/core/profile.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/pipeline/check_schedule.h"

namespace triax::parallel {

Pipeline::Pipeline(Mesh& mesh, std::vector<nn::Layers> chunks, const PipelineOptions& options)
    : stages_(mesh.pp().size()),
      stage_(mesh.pp().rank()),
      device_(mesh.world().device()),
      chunks_(std::move(chunks)),
      options_(options) {
  bool empty = chunks_.empty() || chunks_[0].empty();
  check_input(stage_ > 0 || !empty, Exit::config,
              "pipeline: the first stage has no layers; expected one at least, to make what the "
              "next takes");
  int cuts = shape(1).virtual_stages() - 1;
  check(cuts == 0 || options_.boundaries.size() == 1 || std::ssize(options_.boundaries) == cuts,
        "pipeline: {} boundaries; expected one, or one for each of the {} cuts",
        options_.boundaries.size(), cuts);
  if (stages_ == 1) return;
  agree(mesh.pp());
  links_ = Links(mesh.pp(), shape(1));
}

/// Compares transfers now: sides that see one differently would find out only when it happens.
void Pipeline::agree(Communicator& stages) const {
  std::string mine = counted(chunks_.size(), "chunk") + " and sends";
  for (auto& b : options_.boundaries) mine += fmt::format(" {} {}", b.shape, b.dtype);
  auto told = gather_text(stages, mine);
  on_first(stages, [&] {
    for (size_t s = 1; s < told.size(); ++s)
      check_input(told[s] == told[0], Exit::config,
                  "pipeline: stage {} has {}, stage 0 has {}; expected the same chunks, shapes and "
                  "dtypes on all stages",
                  s, told[s], told[0]);
  });
}

void Pipeline::train(const PipelineRun& run) {
  PipelineShape shape = this->shape(run.micros);
  auto known = std::ranges::find_if(checked_, [&](auto& c) { return c.first == shape; });
  if (known == checked_.end()) {
    check_schedule(options_.schedule, shape);
    known = checked_.insert(checked_.end(), {shape, options_.schedule(shape, stage_)});
  }
  execute(known->second, shape, run);
}

void Pipeline::infer(const PipelineRun& run) {
  NoGrad guard;
  PipelineShape shape = this->shape(run.micros);
  execute(forward_only(shape, stage_), shape, run);
}

void Pipeline::execute(const Actions& actions, const PipelineShape& shape, const PipelineRun& run) {
  slots_.clear();  // of a run that an error ended
  in_place_.clear();
  offloads_.clear();
  for (const Action& a : actions)
    if (a.kind == Action::offload) offloads_.insert({a.chunk, a.micro});
  if (autograd::recording()) peak_live_ = away_ = 0;  // of training alone
  boundaries_ = run.boundaries.empty() ? options_.boundaries : run.boundaries;
  incoming_ = incoming(actions, shape);
  for (const Action& a : actions) {
    drop_finished_sends();
    ProfileRange range(label(a, shape.chunks).c_str(), Activity::action);
    if (a.kind == Action::forward) forward(a, shape, run);
    else if (copies(a.kind)) move_kept(a);
    else if (a.kind == Action::backward_weight) {
      slots_.at({a.chunk, a.micro}).later.run();
      slots_.erase({a.chunk, a.micro});
    } else backward(a, shape, run);
  }
  for (Work& w : sends_) w.wait();
  sends_.clear();
}

/// Bounds the sends in flight, since a first stage that only sends would run ahead without end. No
/// group of micro-batches of `forward_only` is as large as the bound, so that rings of several
/// chunks go on too.
void Pipeline::drop_finished_sends() {
  std::erase_if(sends_, [](Work& w) { return w.done(); });
  while (!autograd::recording() && std::ssize(sends_) >= 2 * stages_) {
    sends_.front().wait();
    sends_.erase(sends_.begin());
  }
}

void Pipeline::forward(const Action& a, const PipelineShape& shape, const PipelineRun& run) {
  bool records = autograd::recording();
  Slot slot;
  StorageList made;
  if (auto from = received_by(shape, stage_, a)) {
    slot.y = receive(*from);
    if (!stays(shape, *from)) made.push_back(slot.y.storage());
    if (records) slot.y = graph_input(slot.y, slot.dx);
  }
  peak_live_ = std::max(peak_live_, int(slots_.size()) + 1 - away_);
  auto& layers = chunks_[size_t(a.chunk)];
  bool reads = std::ranges::any_of(layers, [](auto& l) { return l.reads_batch; });
  nn::Batch batch = reads ? run.batch(a.micro) : nn::Batch();
  auto to = sent_by(shape, stage_, a);
  if (records) batch.loss_seed = run.seed;
  if (records && !to) batch.loss.seed = slot.seed = full({}, run.seed, f32, device_);
  std::optional<NotedStorages> noted;
  if (offloads_.contains({a.chunk, a.micro})) noted.emplace(made);
  for (auto& layer : layers) {
    ProfileRange range(layer.name.c_str(), Activity::layer);
    slot.y = layer.run(slot.y, batch);
    poll();  // transfers under way advance only when this rank looks after them
  }
  if (noted) slot.kept = KeptValues(made, slot.y);
  if (to) send(shape, *to, slot.y);
  else if (run.output) run.output(a.micro, slot.y);
  if (!records) return;
  slot.y = without_values(slot.y);  // backward needs its history, and what the layers have kept
  slots_[{a.chunk, a.micro}] = std::move(slot);
}

void Pipeline::move_kept(const Action& a) {
  KeptValues& kept = slots_.at({a.chunk, a.micro}).kept;
  if (a.kind == Action::offload) kept.offload(), ++away_;
  else kept.reload(), --away_;
  peak_live_ = std::max(peak_live_, int(slots_.size()) - away_);
}

void Pipeline::backward(const Action& a, const PipelineShape& shape, const PipelineRun& run) {
  Slot& slot = slots_.at({a.chunk, a.micro});
  slot.kept.arrive();
  auto from = received_by(shape, stage_, a);
  Tensor dy = from ? receive(*from) : slot.seed;
  auto like = [](const Tensor& x, const Tensor& y) {
    return x.shape() == y.shape() && x.dtype() == y.dtype() && x.device() == y.device();
  };
  if (!from && !like(dy, slot.y))
    dy = full(slot.y.shape(), run.seed, slot.y.dtype(), slot.y.device());
  bool whole = a.kind == Action::backward;
  // A first stage that trains nothing has nothing to do.
  if (requires_grad(slot.y)) triax::backward(slot.y, std::move(dy), whole ? nullptr : &slot.later);
  if (auto to = sent_by(shape, stage_, a)) send(shape, *to, *slot.dx);
  slot.y = *slot.dx = slot.seed = {};
  if (whole) slots_.erase({a.chunk, a.micro});
}

Incoming Pipeline::incoming(const Actions& actions, const PipelineShape& shape) {
  std::vector<Handover> all;
  for (const Action& a : actions)
    if (auto from = received_by(shape, stage_, a); from && !stays(shape, *from))
      all.push_back(*from);
  bool ahead = (device_ == meta_device ? MetaTarget::kind() : device_.kind) == cpu.kind;
  return {all, links_, boundaries_, ahead};
}

Tensor Pipeline::receive(const Handover& what) {
  auto kept = in_place_.extract(what);
  return kept ? std::move(kept.mapped()) : incoming_.take(what);
}

/// Sends, and waits only at the end of the list, so that the transfer overlaps what comes next.
void Pipeline::send(const PipelineShape& shape, const Handover& what, const Tensor& x) {
  const Boundary& b = boundary_of(boundaries_, what);
  check_input(x.defined() && x.shape() == b.shape && x.dtype() == b.dtype, Exit::data,
              "pipeline: {} is {}; expected {} {} as agreed\n  With pipeline parallelism all "
              "batches must have one shape: pad the samples to it.",
              str(what), x, b.shape, b.dtype);
  if (stays(shape, what)) {
    in_place_.emplace(what, x.detach());
    return;
  }
  Communicator& to = links_.channel(what);
  sends_.push_back(to.send(x.detach().contiguous(), 1 - to.rank()));
}

}  // namespace triax::parallel

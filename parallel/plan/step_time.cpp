#include "triax/parallel/plan/step_time.h"

#include <algorithm>
#include <cmath>

#include "triax/parallel/data/buckets/buckets.h"
#include "triax/parallel/pipeline/simulate.h"
#include "triax/parallel/train/step/replica.h"

namespace triax::parallel {
namespace {

/// Returns a ring's share of calls that pass `bytes`, as the Ledger counts it.
Ledger::Line ring(int64_t calls, double bytes, int64_t ranks) {
  return {calls, bytes * double(ranks - 1) / double(ranks)};
}

Kept kept_of(const StepOptions& o, int stage, int64_t micros) {
  PipelineShape shape = o.pipeline();
  shape.micros = int(micros);
  return most_kept(o.schedules.at(o.schedule)(shape, stage));
}

std::vector<Kept> kept_by_stage(const std::vector<Actions>& lists) {
  return transformed(lists, [](auto& list) { return most_kept(list); });
}

/// Returns fewer micro-batches of a built-in schedule, which fill the pipeline, and end as all do:
/// whole groups of as many as there are stages are left out, between which nothing differs. With
/// several chunks each group takes one of the rest, so there are more groups than that.
int enough_micros(const StepOptions& o) {
  PipelineShape shape = o.pipeline();
  if (!is_built_in(o)) return shape.micros;
  int rest = shape.micros % shape.stages;
  int groups = shape.chunks > 1 ? std::max(4, rest + 1) : 4;
  return int(std::min(int64_t{shape.micros}, int64_t{groups} * shape.stages + rest));
}

/// Returns the kept passes after `groups` more, each of which adds what the one from `few` to
/// `more` does: nothing, except with gpipe, which keeps all.
std::vector<Kept> kept_further(std::vector<Kept> few, const std::vector<Kept>& more, int groups) {
  for (size_t s = 0; s < few.size(); ++s)
    for (auto count : {&Kept::live, &Kept::held, &Kept::waiting})
      few[s].*count += groups * (more[s].*count - few[s].*count);
  return few;
}

/// Returns how many elements that all ranks hold take as long to sum over these: experts are summed
/// over fewer.
double summed(const MeshShape& m, const Elements& e) {
  double all = m.data(), few = all / m.ep;
  double share = all > 1 ? (few - 1) / few / ((all - 1) / all) : 1;
  return double(e.trained - e.experts) + share * double(e.experts);
}

/// Returns the part of a layer's backward that schedules can defer: half of its products, each with
/// a sum for a bias.
KernelWork weight_gradients(const LayerFacts& l) {
  auto all = double(std::max<int64_t>(1, l.parameters.all));
  double part = double(l.parameters.trained) / all;
  auto products = int64_t(part * double(l.backward.matmuls) / 2);
  return {.products = part * (l.forward.products - l.forward.attention),
          .kernels = products,
          .matmuls = products};
}

bool again(const StepOptions& o) {
  return o.recompute == Recompute::block || o.recompute == Recompute::block_split;
}

}  // namespace

bool is_built_in(const StepOptions& o) {
  auto names = schedule_names();
  return std::ranges::count(names, o.schedule) > 0;
}

int64_t filling(const StepOptions& o, int stage) {
  int64_t all = o.accumulation(), stages = o.mesh.pp, many = 8 * stages;
  if (!is_built_in(o)) return all;
  Kept full = kept_of(o, stage, many);
  // Lists of several chunks take micro-batches in groups of as many as there are stages.
  bool groups = o.chunks > 1;
  for (int64_t micros = groups ? 2 * stages : full.held; micros < std::min(all, many);
       micros += groups ? stages : 1)
    if (kept_of(o, stage, micros) == full) return std::min(all, micros + (groups ? 0 : 2));
  return all;
}

double shared_out(const MeshShape& m, const Elements& e) {
  return (double(e.trained - e.experts) + double(m.ep) * double(e.experts)) / m.data();
}

/// The times of a stage, or of one of its chunks, for one micro-batch.
struct StepTimes::Slot {
  double compute = 0, tensor = 0, forward = 0, weight = 0;  // forward, weight: parts of both
  double handover = 0, data = 0;                            // of a stage; data: exposed
  Elements parameters = {}, shared = {};
  int64_t layers = 0, trained_layers = 0;
  double total() const { return compute + tensor; }
  double busy() const { return total() + handover + data; }
  Slot& operator+=(const Slot& o) {
    compute += o.compute, tensor += o.tensor, forward += o.forward, weight += o.weight;
    parameters += o.parameters, shared += o.shared;
    layers += o.layers, trained_layers += o.trained_layers;
    return *this;
  }
};

StepTimes::StepTimes(const Task& task, const Hardware& hardware,
                     std::shared_ptr<const KernelTimes> kernels)
    : task_(task), hardware_(hardware), kernels_(std::move(kernels)) {}

StepTimes::FactsKey StepTimes::key_of(const StepOptions& o) {
  ProbeOptions key = probe_options(o);
  key.dp = 1;
  return {key, o.micro_batch};
}

const Facts& StepTimes::facts(const StepOptions& o) {
  FactsKey key = key_of(o);
  auto found = facts_.find(key);
  if (found == facts_.end())
    found =
        facts_.emplace(key, probe(task_.build, shaped_like(task_, o.micro_batch), probe_options(o)))
            .first;
  return found->second;
}

const std::vector<int64_t>& StepTimes::placement(const StepOptions& o) {
  FactsKey key = key_of(o);
  PipelineShape s = o.pipeline();
  auto& known = placements_[{key, s.stages, s.chunks, s.micros, s.placement, o.placement}];
  if (known.empty()) known = place(facts(o), o);
  return known;
}

const std::vector<Actions>& StepTimes::lists(const StepOptions& o, int micros) {
  PipelineShape shape = o.pipeline();
  shape.micros = micros;
  auto& known = lists_[{o.schedule, shape.stages, shape.chunks, micros}];
  if (known.empty()) known = lists_of(o.schedules.at(o.schedule), shape);
  return known;
}

const Bubble& StepTimes::bubble(const StepOptions& o) {
  PipelineShape shape = o.pipeline();
  bool twice = again(o);
  auto key = std::tuple(o.schedule, shape.stages, shape.chunks, shape.micros, twice);
  auto found = bubbles_.find(key);
  if (found != bubbles_.end()) return found->second;
  if (!is_built_in(o)) (void)check_schedule(o.schedules.at(o.schedule), shape);
  int all = shape.micros;
  shape.micros = enough_micros(o);
  auto& lists = this->lists(o, shape.micros);
  Bubble made;
  made.kept = kept_by_stage(lists);
  if (int groups = (all - shape.micros) / shape.stages; groups > 0)
    made.kept =
        kept_further(made.kept, kept_by_stage(this->lists(o, shape.micros + shape.stages)), groups);
  if (shape.stages > 1) {
    double third = 1. / (twice ? 4 : 3) / shape.chunks;  // a micro-batch takes a stage 1
    Simulation s = simulate(
        lists, shape,
        {.forward = third, .backward_input = twice ? 2 * third : third, .backward_weight = third});
    made.idle = s.time - shape.micros;
  }
  return bubbles_.emplace(key, made).first->second;
}

bool StepTimes::overlaps(int64_t ranks, int64_t stride) const {
  return kernels_->overlap() && hardware_.overlaps(ranks, stride);
}

double StepTimes::exposed(const std::vector<Beat>& beats, const StepOptions& o) const {
  double now = 0, link_free = 0, work = 0;
  std::map<size_t, double> ends;
  for (const Beat& beat : beats) {
    double kernels = kernels_->device(beat.work, hardware_, o.dtype);
    now += kernels, work += kernels;
    if (beat.sent.calls > 0)
      ends[beat.collective] = link_free =
          std::max(link_free, now) + hardware_.seconds(beat.sent, o.mesh.tp, 1);
    else if (auto end = ends.find(beat.collective); end != ends.end())
      now = std::max(now, end->second);
  }
  return now - work;
}

StepTimes::Slot StepTimes::pass(const KernelWork& work, const Ledger::Line& sums,
                                const std::vector<Beat>& beats, const StepOptions& o) {
  const Hardware& h = hardware_;
  double device = kernels_->device(work, h, o.dtype), host = kernels_->host(work, h, o.mesh.tp);
  bool hides = o.tp_pieces > 1 && overlaps(o.mesh.tp, 1);
  double collectives = hides ? exposed(beats, o) : h.seconds(sums, o.mesh.tp, 1);
  double compute = with_host(device, host);
  return {compute, h.on_host() ? collectives : with_host(device + collectives, host) - compute};
}

std::vector<StepTimes::Slot> StepTimes::slots(const StepOptions& o) {
  const Hardware& h = hardware_;
  auto exchange = [&](auto& sent) { return h.seconds(sent, o.mesh.ep, o.mesh.cp * o.mesh.tp); };
  auto& layers = facts(o).layers();
  std::vector<Slot> all;
  size_t i = 0;
  for (int64_t count : placement(o)) {
    Slot& slot = all.emplace_back();
    for (size_t end = i + size_t(count); i < end; ++i) {
      const LayerFacts& l = layers[i];
      Slot forward = pass(l.forward, l.tp_forward, l.forward_beats, o);
      Slot backward = pass(l.backward, l.tp_backward, l.backward_beats, o);
      double gradients = kernels_->gradients(double(l.parameters.trained), h, o.reduce_dtype);
      slot.compute += forward.compute + backward.compute + gradients;
      slot.weight +=
          gradients + std::min(backward.compute, pass(weight_gradients(l), {}, {}, o).compute);
      forward.tensor += over_rows(l.cp_forward, l.forward, o) + exchange(l.ep_forward);
      backward.tensor += over_rows(l.cp_backward, l.backward, o) + exchange(l.ep_backward);
      slot.tensor += forward.tensor + backward.tensor;
      slot.forward += forward.total();
      slot.parameters += l.parameters, slot.shared += l.shared;
      ++slot.layers, slot.trained_layers += l.parameters.trained > 0;
      bool block = i > 0 && i + 1 < layers.size();  // the first and the last are never repeated
      if (block && again(o)) slot.compute += forward.compute, slot.tensor += forward.tensor;
      if (block && o.recompute == Recompute::selective) {
        KernelWork core{.products = l.forward.attention,
                        .attention = l.forward.attention,
                        .scores = l.forward.scores};
        slot.compute += kernels_->device(core, h, o.dtype);
        slot.tensor += over_rows(l.cp_forward, l.forward, o);
      }
    }
  }
  return all;
}

std::vector<StepTimes::Slot> StepTimes::by_stage(const std::vector<Slot>& chunks,
                                                 const StepOptions& o) {
  PipelineShape shape = o.pipeline();
  std::vector<Slot> all(size_t(shape.stages));
  for (int v = 0; v < shape.virtual_stages(); ++v)
    all[size_t(shape.stage_of(v))] += chunks[size_t(v)];
  // A stage with both ends of the model has their shared parameters once.
  if (shape.last_stage() == 0) all[0].parameters -= all[0].shared;
  double weight = double(size_of(o.dtype)), sent = double(size_of(o.reduce_dtype)),
         hop = handover(o);
  auto over_dp = [&](int64_t calls, double bytes) { return over_replicas(o.mesh, calls, bytes); };
  for (Slot& s : all) {
    s.handover = hop;
    double trained = summed(o.mesh, s.parameters);
    double weights = trained + double(s.parameters.all - s.parameters.trained);
    if (o.zero == Zero::gradients) s.data = over_dp(trained > 0, sent * trained);
    if (o.zero == Zero::parameters)
      s.data = over_dp(2 * s.layers + s.trained_layers, 2 * weight * weights + sent * trained);
    if (overlaps(o.mesh.data(), o.mesh.tp)) s.data = std::max(0., s.data - s.total() - s.handover);
  }
  return all;
}

double StepTimes::over_rows(const Ledger::Line& sent, const KernelWork& work,
                            const StepOptions& o) const {
  double seconds = hardware_.seconds(sent, o.mesh.cp, o.mesh.tp);
  if (o.cp_form != ContextForm::ring || !overlaps(o.mesh.cp, o.mesh.tp)) return seconds;
  KernelWork blocks{.products = work.attention, .attention = work.attention, .scores = work.scores};
  double beside = kernels_->device(blocks, hardware_, o.dtype) * (o.mesh.cp - 1) / o.mesh.cp;
  return std::max(0., seconds - beside);
}

double StepTimes::handover(const StepOptions& o) {
  if (o.mesh.pp == 1) return 0;
  double most = 0;
  for (const Boundary& b : facts(o).boundaries(placement(o)))
    most = std::max(most, double(b.shape.numel()) * double(size_of(b.dtype)));
  if (!o.sequence_parallel) most /= o.mesh.tp;
  int64_t stride = o.mesh.stage();
  if (o.mesh.size() > hardware_.per_node)  // some neighbours are on different nodes
    stride = std::max<int64_t>(stride, hardware_.per_node);
  return 2 * o.chunks * hardware_.message(most, stride);
}

double StepTimes::over_replicas(const MeshShape& m, int64_t calls, double bytes) const {
  return hardware_.seconds(ring(calls, bytes, m.data()), m.data(), m.tp);
}

double StepTimes::after_backward(const StepOptions& o, const Slot& s, double hidden) const {
  double trained = summed(o.mesh, s.parameters), sent = double(size_of(o.reduce_dtype)), rest = 0;
  bool overlap = overlaps(o.mesh.data(), o.mesh.tp);
  int64_t calls = trained > 0;
  if (overlap)
    calls = int64_t(
        std::ceil(trained / double(BucketSizes::on(hardware_.kind(), o.mesh.data()).other)));
  if (o.zero <= Zero::optimizer)
    rest = over_replicas(o.mesh, calls, (o.zero == Zero::off ? 2 : 1) * sent * trained);
  rest = std::max(0., rest - hidden);
  if (o.zero == Zero::optimizer || o.zero == Zero::gradients) {
    double gather = over_replicas(o.mesh, calls, double(size_of(o.dtype)) * trained);
    double of_a_layer = gather / double(std::max<int64_t>(1, s.trained_layers));
    rest += overlap ? std::max(of_a_layer, gather - s.forward) : gather;
  }
  return rest;
}

double StepTimes::pipeline(const std::vector<Slot>& chunks, const std::vector<Slot>& stages,
                           const StepOptions& o) {
  PipelineShape shape = o.pipeline();
  double hop = stages[0].handover / shape.chunks;
  StageTimes times;
  for (int v = 0; v < shape.virtual_stages(); ++v) {
    const Slot &s = chunks[size_t(v)], &stage = stages[size_t(shape.stage_of(v))];
    double own = stage.busy() - stage.data, longer = own > 0 ? stage.busy() / own : 1;
    times.push_back({.forward = longer * (s.forward + hop / 2),
                     .backward_input = longer * (s.total() - s.forward - s.weight + hop / 2),
                     .backward_weight = longer * s.weight});
  }
  auto seconds = [&](int micros) {
    shape.micros = micros;
    return simulate(lists(o, micros), shape, times).time;
  };
  int all = shape.micros, few = enough_micros(o);
  double time = seconds(few);
  if (few == all) return time;
  return time + (seconds(few + shape.stages) - time) / shape.stages * (all - few);
}

StepTime StepTimes::operator()(const StepOptions& o) {
  auto chunks = slots(o), stages = by_stage(chunks, o);
  StepTime t = time(stages, o);
  double slow = std::ranges::max(stages, {}, &Slot::busy).busy();
  if (o.mesh.pp > 1) t.bubble = pipeline(chunks, stages, o) - double(o.accumulation()) * slow;
  return t;
}

StepTime StepTimes::estimate(const StepOptions& o) {
  auto stages = by_stage(slots(o), o);
  StepTime t = time(stages, o);
  double sum = 0, slow = 0;
  for (const Slot& s : stages) sum += s.busy(), slow = std::max(slow, s.busy());
  if (o.mesh.pp > 1) t.bubble = bubble(o).idle * (sum - slow) / (o.mesh.pp - 1);
  return t;
}

StepTime StepTimes::time(const std::vector<Slot>& all, const StepOptions& o) {
  auto micros = double(o.accumulation());
  StepTime t;
  double bytes = o.dtype == f32 ? 36 : 38;  // of a parameter: AdamW's, the norm, zeroed gradients
  for (const Slot& s : all) {
    double own =
        o.zero == Zero::off ? double(s.parameters.trained) : shared_out(o.mesh, s.parameters);
    t.update = std::max(t.update, own * bytes / (hardware_.bandwidth * hardware_.update));
  }
  const Slot& slow = *std::ranges::max_element(all, {}, &Slot::busy);
  bool behind = overlaps(o.mesh.data(), o.mesh.tp);
  for (const Slot& s : all)
    t.data =
        std::max(t.data, after_backward(o, s, behind ? slow.busy() - (s.busy() - s.data) / 3 : 0));
  t.compute = micros * slow.compute;
  t.tensor = micros * slow.tensor;
  t.handover = micros * slow.handover;
  t.data += micros * slow.data;
  return t;
}

std::vector<Elements> StepTimes::parameters(const StepOptions& o) {
  return transformed(by_stage(slots(o), o), &Slot::parameters);
}

double StepTimes::model_flop(const StepOptions& o) {
  StepOptions one = o;  // work that tensor-parallel ranks repeat counts once
  one.mesh = one.mesh.ones(), one.mesh.dp = o.mesh.replicas(), one.mesh.pp = o.mesh.pp;
  one.sequence_parallel = false;
  double flop = 0;
  for (auto& l : facts(one).layers()) flop += l.forward.products + l.backward.products;
  return flop / double(o.micro_batch) * double(o.global_batch);
}

}  // namespace triax::parallel

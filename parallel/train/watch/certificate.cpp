// The certificate of a run (docs/runs.md#certificates).
#include <map>
#include <set>
#include <sstream>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/core/io/json.h"
#include "triax/core/random.h"
#include "triax/parallel/train/trainer.h"

namespace triax::parallel {
namespace {

/// Returns the sum, over elements, of their bits and places in the full tensor, mixed (SplitMix64:
/// Steele, Lea and Flood 2014). The sums of parts add up to that of the whole.
uint64_t hash_of(const Piece& piece) {
  auto held = piece.value.storage()->hold(Access::read);  // it may lie in a file
  Tensor host = piece.value.detach().contiguous().to(cpu);
  uint64_t sum = 0;
  visit_bits(host.dtype(), [&]<class Bits>() {
    auto* from = static_cast<const Bits*>(host.data());
    for_each_overlap({.full = piece.part.full}, piece.part, [&](const Overlap& run) {
      for (int64_t i = 0; i < run.count; ++i) {
        uint64_t x = from[run.from + i] + uint64_t(run.to + i + 1) * 0x9E3779B97F4A7C15u;
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
        x = (x ^ x >> 27) * 0x94D049BB133111EBu;
        sum += x ^ x >> 31;
      }
    });
  });
  return sum;
}

class Certificate {
 public:
  explicit Certificate(Trainer& t) {
    for (auto& piece : t.update().pieces(Holder::owner)) owned_.insert(piece.name);
    std::vector<std::string> order;
    for (auto* p : t.update().replica().parameters()) order.push_back(nn::quoted(p->name));
    write(t, [&]() -> std::string {
      std::string path = t.options().out + "/certificate.jsonl";
      file_.emplace(Metrics::Place{path, "", Metrics::Place::Owner::this_run}, t.done());
      if (file_->last().empty())
        return fmt::format(R"("step":{},"order":[{}])", t.done(), join(order, ","));
      chain_ = nn::JsonReader(file_->last(), path, "the line", 2).at("chain").text();
      return "";
    });
  }
  /// Hashes the weights that a step has read, and its gradients.
  void gradients(Trainer& t) {
    if (t.done() % t.options().certify != 0) return;
    rows_.clear();  // of a step that got no line, as the caller took it
    const Replica& replica = t.update().replica();
    auto gathered = replica.data().gather_all();
    for (auto& piece : read_pieces(replica)) note(piece, "read");
    for (auto& piece : gradient_pieces(replica.data())) note(piece, piece.kind);
  }
  void step(Trainer& t, const StepResult& r) {
    if (r.step % t.options().certify != 0) return;
    write(t, [&] {
      return fmt::format(R"("step":{},"loss":{},"lr":{},"loss_scale":{})", r.step, exact(r.loss),
                         exact(r.lr), exact(r.loss_scale));
    });
  }

 private:
  /// Whole slices are the same on several ranks, other parts make up the tensor if they are owned.
  void note(const Piece& piece, const std::string& kind) {
    const Part& p = piece.part;
    bool counts = kind == "read" || owned_.contains(piece.name);
    rows_ += fmt::format("{}/{}\t{} {} {} {}\t{} {}\n", piece.name, kind, p.begin, p.length,
                         p.flat_begin, p.flat_end, int(counts), hash_of(piece));
  }
  /// Hashes the state too, and writes a line on rank 0. `begin` returns its first members; nothing:
  /// no line.
  template <class Begin> void write(Trainer& t, Begin&& begin) {
    for (auto& p : t.update().pieces(Holder::any)) note(p, p.kind.empty() ? "weight" : p.kind);
    Communicator& ranks = t.update().mesh().world();
    auto held = gather_text(ranks, std::exchange(rows_, ""));
    on_first(ranks, [&] {
      std::string members = begin();
      if (members.empty()) return;
      std::string line = fmt::format("{{{},{}", members, hashes(held));
      chain_ = fmt::format("{:016x}", random::key(0, chain_ + line));
      file_->put(fmt::format("{},\"chain\":\"{}\"}}\n", line, chain_));
    });
  }
  static std::string hashes(const std::vector<std::string>& held) {
    std::map<std::string, uint64_t> sums, parts;  // a part's is that of the first rank that has it
    std::vector<std::string> apart, all;
    for (size_t rank = 0; rank < held.size(); ++rank) {
      std::istringstream rows(held[rank]);
      std::string name, part;
      for (uint64_t counts = 0, hash = 0; std::getline(rows, name, '\t') &&
                                          std::getline(rows, part, '\t') && rows >> counts >> hash;
           rows >> std::ws) {
        auto [first, is_first] = parts.try_emplace(name + ' ' + part, hash);
        sums[name] += is_first ? counts * hash : 0;
        if (hash != first->second)
          apart.push_back(nn::quoted(fmt::format("{} of rank {}", name, rank)));
      }
    }
    for (auto& [name, sum] : sums)
      all.push_back(fmt::format(R"({}:"{:016x}")", nn::quoted(name), sum));
    return fmt::format(R"("hashes":{{{}}},"apart":[{}])", join(all, ","), join(apart, ","));
  }

  std::set<std::string> owned_;  // names of tensors whose parts count here
  std::string rows_, chain_;     // notes of a step; hexadecimal
  std::optional<Metrics> file_;  // on rank 0
};

}  // namespace

void certify(Trainer& trainer) {
  const TrainOptions& o = trainer.options();
  std::string path = o.out + "/certificate.jsonl";
  if (o.certify == 0 && o.resume.empty()) return;
  if (o.certify == 0) {  // lines behind the step at which it goes on would contradict this run
    on_first(trainer.update().mesh().world(), [&] {
      if (!o.out.empty() && disk().exists(path))
        Metrics({path, "", Metrics::Place::Owner::this_run}, trainer.done());
    });
    return;
  }
  bool can = !o.out.empty() && !o.step.graph && o.step.mesh.ranks_along(Cuts::weights) == 1;
  check_input(can, Exit::config,
              "certify={}: expected a run directory, steps that are not replayed (--graph), and "
              "ranks that train the same weights",
              o.certify);
  auto c = std::make_shared<Certificate>(trainer);
  trainer.on({.gradients = [c](Trainer& t) { c->gradients(t); },
              .step = [c](Trainer& t, const StepRecord& r) { c->step(t, r.result); }},
             On::all);
}

}  // namespace triax::parallel
